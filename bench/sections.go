package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// part is how a section is shown: a table of the rows that were timed, and what it means.
type part struct {
	section section
	title   string
	columns []column
	legend  string
}

// column is one value of a table.
type column struct {
	heading string
	value   func(s *sample) float64
}

// quantileColumns are three columns of one latency.
func quantileColumns(of string, value func(s *sample) *quantiles) []column {
	return []column{
		{of + " p50", func(s *sample) float64 { return value(s).P50 }},
		{"p99", func(s *sample) float64 { return value(s).P99 }},
		{"p99.9", func(s *sample) float64 { return value(s).P999 }},
	}
}

// parts lists the sections in the order of the tables.
func (r *report) parts() []part {
	rate := []column{{"jobs/s", func(s *sample) float64 { return s.JobsPerSecond }}}
	cost := []column{
		{"CPU", func(s *sample) float64 { return s.ServerCPU }},
		{"driver", func(s *sample) float64 { return s.DriverCPU }},
	}
	toWorker := func(s *sample) *quantiles { return &s.ToWorker }
	request := func(s *sample) *quantiles { return &s.Submit }
	submit := quantileColumns("submit", request)
	answer := quantileColumns("answer", func(s *sample) *quantiles { return &s.Answer })
	byWorker := slices.Concat(rate, submit, quantileColumns("to worker", toWorker), cost)
	return []part{
		{periodicSection, "Periodic and its peers", byWorker, periodicLegend},
		{gloomSection, "Gloom", slices.Concat(rate, answer, submit, quantileColumns("to slave", toWorker), cost), gloomLegend},
		{dworkSection, "dwork", slices.Concat(rate, quantileColumns("request", request), cost), dworkLegend},
		{attackSection, "A client that behaves, under attack", slices.Concat(quantileColumns("request", request), []column{
			{"longest", func(s *sample) float64 { return s.Submit.Max }},
			{"attackers", func(s *sample) float64 { return float64(s.Attackers) }},
			{"attacks/s", func(s *sample) float64 { return s.Attacks }},
		}), attackLegend + r.attackVerdict()},
		{nodeSection, "Disbatch", slices.Concat([]column{{"tasks/s", jobsPerSecond}, {"% of a core", corePercent}}, cost), nodeLegend},
		{acrossSection, "Submitted in one protocol, done in another", byWorker, acrossLegend},
		{payloadSection, "Periodic and redis, workloads of other sizes",
			slices.Concat([]column{{"MB/s", func(s *sample) float64 { return s.JobsPerSecond * float64(s.Payload) / 1e6 }}}, rate, submit, cost), payloadLegend},
		{aloneSection, "Long queues, many queues, many connections", slices.Concat(rate, submit, cost, []column{
			{"cycles", func(s *sample) float64 { return s.Collections.Cycles }},
			{"pause", func(s *sample) float64 { return s.Collections.PauseUS }},
			{"assist", func(s *sample) float64 { return s.Collections.AssistMS }},
			{"silent", func(s *sample) float64 { return float64(s.Connections) }},
		}), aloneLegend},
		{durableSection, "Periodic and its peers, jobs on disk", slices.Concat(rate, submit, cost), durableLegend +
			"files       in fresh directories, removed afterwards, on a file system of the type " + r.Machine.Disk + "\n"},
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

const attackLegend = `rows        connections of another process do the same bad thing again and again, while one client makes a thousand requests,
            with 2 ms between an answer and the next: it asks a hub for its status, a scheduler what is held, or has
            a job done by a worker or slave of its own. The attackers use one processor at most; in the row of the busy machine
            they use that and do nothing else: what is waited for there is the machine
request     microseconds that this one waits; longest: its longest wait
attackers   connections at a time: 10,000 where RLIMIT_NOFILE allows that many, else what it allows
attacks/s   connections that they made, after one that the server closed and those that the attack itself ends
descriptors of no descriptors: the server's limit is taken down to 32 more than it has open, when it runs
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

// print writes the tables, the ratios and the legends.
func (r *report) print(w io.Writer) error {
	var text strings.Builder
	for _, p := range r.parts() {
		r.printPart(&text, p)
	}
	if judged := r.targetTable(false); len(judged) > 1 {
		fmt.Fprintf(&text, "Targets\n\n%s\n", align(judged))
	}
	fmt.Fprintf(&text, "Servers on loopback, jobs in memory except where a table says on disk, started afresh for each measurement\n")
	m := r.Machine
	fmt.Fprintf(&text, "medians of %d rounds, interleaved; %d cores (%s), %d GB, Linux %s, %s %s, shared with the load generator\n",
		r.Settings.Rounds, m.Cores, m.CPU, m.MemoryGB, m.Kernel, m.Go, m.Arch)
	var versions []string
	for name, version := range r.Versions {
		versions = append(versions, name+" "+version)
	}
	slices.Sort(versions)
	fmt.Fprintf(&text, "%s; %.0f s in all\n", strings.Join(versions, ", "), r.Took)
	_, err := io.WriteString(w, text.String())
	return err
}

// printPart writes one section, unless nothing of it was measured.
func (r *report) printPart(text *strings.Builder, p part) {
	heading := []string{"row", "server"}
	for _, c := range p.columns {
		heading = append(heading, c.heading)
	}
	flows := [][]string{heading}
	sizes := [][]string{{"row", "server", "MB/1M", "MB later", "after s", "KB/conn", "connect us"}}
	for i := range r.Medians {
		m := &r.Medians[i]
		switch {
		case m.Section != p.section:
		case m.JobsPerSecond == 0 && m.Section != nodeSection:
			sizes = append(sizes, []string{m.Row, m.Server, number(m.QueuedMB), number(m.RestMB), number(m.RestSeconds), number(m.IdleKB), number(m.ConnectCPU)})
		default:
			cells := []string{m.Row, m.Server}
			for _, c := range p.columns {
				cells = append(cells, number(c.value(m)))
			}
			flows = append(flows, cells)
		}
	}
	tables := [][][]string{flows, sizes, r.rowRatios(p.section)}
	switch p.section {
	case periodicSection:
		tables[2] = r.ratios()
	case durableSection:
		tables[2] = r.durableRatios()
	}
	if len(flows) == 1 && len(sizes) == 1 {
		return
	}
	fmt.Fprintf(text, "%s\n\n", p.title)
	for _, table := range tables {
		if len(table) > 1 {
			text.WriteString(align(table))
			text.WriteByte('\n')
		}
	}
	fmt.Fprintf(text, "%s\n", p.legend)
}
