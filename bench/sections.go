package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"treadle/bench/load"
	"treadle/bench/peer"
)

// part is how a section is shown: a table of the rows that were timed, their ratios, and what both mean.
type part struct {
	section section
	title   string
	columns []column
	ratios  []column
	pairs   func(r *report, of section) []pair
	legend  string
}

// column is one value of a table.
type column struct{ heading, value string }

// columns are values that head themselves.
func columns(names ...string) (list []column) {
	for _, name := range names {
		list = append(list, column{name, name})
	}
	return list
}

// latencies are three columns of one latency, of which the first says which.
func latencies(heading, of string) []column {
	return []column{{heading + " p50", of + " p50"}, {"p99", of + " p99"}, {"p99.9", of + " p99.9"}}
}

// values are what tables, targets and charts show of a sample, by name.
var values = func() map[string]func(s *sample) float64 {
	all := map[string]func(s *sample) float64{
		"jobs/s":      func(s *sample) float64 { return s.JobsPerSecond },
		"MB/s":        func(s *sample) float64 { return s.JobsPerSecond * float64(s.Payload) / 1e6 },
		"CPU":         func(s *sample) float64 { return s.ServerCPU },
		"driver":      func(s *sample) float64 { return s.DriverCPU },
		"memory":      func(s *sample) float64 { return s.QueuedMB + s.IdleKB },
		"MB/1M":       func(s *sample) float64 { return s.QueuedMB },
		"MB later":    func(s *sample) float64 { return s.RestMB },
		"after s":     func(s *sample) float64 { return s.RestSeconds },
		"KB/conn":     func(s *sample) float64 { return s.IdleKB },
		"connect us":  func(s *sample) float64 { return s.ConnectCPU },
		"% of a core": func(s *sample) float64 { return s.CorePercent },
		"cycles":      func(s *sample) float64 { return s.Collections.Cycles },
		"pause":       func(s *sample) float64 { return s.Collections.PauseUS },
		"assist":      func(s *sample) float64 { return s.Collections.AssistMS },
		"silent":      func(s *sample) float64 { return float64(s.Connections) },
	}
	for of, quantiles := range map[string]func(s *sample) *load.Quantiles{
		"submit":    func(s *sample) *load.Quantiles { return &s.Submit },
		"to worker": func(s *sample) *load.Quantiles { return &s.ToWorker },
		"answer":    func(s *sample) *load.Quantiles { return &s.Answer },
	} {
		all[of+" p50"] = func(s *sample) float64 { return quantiles(s).P50 }
		all[of+" p90"] = func(s *sample) float64 { return quantiles(s).P90 }
		all[of+" p99"] = func(s *sample) float64 { return quantiles(s).P99 }
		all[of+" p99.9"] = func(s *sample) float64 { return quantiles(s).P999 }
		all[of+" p99.99"] = func(s *sample) float64 { return quantiles(s).P9999 }
		all[of+" max"] = func(s *sample) float64 { return quantiles(s).Max }
	}
	return all
}()

// parts lists the sections in the order of the tables.
func parts() []part {
	rate, cost, submit, toWorker := columns("jobs/s"), columns("CPU", "driver"), latencies("submit", "submit"), latencies("to worker", "to worker")
	byWorker := slices.Concat(rate, submit, toWorker, cost)
	ratios := slices.Concat(columns("jobs/s", "CPU"), submit)
	rows := append(columns("jobs/s", "CPU", "submit p99"), column{"p99.9", "submit p99.9"}, column{"KB/conn", "KB/conn"}, column{"connect us", "connect us"})
	return []part{
		{periodicSection, "Periodic and its peers", byWorker, slices.Concat(ratios, toWorker, []column{{"memory", "memory"}}), peerPairs, periodicLegend},
		{gloomSection, "Gloom", slices.Concat(rate, latencies("answer", "answer"), submit, latencies("to slave", "to worker"), cost), rows, rowPairs, gloomLegend},
		{dworkSection, "dwork", slices.Concat(rate, latencies("request", "submit"), cost), rows, rowPairs, dworkLegend},
		{nodeSection, "Disbatch", slices.Concat([]column{{"tasks/s", "jobs/s"}}, columns("% of a core"), cost), rows, rowPairs, nodeLegend},
		{acrossSection, "Submitted in one protocol, done in another", byWorker, rows, rowPairs, acrossLegend},
		{payloadSection, "Periodic and redis, workloads of other sizes", slices.Concat(columns("MB/s"), rate, submit, cost), rows, rowPairs, payloadLegend},
		{aloneSection, "Long queues, many queues, many connections",
			slices.Concat(rate, submit, cost, columns("cycles", "pause", "assist", "silent")), rows, rowPairs, aloneLegend},
		{durableSection, "Periodic and its peers, jobs on disk", slices.Concat(rate, submit, cost), ratios, durablePairs, durableLegend},
	}
}

const periodicLegend = `jobs/s      jobs submitted, acknowledged, taken and completed a second, from the first submit to the last arrival
submit      microseconds from a submit to its acknowledgement; in the paced row from the moment the submit was due
to worker   microseconds from the same moment to the job's arrival at a worker. Outside the paced row that is mostly the
            wait in the queue, which producers fill up to 4 jobs for each request in flight (64 at least)
CPU         the server's processor time, user and system, in seconds per million jobs; driver: the load generator's
MB/1M       growth of the server's resident memory over 1,000,000 acknowledged submits (gearmand: 300,000, it needs a
            minute for more), per million jobs. MB later: what is resident when all of them were done; after s: so many
            seconds later, a minute at most
KB/conn     growth of the server's resident memory over 2,000 greeted idle connections, per connection
rows        sync N: N producers and N workers, one connection each with one request in flight; pipe N: 64 in flight;
            paced: an open loop of 1000 jobs/s over 8 connections; drain: 8 pipelined workers alone, on 500,000 queued
            jobs. drain, queued and idle are measured once, the others once a round
jobs        100 bytes, unique names; each was checked to arrive exactly once, and each server to hold none in the end.
            beanstalkd has no names to keep unique; a redis list has none either and no completion: it forgets a job
            when it hands it out. In the pipe rows the completions still in flight at the end are not timed
crc         Treadle in the CRC framing, replies of 2023: a checksum both ways, every completion acknowledged; compared
            with the 2018 framing, which stands above it
`

const gloomLegend = `jobs/s      jobs submitted, acknowledged, done and answered a second, from the first submit to the last answer
answer      microseconds from a submit to the response at its master; submit: to its acknowledgement; to slave: to the
            job's arrival at a slave. With more jobs than slaves that is mostly the wait in the queue
CPU         as above
rows        gloom NxM: one master with N submits not yet answered, M slaves that respond at once; drain N: 8 slaves join
            when N jobs of one master are queued, from the first join to the last answer; 1000 jobs in 50 passes
ratio       of the two drains: jobs/s of 1 or more and CPU of 1 or less mean that a long queue costs nothing per job
jobs        JSON of 100 bytes, unique ids; each was checked to be acknowledged, pushed, and answered with its own answer,
            all exactly once, and no slave to get a job before the acknowledgement that unlocks it
`

const dworkLegend = `jobs/s      tasks created, or stolen and completed, a second
request     microseconds from a Steal, or a Create, to its reply
rows        dwork WxN: W workers, a connection each, that steal N tasks at a time and complete them in one request; create:
            one producer, 16 tasks a request. The tasks wait for nothing; each was checked to be handed out exactly once
8 REQ       8 workers that are processes over libzmq's REQ, as the original's, and steal and complete one task at a time; left
            out where gcc or libzmq3-dev is missing. Their processor time is in no column
always      --sync always: Create and Complete are answered when they are on disk
zmq echo    the limit: the same requests and sockets, and a server that sends back what it gets
`

const acrossLegend = `rows        periodic to gloom: 8 Periodic producers as in pipe 8, 64 Gloom slaves as in gloom 1000x64
values      as in the tables above; each job was checked to arrive exactly once, and the server to hold none in the end
`

const durableLegend = `values      as in the first table
always      synced before it is acknowledged: treadle --sync always, redis appendfsync always, beanstalkd -f0
others      acknowledged before it is synced: treadle (no journal, the reference), --sync interval (50 ms), --sync never,
            redis everysec (1 s), beanstalkd -f50 (50 ms)
rows        as pipe 8, sync 64 and sync 1 above, measured in one round fewer
disk        no server: 2,000 appends of 200 bytes to one file, fdatasync after each; jobs/s are appends a second, submit is
            an append with its fdatasync. The ratio to (disk + treadle) divides by the sum of the two submit p50
targets     synced pipe 8: jobs/s of always 2.5 redis always and 60 beanstalkd -f0, of interval 0.7 treadle; synced sync
            64: of always 1.3 redis always, of interval 0.9 treadle; synced sync 1: submit p50 of always at most 1.2
            (disk + treadle)
`

const nodeLegend = `tasks/s     tasks claimed, run and finished a second, from the first claim to the last end; claims: claimed and begun
% of a core processor time of the node over the time measured; idle: of a node with a queue and no tasks, from tick to tick
CPU         as above, of the node and of the process that runs its commands, without that of the commands; driver: the
            worker's and the database's
rows        function N, exec N: a queue with N threads, whose tasks a Periodic worker does (treadle serve --disbatch), or
            /bin/true (treadle disbatch node). claims: as many threads as tasks, and no worker until all are claimed
database    a double in the load generator, and no MongoDB. Each task was checked to have succeeded, and to have been given
            to the worker, or claimed and ended by the node's own count, exactly once
`

const payloadLegend = `MB/s        bytes of workloads a second, each submitted once and handed out once
rows        8 producers and 8 workers; 64 requests in flight a connection up to 1 KB, 8 of 64 KB, 1 of 1 MB
`

const aloneLegend = `values      as in the first table; growth: the row divided by the one that it names
rows        1000 functions: as pipe 8, over 1000 functions and 100 workers serving 10 each; 1 function: the same workers, all
            serving one. Neighbouring jobs are of different functions and so go to different workers, or, in runs of 64, to
            the same one. N ready, M delayed: as pipe 8, with so many jobs in the server from before the first submit to
            after the last arrival, of the same function; those ready go first. collecting: the server is made to collect its
            garbage again and again meanwhile. 1000 active: as sync 500; of 10000: with so many more connections that are
            silent, which the limit of open files bounds. connect N: N connections are opened and greeted
cycles      of Go's collector meanwhile; pause: the longest, in microseconds; assist: processor time in milliseconds of
            goroutines that were made to help
connect us  the server's processor time to accept and greet one connection, in microseconds
frames      no server: one event loop that sends back what it gets. The same requests, connections and depth as pipe 8;
            jobs/s are echoed frames a second divided by 3 (submit, grab, done)
`

// pair are two samples whose ratios are shown.
type pair struct {
	first, second string // what stands in the first two columns
	a, b          *sample
}

// peerPairs are each Treadle and each peer of the same row; the CRC framing is compared with that of 2018 alone.
func peerPairs(r *report, of section) (list []pair) {
	for i := range r.Medians {
		for j := range r.Medians {
			a, b := &r.Medians[i], &r.Medians[j]
			wanted := !ours(b.Server)
			if a.Server == "treadle crc" {
				wanted = b.Server == "treadle"
			}
			if a.Section == of && b.Section == of && a.Row == b.Row && ours(a.Server) && wanted {
				list = append(list, pair{a.Row, a.Server + " / " + b.Server, compared(*a), compared(*b)})
			}
		}
	}
	return list
}

// compared is a sample without what says nothing beside another server: how long jobs wait in a closed loop says who was
// ahead, the producers or the workers; in an open loop everyone keeps up, or the latencies say so.
func compared(s sample) *sample {
	if s.Rate == 0 {
		s.ToWorker = load.Quantiles{}
	} else {
		s.JobsPerSecond = 0
	}
	return &s
}

// rowPairs are the rows of a section and those that they name.
func rowPairs(r *report, of section) (list []pair) {
	for i := range r.Medians {
		for j := range r.Medians {
			if a, b := &r.Medians[i], &r.Medians[j]; a.Section == of && r.against[a.Row] == b.Row && a.Server == b.Server {
				list = append(list, pair{a.Row, b.Row, a, b})
			}
		}
	}
	return list
}

// durablePairs compares one submit at a time with the disk's own time and a submit in memory, too.
func durablePairs(r *report, of section) (list []pair) {
	servers := map[cell]*sample{}
	var names []string
	for i := range r.Medians {
		if m := &r.Medians[i]; m.Section == of {
			servers[cell{m.Row, m.Server}] = m
			if !slices.Contains(names, m.Row) {
				names = append(names, m.Row)
			}
		}
	}
	for _, row := range names {
		for _, two := range [][2]string{{peer.Always, "redis always"}, {peer.Always, "beanstalkd -f0"}, {"treadle interval", "treadle"}} {
			if a, b := servers[cell{row, two[0]}], servers[cell{row, two[1]}]; a != nil && b != nil {
				list = append(list, pair{row, two[0] + " / " + two[1], a, b})
			}
		}
		always, disk, memory := servers[cell{row, peer.Always}], servers[cell{row, peer.RawDisk}], servers[cell{row, "treadle"}]
		if always != nil && disk != nil && memory != nil {
			list = append(list, pair{row, peer.Always + " / (disk + treadle)", &sample{Submit: load.Quantiles{P50: always.Submit.P50}},
				&sample{Submit: load.Quantiles{P50: disk.Submit.P50 + memory.Submit.P50}}})
		}
	}
	return list
}

// print writes the tables, the ratios and the legends, and what they were measured on.
func (r *report) print(w io.Writer) error {
	var text strings.Builder
	for _, p := range parts() {
		if table := r.part(p); table != "" {
			fmt.Fprintf(&text, "%s\n\n%s", p.title, table)
		}
	}
	if judged := r.targetTable(false); len(judged) > 1 {
		fmt.Fprintf(&text, "Targets\n\n%s\n", align(judged))
	}
	text.WriteString(strings.Join(r.circumstances(), "\n") + "\n")
	_, err := io.WriteString(w, text.String())
	return err
}

// circumstances say what was measured with what, and what was not.
func (r *report) circumstances() []string {
	m := r.Machine
	var versions []string
	for name, version := range r.Versions {
		versions = append(versions, name+" "+version)
	}
	slices.Sort(versions)
	lines := []string{
		"Servers on loopback, jobs in memory except where a table says on disk, started afresh for each measurement",
		fmt.Sprintf("medians of %d rounds, interleaved; %d cores (%s), %d GB, Linux %s, %s %s, shared with the load generator",
			r.Settings.Rounds, m.Cores, m.CPU, m.MemoryGB, m.Kernel, m.Go, m.Arch),
		fmt.Sprintf("%s; %.0f s in all", strings.Join(versions, ", "), r.Took),
	}
	for _, missing := range r.Missing {
		lines = append(lines, "not measured: "+missing)
	}
	return lines
}

// part is one section as text, "" when nothing of it was measured.
func (r *report) part(p part) string {
	sized := columns("MB/1M", "MB later", "after s", "KB/conn", "connect us")
	by := "ratio"
	if p.section != periodicSection && p.section != durableSection {
		by = "divided by"
	}
	flows, sizes, ratios := [][]string{heading("server", p.columns)}, [][]string{heading("server", sized)}, [][]string{heading(by, p.ratios)}
	for i := range r.Medians {
		m := &r.Medians[i]
		switch {
		case m.Section != p.section:
		case m.JobsPerSecond == 0 && m.Section != nodeSection:
			sizes = append(sizes, line(m.Row, m.Server, sized, func(v string) string { return number(values[v](m)) }))
		default:
			flows = append(flows, line(m.Row, m.Server, p.columns, func(v string) string { return number(values[v](m)) }))
		}
	}
	if len(flows) == 1 && len(sizes) == 1 {
		return ""
	}
	for _, pair := range p.pairs(r, p.section) {
		ratios = append(ratios, line(pair.first, pair.second, p.ratios, func(v string) string { return ratio(values[v](pair.a), values[v](pair.b)) }))
	}
	var text strings.Builder
	for _, table := range [][][]string{flows, sizes, ratios} {
		if len(table) > 1 {
			text.WriteString(align(table) + "\n")
		}
	}
	text.WriteString(p.legend)
	if p.section == durableSection {
		text.WriteString("files       in fresh directories, removed afterwards, on a file system of the type " + r.Machine.Disk + "\n")
	}
	return text.String() + "\n"
}
