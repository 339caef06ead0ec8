package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// target is one bound that a run is to keep, and how its figure follows from the medians.
type target struct {
	row    string // what is measured
	figure string // which value of it
	most   bool   // the figure is to be at most the bound; else at least
	bound  float64
	goal   float64 // a better bound, to be told apart; 0: none
	of     func(r *report) float64
}

// value reads one value of a sample.
type value func(s *sample) float64

func jobsPerSecond(s *sample) float64 { return s.JobsPerSecond }
func serverCPU(s *sample) float64     { return s.ServerCPU }
func submitP99(s *sample) float64     { return s.Submit.P99 }
func submitP999(s *sample) float64    { return s.Submit.P999 }
func toWorkerP99(s *sample) float64   { return s.ToWorker.P99 }
func toWorkerP999(s *sample) float64  { return s.ToWorker.P999 }
func memoryMB(s *sample) float64      { return s.QueuedMB }
func restMB(s *sample) float64        { return s.RestMB }
func idleKB(s *sample) float64        { return s.IdleKB }
func connectCPU(s *sample) float64    { return s.ConnectCPU }
func corePercent(s *sample) float64   { return s.CorePercent }

// peerNames are the servers that keep their jobs in memory, of which the best counts.
var peerNames = []string{"gearmand", "redis", "beanstalkd"}

// at is a value of one row and server, 0 when it was not measured.
func (r *report) at(row, server string, v value) float64 {
	for i := range r.Medians {
		if m := &r.Medians[i]; m.Row == row && m.Server == server {
			return v(m)
		}
	}
	return 0
}

// best is the value of the best peer that was measured: the largest rate, the smallest of everything else.
func (r *report) best(row string, v value, largest bool) float64 {
	best := 0.0
	for _, peer := range peerNames {
		if got := r.at(row, peer, v); got > 0 && (best == 0 || (got > best) == largest) {
			best = got
		}
	}
	return best
}

// divide is 0 when either was not measured.
func divide(a, b float64) float64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a / b
}

// over divides the values of two servers in a row.
func over(row, server, other string, v value) func(r *report) float64 {
	return func(r *report) float64 { return divide(r.at(row, server, v), r.at(row, other, v)) }
}

// overBest divides by the best peer.
func overBest(row, server string, v value, largest bool) func(r *report) float64 {
	return func(r *report) float64 { return divide(r.at(row, server, v), r.best(row, v, largest)) }
}

// overRow divides the values of Treadle in two rows.
func overRow(row, other string, v value) func(r *report) float64 {
	return func(r *report) float64 { return divide(r.at(row, "treadle", v), r.at(other, "treadle", v)) }
}

// just is a value by itself.
func just(row, server string, v value) func(r *report) float64 {
	return func(r *report) float64 { return r.at(row, server, v) }
}

// The rows as the table of the targets names them.
const (
	pipeTarget    = "Periodic, pipelined 64, 8 connections"
	syncTarget    = "Periodic, sync, 64 connections"
	pacedTarget   = "paced 1000 jobs/s"
	manyTarget    = "1000 functions, workers serving 10 each"
	deepTarget    = "pipelined with 1M ready and 10M delayed jobs behind"
	syncedTarget  = "synced (sync=always), pipelined 8"
	payloadTarget = "payloads"
	nodeTarget    = "Disbatch node, on a double of a database"
	growthTarget  = "growth"
)

// targets lists what a run is judged by.
func targets() []target {
	return append([]target{
		{row: pipeTarget, figure: "jobs/s of gearmand -t 0", bound: 2, of: over("pipe 8", "treadle", "gearmand", jobsPerSecond)},
		{row: pipeTarget, figure: "jobs/s of redis lists", bound: 3.5, of: over("pipe 8", "treadle", "redis", jobsPerSecond)},
		{row: pipeTarget, figure: "jobs/s of beanstalkd", bound: 40, of: over("pipe 8", "treadle", "beanstalkd", jobsPerSecond)},
		{row: pipeTarget, figure: "server CPU s per 1M jobs", most: true, bound: 0.45, of: just("pipe 8", "treadle", serverCPU)},
		{row: syncTarget, figure: "jobs/s of the best peer, TCP", bound: 1, of: overBest("sync 64", "treadle", jobsPerSecond, true)},
		{row: syncTarget, figure: "jobs/s of the best peer, two loops", bound: 1.2, of: overBest("sync 64", "treadle 2 loops", jobsPerSecond, true)},
		{row: syncTarget, figure: "jobs/s of the best peer, unix socket", bound: 1.8, of: overBest("sync 64", "treadle unix", jobsPerSecond, true)},
		{row: syncTarget, figure: "server CPU of gearmand's, TCP", most: true, bound: 1, of: over("sync 64", "treadle", "gearmand", serverCPU)},
		{row: syncTarget, figure: "server CPU s per 1M jobs, unix socket", most: true, bound: 8, of: just("sync 64", "treadle unix", serverCPU)},
		{row: manyTarget, figure: "jobs/s of one function, in runs of 64", bound: 0.7, of: overRow("1000 functions, runs of 64", "1 function", jobsPerSecond)},
		{row: manyTarget, figure: "jobs/s of one function, each job to another worker", bound: 0.7, of: overRow("1000 functions", "1 function", jobsPerSecond)},
		{row: pacedTarget, figure: "submit p99 of the best peer", most: true, bound: 1, of: overBest(pacedRow, "treadle", submitP99, false)},
		{row: pacedTarget, figure: "submit to worker p99 of the best peer", most: true, bound: 1, of: overBest(pacedRow, "treadle", toWorkerP99, false)},
		{row: pacedTarget, figure: "submit p99.9 of the best peer", most: true, bound: 1.2, of: overBest(pacedRow, "treadle", submitP999, false)},
		{row: pacedTarget, figure: "submit to worker p99.9 of the best peer", most: true, bound: 1.2, of: overBest(pacedRow, "treadle", toWorkerP999, false)},
		{row: deepTarget, figure: "jobs/s of the empty server", bound: 0.5, of: overRow(deepRow, "pipe 8", jobsPerSecond)},
		{row: deepTarget, figure: "submit p99.9 in us", most: true, bound: 3000, of: just(deepRow, "treadle", submitP999)},
	}, moreTargets()...)
}

// moreTargets are those of memory, disk, other protocols and growth.
func moreTargets() []target {
	return []target{
		{row: "drain of 500k queued jobs", figure: "jobs/s of gearmand", bound: 20, of: over("drain", "treadle", "gearmand", jobsPerSecond)},
		{row: "drain of 500k queued jobs", figure: "jobs/s of beanstalkd", bound: 10, of: over("drain", "treadle", "beanstalkd", jobsPerSecond)},
		{row: "1M queued 100-byte jobs", figure: "MB", most: true, bound: 220, goal: 185, of: just("queued", "treadle", memoryMB)},
		{row: "1M queued 100-byte jobs", figure: "MB resident within a minute after the drain", most: true, bound: restLeast, of: just("queued", "treadle", restMB)},
		{row: "idle connection", figure: "KB", most: true, bound: 1.5, of: just("idle", "treadle", idleKB)},
		{row: "10,000 connections, 1000 of them active", figure: "submit p99 of the 1000 alone", most: true, bound: 1.2,
			of: overRow("1000 of 10000 active", "1000 active", submitP99)},
		{row: syncedTarget, figure: "jobs/s of redis always", bound: 2.5, goal: 5, of: over("synced pipe 8", "treadle always", "redis always", jobsPerSecond)},
		{row: syncedTarget, figure: "jobs/s of beanstalkd -f0", bound: 60, of: over("synced pipe 8", "treadle always", "beanstalkd -f0", jobsPerSecond)},
		{row: "synced, sync 64", figure: "jobs/s of redis always", bound: 1.3, goal: 1.5, of: over("synced sync 64", "treadle always", "redis always", jobsPerSecond)},
		{row: "Gloom 64x8", figure: "jobs/s", bound: 100e3, of: just("gloom 64x8", "treadle", jobsPerSecond)},
		{row: "dwork n=16 with 8 workers", figure: "tasks/s", bound: 300e3, of: just("dwork 8x16", "treadle", jobsPerSecond)},
		{row: nodeTarget, figure: "tasks/s of a function, 20 threads", bound: 2000, of: just("disbatch function 20", "treadle", jobsPerSecond)},
		{row: nodeTarget, figure: "tasks/s of a command, 20 threads", bound: 150, of: just("disbatch exec 20", "treadle", jobsPerSecond)},
		{row: nodeTarget, figure: "% of a core, idle", most: true, bound: 1, of: just("disbatch idle", "treadle", corePercent)},
		{row: "cross-protocol (Periodic submit, Gloom slave)", figure: "jobs/s of the slower alone", bound: 0.5, of: func(r *report) float64 {
			return divide(r.at("periodic to gloom", "treadle", jobsPerSecond),
				min(r.at("pipe 8", "treadle", jobsPerSecond), r.at("gloom 1000x64", "treadle", jobsPerSecond)))
		}},
		{row: payloadTarget, figure: "bytes/s of redis, 64 KB", bound: 0.7, of: over("64 KB", "treadle", "redis", jobsPerSecond)},
		{row: payloadTarget, figure: "bytes/s of redis, 1 MB", bound: 0.7, of: over("1 MB", "treadle", "redis", jobsPerSecond)},
		{row: growthTarget, figure: "server CPU per job, 10M queued, of that with 10k", most: true, bound: 2.5, of: overRow("10M ready", "10k ready", serverCPU)},
		{row: growthTarget, figure: "server CPU per connect, 10,000, of that of 100", most: true, bound: 1.2, of: overRow("connect 10000", "connect 100", connectCPU)},
		{row: growthTarget, figure: "KB per connection, 10,000, of those of 1000", most: true, bound: 1.2, of: overRow("connect 10000", "connect 1000", idleKB)},
		{row: "share of the limit", figure: "jobs/s of frames that one gnet loop echoes, by 3", bound: 0.5, of: func(r *report) float64 {
			return divide(r.at("pipe 8", "treadle", jobsPerSecond), r.at("frames echoed", frameEcho, jobsPerSecond))
		}},
		{row: "garbage collection with 10M jobs queued", figure: "submit p99.9, collecting all the time, of that without", most: true, bound: 1.2,
			of: overRow("10M ready, collecting", "10M ready", submitP999)},
	}
}

// verdict says what became of a target.
func (t target) verdict(got float64) string {
	keeps := func(bound float64) bool { return got >= bound && !t.most || got <= bound && t.most }
	switch {
	case got == 0:
		return "not measured"
	case t.goal != 0 && keeps(t.goal):
		return "reached, and the goal"
	case keeps(t.bound):
		return "reached"
	}
	return "not reached"
}

// wanted is the bound in words.
func (t target) wanted() string {
	word := "at least "
	if t.most {
		word = "at most "
	}
	text := word + number(t.bound)
	if t.goal != 0 {
		text += ", goal " + number(t.goal)
	}
	return text
}

// targetTable judges a run; what was not measured is left out unless all is asked for.
func (r *report) targetTable(all bool) [][]string {
	table := [][]string{{"target", "figure", "wanted", "got", ""}}
	for _, t := range targets() {
		got := t.of(r)
		if got == 0 && !all {
			continue
		}
		table = append(table, []string{t.row, t.figure, t.wanted(), number(got), t.verdict(got)})
	}
	return table
}

// printTargets writes the table of a saved run in Markdown, as bench/NOTES.md has it.
func printTargets(path string, w io.Writer) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the results: %w", err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("cannot read the results in %s: %w", path, err)
	}
	_, err = io.WriteString(w, markdown(r.targetTable(true)))
	return err
}

// markdown writes a table whose first line is its heading. What stands in the line above is not repeated.
func markdown(table [][]string) string {
	var text strings.Builder
	last := ""
	for i, cells := range table {
		first := cells[0]
		if first == last {
			first = ""
		}
		last = cells[0]
		fmt.Fprintf(&text, "| %s | %s |\n", first, strings.Join(cells[1:], " | "))
		if i == 0 {
			text.WriteString(strings.Repeat("|---", len(cells)) + "|\n")
		}
	}
	return text.String()
}
