package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"treadle/loop/client"
	"treadle/loop/journal"
	"treadle/loop/setting"
)

// topView is the frame of treadle top. Its rates are those between the last two observations.
type topView struct {
	last, before client.Overview
	err          error // of the last observation; the frame keeps the one before it
	every        time.Duration
	sort         string
	paused, help bool
}

// observe adds an observation of the server, or its error, unless the frame is paused.
func (v *topView) observe(o client.Overview, err error) {
	if v.paused {
		return
	}
	if v.err = err; err != nil {
		return
	}
	if v.before = v.last; v.before.Started != o.Started { // a counter of another server has no rate
		v.before = o
	}
	v.last = o
}

// sortKeys are the keys that sort the queues.
var sortKeys = map[byte]string{'s': "submitted", 'r': "ready", 'd': "done", 'f': "failed", 'o': "oldest", 'n': "name"}

// handleKey carries out a key. It returns false when the key ends the view.
func (v *topView) handleKey(key byte) bool {
	switch sort := sortKeys[key]; {
	case key == 'q' || key == ctrlC:
		return false
	case sort != "":
		v.sort = sort
	case key == ' ':
		v.paused = !v.paused
	case key == '?':
		v.help = !v.help
	}
	return true
}

// topKeys is the last line of a frame.
const topKeys = "q quit   s r d f o n sort   space hold   ? help"

// topKeyHelp explains the keys.
var topKeyHelp = []string{
	"s  sort by jobs submitted per second", "r  sort by ready jobs, the usual order", "d  sort by jobs done per second", "f  sort by failed jobs that are kept",
	"o  sort by the oldest ready job", "n  sort by name", "space  hold the frame, and go on", "?  show the queues again", "q, Ctrl-C  quit",
}

// text returns a frame. A line has at most width characters and a frame height lines, unless they are 0. The last line
// of a bounded frame has the keys.
func (v *topView) text(width, height int) string {
	lines := v.serverLines()
	switch {
	case v.help && height > 0:
		lines = append(lines, topKeyHelp...)
	default:
		lines = append(lines, v.table()...)
	}
	if height > 0 {
		lines = append(lines[:min(len(lines), max(height-1, 0))], topKeys)
	}
	var b strings.Builder
	for _, line := range lines {
		if width > 0 && utf8.RuneCountInString(line) > width {
			line = string([]rune(line)[:width])
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// serverLines returns the lines about the server, and an empty one.
func (v *topView) serverLines() []string {
	o, all := &v.last, v.total()
	first := fmt.Sprintf("treadle  %s  up %s  %s", time.UnixMilli(o.At).Format(time.TimeOnly),
		setting.FormatDuration(time.Duration((o.At-o.Started)/1000)*time.Second), oneLine(o.Health))
	if v.paused {
		first += "  [held]"
	}
	if v.err != nil {
		first += "  [" + oneLine(v.err.Error()) + "]"
	}
	memory := "memory   no limit"
	if o.MemoryLimit > 0 {
		memory = fmt.Sprintf("memory   %v of %v", journal.Size(o.Memory), journal.Size(o.MemoryLimit))
	}
	journaled := "journal  none: jobs are in memory alone"
	if j := o.Journal; j != nil {
		journaled = fmt.Sprintf("journal  %v, %v free, %s not committed", journal.Size(j.Bytes), journal.Size(j.Free), counted(j.Unacknowledged, "change"))
	}
	return []string{
		first,
		fmt.Sprintf("jobs     %d ready  %d running  %d delayed  %d locked  %d waiting  %d failed  %d done", all.Ready, all.Running,
			all.Delayed, all.Locked, all.Waiting, all.Failed, all.Done),
		fmt.Sprintf("rates    %s submitted  %s done  %s failed runs, a second", v.rate(v.before.Submitted, o.Submitted),
			v.rate(v.before.Done, o.Done), v.rate(v.before.Failed, o.Failed)),
		journaled,
		memory,
		"",
	}
}

// total returns the sum of all queues.
func (v *topView) total() client.QueueState {
	sum := v.last.Rest
	for i := range v.last.Queues {
		q := &v.last.Queues[i]
		sum.Ready += q.Ready
		sum.Running += q.Running
		sum.Delayed += q.Delayed
		sum.Locked += q.Locked
		sum.Waiting += q.Waiting
		sum.Failed += q.Failed
		sum.Done += q.Done
	}
	return sum
}

// perSecond returns how fast a counter has grown between the last two observations.
func (v *topView) perSecond(before, after uint64) float64 {
	if v.last.At <= v.before.At || after < before {
		return 0
	}
	return float64(after-before) * 1000 / float64(v.last.At-v.before.At)
}

// rate formats the growth per second, with one decimal below 10.
func (v *topView) rate(before, after uint64) string {
	if r := v.perSecond(before, after); r > 0 && r < 10 {
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return strconv.FormatFloat(v.perSecond(before, after), 'f', 0, 64)
}

// queueRow is a queue of a frame, with its rates.
type queueRow struct {
	client.QueueState
	name            string
	submitted, done float64
	cells           []string
}

// row returns the line of a queue. before is the queue at the previous observation, or q itself.
func (v *topView) row(name string, q, before *client.QueueState) queueRow {
	r := queueRow{QueueState: *q, name: name, submitted: v.perSecond(before.SubmittedTotal, q.SubmittedTotal), done: v.perSecond(before.DoneTotal, q.DoneTotal)}
	oldest := "-"
	if q.Ready > 0 {
		oldest = setting.FormatDuration(time.Duration(q.Oldest) * time.Second)
	}
	r.cells = []string{name}
	for _, n := range []int{q.Ready, q.Running, q.Delayed, q.Failed} {
		r.cells = append(r.cells, strconv.Itoa(n))
	}
	r.cells = append(r.cells, oldest, strconv.Itoa(q.Workers), strconv.Itoa(q.Busy),
		v.rate(before.SubmittedTotal, q.SubmittedTotal), v.rate(before.DoneTotal, q.DoneTotal), dash(q.Paused))
	return r
}

// table returns the lines of the queues, sorted, and the line of all others.
func (v *topView) table() []string {
	before := make(map[string]*client.QueueState)
	for i := range v.before.Queues {
		q := &v.before.Queues[i]
		before[nameOfQueue(q)] = q
	}
	var rows []queueRow
	for i := range v.last.Queues {
		q := &v.last.Queues[i]
		name := nameOfQueue(q)
		rows = append(rows, v.row(printable(name), q, cmp.Or(before[name], q)))
	}
	slices.SortFunc(rows, func(a, b queueRow) int { return cmp.Or(v.compare(&a, &b), cmp.Compare(a.name, b.name)) })
	if n := v.last.RestQueues; n > 0 {
		rows = append(rows, v.row(fmt.Sprintf("(%d more)", n), &v.last.Rest, &v.before.Rest))
	}
	lines := [][]string{{"QUEUE", "READY", "RUNNING", "DELAYED", "FAILED", "OLDEST", "WORKERS", "BUSY", "SUBMITTED/S", "DONE/S", "PAUSED"}}
	for i := range rows {
		lines = append(lines, rows[i].cells)
	}
	var b strings.Builder
	_ = align(&b, lines, 1) // a strings.Builder takes everything
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func nameOfQueue(q *client.QueueState) string { return q.Queue + string(q.QueueBytes) }

// compare orders two rows by the sort of the view, the largest first.
func (v *topView) compare(a, b *queueRow) int {
	switch v.sort {
	case "submitted":
		return cmp.Compare(b.submitted, a.submitted)
	case "done":
		return cmp.Compare(b.done, a.done)
	case "failed":
		return cmp.Compare(b.Failed, a.Failed)
	case "oldest":
		return cmp.Compare(b.Oldest, a.Oldest)
	case "ready":
		return cmp.Compare(b.Ready, a.Ready)
	default: // by name, as all rows of equal value
		return 0
	}
}
