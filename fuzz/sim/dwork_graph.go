//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"strings"

	"treadle/codec/dwork"
)

// This file changes graphs that exist: it adds predecessors, tries cycles and uses freed names again.

// edge is a predecessor that a task got after it was made.
type edge struct {
	from, to *Job
	life     int // of to
}

// verdict is what a request must come to.
type verdict int

const (
	unclear  verdict = iota // the answer depends on what a crash has left
	accepted                // the graph allows the request
	cyclic                  // the whole request is refused
)

// predict says what a request must come to, by the rules of the hub.
func (l *Ledger) predict(call *dworkCall) verdict {
	made := map[*Job]bool{}
	more, vague := map[*Job][]*Job{}, map[*Job][]*Job{}
	for i, t := range call.tasks {
		if t.inServer != sure && !made[t] {
			if t.inServer == maybe || t.onDisk != no {
				return unclear
			}
			made[t] = true
		}
		for _, p := range call.after[i] {
			switch {
			case p == t:
				return cyclic
			case p.inServer == no && !made[p]:
				continue
			case p.inServer == sure || made[p]:
				if isBehind(p, t, more, nil) {
					return cyclic
				}
				more[t] = append(more[t], p)
			default:
				vague[t] = append(vague[t], p)
			}
			if isBehind(p, t, more, vague) {
				return unclear
			}
		}
	}
	return accepted
}

// isBehind reports whether from waits for to, directly or through other tasks: for sure or, with vague, perhaps. more
// and vague are the predecessors that the request adds.
func isBehind(from, to *Job, more, vague map[*Job][]*Job) bool {
	seen, all := map[*Job]bool{}, []*Job{from}
	for len(all) > 0 {
		t := all[len(all)-1]
		if t == to {
			return true
		}
		all = all[:len(all)-1]
		if seen[t] || t.inServer == maybe && vague == nil {
			continue
		}
		seen[t] = true
		var there []*Job
		if t.inServer != no { // a task that has gone is created anew, without its earlier predecessors
			there = slices.Concat(t.preds, t.latePreds)
			if vague != nil {
				there = append(there, t.maybeLostPreds...)
			}
		}
		if vague != nil {
			there = append(there, vague[t]...)
		}
		all = append(append(all, more[t]...), slices.DeleteFunc(there, func(p *Job) bool { return p.inServer == no })...)
	}
	return false
}

// extended notes that a task is created, or gets predecessors if it exists.
func (l *Ledger) extended(call *dworkCall, i int) {
	t := call.tasks[i]
	if t.inServer == sure && !slices.Contains(call.tasks[:i], t) {
		l.preceded(call, i)
		return
	}
	if t.inServer != sure {
		for _, other := range l.jobs { // tasks that waited for the earlier one no longer wait
			for _, preds := range []*[]*Job{&other.preds, &other.latePreds, &other.maybeLostPreds} {
				*preds = slices.DeleteFunc(*preds, func(p *Job) bool { return p == t })
			}
		}
		l.leasesCut(t)
		t.life++
		t.inServer, t.onDisk, t.turn, t.group, t.holderUnknown = sure, maybe, l.turn, l.group(), false
		t.setLocation("")
		t.preds, t.latePreds, t.maybeLostPreds = nil, nil, nil
	}
	t.preds = append(t.preds, unfinished(call.after[i])...)
	t.maybeLostPreds = append(t.maybeLostPreds, uncertain(call.after[i])...)
}

// preceded notes predecessors of a task that exists.
func (l *Ledger) preceded(call *dworkCall, i int) {
	t := call.tasks[i]
	for _, p := range unfinished(call.after[i]) {
		if !slices.Contains(t.preds, p) {
			t.latePreds = append(t.latePreds, p)
			call.added = append(call.added, edge{p, t, t.life})
		}
	}
	t.maybeLostPreds = append(t.maybeLostPreds, uncertain(call.after[i])...)
}

// addedCommitted notes that the predecessors which a request added are on disk.
func (call *dworkCall) addedCommitted() {
	for _, e := range call.added {
		if i := slices.Index(e.to.latePreds, e.from); i >= 0 && e.to.life == e.life {
			e.to.latePreds = slices.Delete(e.to.latePreds, i, i+1)
			e.to.preds = append(e.to.preds, e.from)
		}
	}
}

// unfinished leaves out what counts as done.
func unfinished(all []*Job) []*Job {
	return slices.DeleteFunc(slices.Clone(all), func(p *Job) bool { return p.inServer != sure })
}

// uncertain are the tasks that may be done, or may not.
func uncertain(all []*Job) []*Job {
	return slices.DeleteFunc(slices.Clone(all), func(p *Job) bool { return p.inServer != maybe })
}

// lookup asks the hub for a task, and ends all doubt about it.
func (s *Simulator) lookup(t *Job) {
	s.server.Dwork(dwork.AppendName(dwork.AppendType(nil, dwork.Lookup), []byte(t.name)), func(b []byte) {
		var q dwork.Query
		if err := dwork.DecodeReply(b, &q); err != nil {
			s.trace.Failf("a lookup is answered with %x: %v", b, err)
		}
		there := q.Type == dwork.OK
		var before []*Job
		for task := range q.Tasks {
			for d := range task.Pred {
				before = append(before, s.ledger.task(d.Name))
			}
			for e := range task.Log {
				there = there && e.State != dwork.Done // it is remembered
			}
		}
		if there && t.inServer == no || !there && t.inServer == sure {
			s.trace.Failf("a lookup of %v: got %v, and the ledger is sure of the opposite", t, q.Type)
		}
		if !there {
			t.inServer = no
			return
		}
		t.inServer = sure
		s.ledger.checkPredecessors(t, before)
		if by, _, _ := strings.Cut(string(q.Location), ":"); by != t.location && !t.holderUnknown && (t.location != "" || !s.ledger.waitsUnread(t)) {
			s.trace.Failf("the holder of %v: want %q, got %q", t, t.location, by)
		}
	})
}

// checkPredecessors checks the predecessors that the hub shows.
func (l *Ledger) checkPredecessors(t *Job, before []*Job) {
	known := slices.Concat(t.preds, t.latePreds)
	for _, p := range known {
		if p.inServer == sure && !slices.Contains(before, p) {
			l.trace.Failf("a lookup of %v: got no predecessor %v, want it", t, p)
		}
	}
	for _, p := range before {
		switch {
		case slices.Contains(known, p):
		case slices.Contains(t.maybeLostPreds, p):
			t.preds = append(t.preds, p)
		default:
			l.trace.Failf("a lookup of %v: got the predecessor %v, which no request has named", t, p)
		}
	}
	t.maybeLostPreds = nil
}

// auditGraph compares the hub's count of tasks. No task may be in doubt.
func (s *Simulator) auditGraph() {
	want := 0
	for _, t := range s.ledger.jobs {
		if t.by == ofDwork && t.inServer == sure {
			want++
		}
	}
	s.server.Dwork(dwork.AppendType(nil, dwork.OK), func(b []byte) {
		var q dwork.Query
		active, ready := 0, 0
		if err := dwork.DecodeReply(b, &q); err != nil {
			s.trace.Failf("the status of the hub: got %x: %v", b, err)
		}
		if _, err := fmt.Sscanf(string(q.Name), "dhub: %d active tasks, %d ready.", &active, &ready); err != nil || active != want || int(q.N) != ready {
			s.trace.Failf("the status of the hub: got %[2]q and %[3]d ready, want %[1]d tasks", want, q.Name, q.N)
		}
	})
}
