//go:build invariants

package sim

import (
	"fmt"
	"slices"

	"treadle/codec/dwork"
)

// flight is a request of a dwork worker on its way to the hub.
type flight struct {
	kind     dwork.Type
	location string
	refused  bool // the disk was full when it came
	tasks    []*Job
	payload  []byte
	after    [][]*Job // of each task, what it shall wait for
	sure     []bool   // of each task, when it arrived: the worker held it, see mayHandle
	cyclic   bool     // it would close a cycle
	lives    []int    // of the tasks, when it had come
	added    []edge   // to tasks that were there
	not      []bool   // likewise: it did not
}

// locations are the workers of the simulated graph.
var locations = []string{"w0", "w1", "w2", "w3"}

// task finds a task by its name on the wire.
func (l *Ledger) task(name []byte) *Job {
	var id int
	if _, err := fmt.Sscanf(string(name), "n%d", &id); err != nil || id >= len(l.jobs) || l.jobs[id].by != ofDwork {
		l.trace.Fail("no task is called %q", name)
	}
	return l.jobs[id]
}

// lastTasks are the last n tasks that were created, oldest first.
func (l *Ledger) lastTasks(n int) (all []*Job) {
	for i := len(l.jobs) - 1; i > 0 && len(all) < n; i-- {
		if l.jobs[i].by == ofDwork {
			all = append(all, l.jobs[i])
		}
	}
	slices.Reverse(all)
	return all
}

// send puts a request on its way.
func (s *Simulator) send(f *flight) {
	f.payload = dwork.AppendType(nil, f.kind)
	for i, t := range f.tasks {
		var parts []byte
		if f.after != nil {
			for _, p := range f.after[i] {
				parts = dwork.AppendPred(parts, dwork.Dep{Name: []byte(p.name)})
			}
		}
		f.payload = dwork.AppendTask(f.payload, []byte(t.name), []byte(t.workload()), parts)
	}
	switch f.kind {
	case dwork.Steal:
		f.payload = dwork.AppendN(f.payload, int32(1+s.rng.IntN(3)))
		f.payload = dwork.AppendLocation(f.payload, []byte(f.location))
	case dwork.Create:
	default:
		f.payload = dwork.AppendLocation(f.payload, []byte(f.location))
	}
	s.net.flights = append(s.net.flights, f)
	s.trace.Say("dwork %v %s %v %v", f.kind, f.location, f.tasks, f.after)
}

// graphStep lets a user or a worker of the graph do one thing.
func (s *Simulator) graphStep() {
	location := locations[s.rng.IntN(len(locations))]
	n := s.rng.IntN(24)
	held := s.net.stolen[location]
	switch {
	case n < 6 && s.ledger.live() < mostJobs:
		f := &flight{kind: dwork.Create}
		for range 1 + s.rng.IntN(3) {
			f.tasks, f.after = append(f.tasks, s.ledger.newJob(ofDwork, graphQueue, "")), append(f.after, s.some(s.ledger.lastTasks(6), 3))
		}
		s.send(f)
	case n == 6:
		s.send(&flight{kind: dwork.Exit, location: location})
	case n == 7: // also what others hold
		if tasks := s.some(s.ledger.lastTasks(6), 2); tasks != nil {
			s.send(&flight{kind: dwork.Complete, location: location, tasks: tasks})
		}
	case len(held) > 0 && n < 14:
		k := 1 + s.rng.IntN(len(held))
		s.send(&flight{kind: dwork.Complete, location: location, tasks: slices.Clone(held[:k])})
		s.net.stolen[location] = held[k:]
	case len(held) > 0 && n < 16:
		s.net.stolen[location] = held[1:]
		s.send(&flight{kind: dwork.Transfer, location: location, tasks: held[:1:1], after: [][]*Job{s.some(s.ledger.lastTasks(12), 6)}})
	case n < 20:
		s.send(&flight{kind: dwork.Steal, location: location})
	default:
		f := &flight{kind: dwork.Create} // of tasks that are there, or were
		for _, t := range s.some(s.ledger.lastTasks(10), 5) {
			f.tasks, f.after = append(f.tasks, t), append(f.after, s.some(s.ledger.lastTasks(10), 4))
		}
		if f.tasks != nil && s.ledger.live() < mostJobs {
			s.send(f)
		}
	}
}

// some picks about one in n.
func (s *Simulator) some(all []*Job, n int) (few []*Job) {
	for _, t := range all {
		if s.rng.IntN(n) == 0 {
			few = append(few, t)
		}
	}
	return few
}

// setLocation notes the location that holds a task; "": none.
func (j *Job) setLocation(location string) { j.location, j.kept = location, "" }

// land lets a request arrive at the hub. A request that the ledger cannot predict is dropped instead.
func (s *Simulator) land(f *flight) {
	if s.ledger.stopping && (f.kind == dwork.Steal || f.kind == dwork.Create) {
		s.landLate(f)
		return
	}
	for _, t := range f.tasks {
		held := s.ledger.mayHandle(f, t) && !t.lost
		f.sure, f.not = append(f.sure, held), append(f.not, !held && !t.lost)
	}
	f.refused = f.kind == dwork.Create && s.ledger.full
	if !f.refused && (f.kind == dwork.Create || f.kind == dwork.Transfer && (f.sure[0] || f.tasks[0].lost)) {
		v := s.ledger.predict(f)
		if f.cyclic = v == cyclic; v == unclear || f.cyclic && f.kind == dwork.Transfer && !f.sure[0] {
			s.trace.Say("dwork %v %s %v is lost", f.kind, f.location, f.tasks)
			return
		}
	}
	s.ledger.applyFlight(f)
	for _, t := range f.tasks {
		f.lives = append(f.lives, t.life)
	}
	s.ledger.signs[f.location] = s.server.Now().Mono
	crash := s.crashes
	s.net.hubOwed++
	s.server.Dwork(f.payload, func(reply []byte) {
		if s.crashes == crash {
			s.net.hubOwed--
			s.ledger.hubAnswered(f, reply)
		}
	})
}

// mayHandle reports whether a location may report a task.
func (l *Ledger) mayHandle(f *flight, t *Job) bool {
	if f.kind == dwork.Complete && l.setup.complete == "any" {
		return slices.Contains(locations, t.location)
	}
	return t.location == f.location
}

// landLate lets a request arrive that a stopping hub refuses.
func (s *Simulator) landLate(f *flight) {
	want := dwork.Exit
	if f.kind == dwork.Steal && s.ledger.setup.stopped == "notfound" {
		want = dwork.NotFound
	}
	s.server.Dwork(f.payload, func(reply []byte) {
		var q dwork.Query
		if err := dwork.DecodeReply(reply, &q); err != nil || q.Type != want {
			s.trace.Fail("the server is to stop, and its hub answers %v with %x: %v", f.kind, reply, err)
		}
	})
}

// applyFlight notes what a request does when it arrives.
func (l *Ledger) applyFlight(f *flight) {
	for i, t := range f.tasks {
		switch {
		case f.cyclic && f.kind == dwork.Transfer: // its worker has it still
			l.taskHeard(f.location, t)
		case f.refused || f.cyclic:
		case f.kind == dwork.Create:
			l.extended(f, i)
		case f.kind == dwork.Complete && f.sure[i]:
			l.end(t)
			l.done++
		case f.kind == dwork.Complete && t.lost:
			l.doubt(t)
		case f.kind == dwork.Transfer && f.sure[i]:
			t.setLocation("")
			l.preceded(f, i)
		case f.kind == dwork.Transfer && t.lost:
			t.ghosts = append(t.ghosts, f.after[i]...)
		}
	}
	if f.kind == dwork.Exit {
		delete(l.net.stolen, f.location)
		for _, t := range l.jobs {
			if t.by == ofDwork && t.location == f.location && !t.lost {
				t.setLocation("")
			}
		}
	}
}

// hubAnswered checks an answer of the hub.
func (l *Ledger) hubAnswered(f *flight, reply []byte) {
	var q dwork.Query
	if err := dwork.DecodeReply(reply, &q); err != nil {
		l.trace.Fail("the hub answers %v with %x: %v", f.kind, reply, err)
	}
	l.trace.Say("dwork %v %s is answered %v", f.kind, f.location, q.Type)
	switch {
	case f.refused:
		if q.Type != dwork.Error {
			l.trace.Fail("the disk is full, and the hub answers %v to %v", q.Type, f.kind)
		}
	case f.cyclic != (q.Type == dwork.Error):
		l.trace.Fail("the hub answers %v to %v of %v behind %v; it closes a cycle: %v", q.Type, f.kind, f.tasks, f.after, f.cyclic)
	case f.cyclic:
	case f.kind == dwork.Steal && q.Type == dwork.Transfer:
		for t := range q.Tasks {
			l.taskGiven(f.location, l.task(t.Name))
		}
	case f.kind == dwork.Steal && q.Type == dwork.Exit:
		for _, t := range l.jobs {
			if t.by == ofDwork && t.now == sure {
				l.trace.Fail("%s is told that all is done, and %v is not", f.location, t)
			}
		}
	case f.kind == dwork.Create:
		for i, t := range f.tasks {
			if t.life == f.lives[i] {
				l.acknowledged(t)
			}
		}
		f.lasts()
	case f.kind == dwork.Complete || f.kind == dwork.Transfer:
		l.hubAccepted(f, &q)
	}
}

// hubAccepted checks the answer to a Complete or a Transfer.
func (l *Ledger) hubAccepted(f *flight, q *dwork.Query) {
	var refused []*Job
	for t := range q.Tasks {
		refused = append(refused, l.task(t.Name))
	}
	for i, t := range f.tasks {
		no := q.Type == dwork.NotFound && (f.kind == dwork.Transfer || slices.Contains(refused, t))
		switch {
		case no && f.sure[i]:
			l.trace.Fail("%s held %v, and the hub finds it not", f.location, t)
		case no:
		case f.not[i]:
			l.trace.Fail("%s did not hold %v, and the hub takes its %v", f.location, t, f.kind)
		case f.kind == dwork.Complete && t.life == f.lives[i]:
			l.end(t)
			l.removed([]*Job{t})
		}
	}
	if q.Type == dwork.OK {
		f.lasts()
	}
}

// checkNext checks that a task has no unfinished predecessor and is not put off.
func (l *Ledger) checkNext(t *Job) {
	for _, p := range slices.Concat(t.preds, t.late) {
		if p.now == sure {
			l.trace.Fail("%v is handed out before %v is complete", t, p)
		}
	}
	if l.wall = max(l.wall, l.clock().Wall); t.notBefore > l.wall {
		l.trace.Fail("%v is handed out %d ms early", t, t.notBefore-l.wall)
	}
}

// label is the location of a worker of another protocol, without its number.
func (c *Conn) label() string {
	if c.gloom() {
		return "gloom"
	}
	return "periodic"
}

// taskGiven checks that a task may be given to a worker, and notes it.
func (l *Ledger) taskGiven(location string, t *Job) {
	l.trace.Say("%s is given %v", location, t)
	switch {
	case t.now == gone:
		l.trace.Fail("%v is handed out after its end, or before it came", t)
	case t.location != "" && !t.lost:
		l.trace.Fail("%v is handed to %s and %s holds it", t, location, t.location)
	}
	l.checkNext(t)
	t.now, t.lost, t.holder, t.run = sure, false, nil, new(Run)
	t.setLocation(location)
	l.taskHeard(location, t)
	l.handed++
}

// taskHeard notes that a worker knows that it has a task. It may know that already: after a crash it may be given again
// a task that it has, while its Transfer is on its way, which is refused then.
func (l *Ledger) taskHeard(location string, t *Job) {
	if !slices.Contains(l.net.stolen[location], t) {
		l.net.stolen[location] = append(l.net.stolen[location], t)
	}
}

// silent reports whether the lease of a worker is over.
func (l *Ledger) silent(location string) bool {
	return l.setup.lease > 0 && slices.Contains(locations, location) && l.clock().Mono-l.signs[location] >= l.setup.lease.Milliseconds()
}

// graphExpired notes the tasks of silent workers as ready.
func (l *Ledger) graphExpired() {
	for _, t := range l.jobs {
		if t.by == ofDwork && !t.lost && l.silent(t.location) {
			l.trace.Say("%s is silent, and has %v no more", t.location, t)
			t.setLocation("")
		}
	}
}
