//go:build invariants

package fuzz

import (
	"fmt"
	"slices"

	"treadle/codec/dwork"
	"treadle/loop"
)

// flight is a request of a dwork worker on its way to the hub.
type flight struct {
	kind     dwork.Type
	location string
	refused  bool // the disk was full when it came
	tasks    []*simJob
	payload  []byte
	after    [][]*simJob // of each task, what it shall wait for
	sure     []bool      // of each task, when it arrived: the worker held it, see mayHandle
	cyclic   bool        // it would close a cycle
	lives    []int       // of the tasks, when it had come
	added    []edge      // to tasks that were there
	not      []bool      // likewise: it did not
}

// locations are the workers of the simulation's graph.
var locations = []string{"w0", "w1", "w2", "w3"}

// task finds a task by its name on the wire.
func (s *sim) task(name []byte) *simJob {
	var id int
	if _, err := fmt.Sscanf(string(name), "n%d", &id); err != nil || id >= len(s.jobs) || s.jobs[id].by != ofDwork {
		s.fail("no task is called %q", name)
	}
	return s.jobs[id]
}

// tasksOf lists the last tasks that were made, n at most, oldest first.
func (s *sim) lastTasks(n int) (all []*simJob) {
	for i := len(s.jobs) - 1; i > 0 && len(all) < n; i-- {
		if s.jobs[i].by == ofDwork {
			all = append(all, s.jobs[i])
		}
	}
	slices.Reverse(all)
	return all
}

// send puts a request on its way.
func (s *sim) send(f *flight) {
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
	s.flights = append(s.flights, f)
	s.say("dwork %v %s %v %v", f.kind, f.location, f.tasks, f.after)
}

// graphStep is something that a user or a worker of the graph does.
func (s *sim) graphStep() {
	location := locations[s.rng.IntN(len(locations))]
	n := s.rng.IntN(24)
	held := s.stolen[location]
	switch {
	case n < 6 && s.live() < mostJobs:
		f := &flight{kind: dwork.Create}
		for range 1 + s.rng.IntN(3) {
			f.tasks, f.after = append(f.tasks, s.job(ofDwork, graph, "")), append(f.after, s.some(s.lastTasks(6), 3))
		}
		s.send(f)
	case n == 6:
		s.send(&flight{kind: dwork.Exit, location: location})
	case n == 7: // also what others hold
		if tasks := s.some(s.lastTasks(6), 2); tasks != nil {
			s.send(&flight{kind: dwork.Complete, location: location, tasks: tasks})
		}
	case len(held) > 0 && n < 14:
		k := 1 + s.rng.IntN(len(held))
		s.send(&flight{kind: dwork.Complete, location: location, tasks: slices.Clone(held[:k])})
		s.stolen[location] = held[k:]
	case len(held) > 0 && n < 16:
		s.stolen[location] = held[1:]
		s.send(&flight{kind: dwork.Transfer, location: location, tasks: held[:1:1], after: [][]*simJob{s.some(s.lastTasks(12), 6)}})
	case n < 20:
		s.send(&flight{kind: dwork.Steal, location: location})
	default:
		f := &flight{kind: dwork.Create} // of tasks that are there, or were
		for _, t := range s.some(s.lastTasks(10), 5) {
			f.tasks, f.after = append(f.tasks, t), append(f.after, s.some(s.lastTasks(10), 4))
		}
		if f.tasks != nil && s.live() < mostJobs {
			s.send(f)
		}
	}
}

// some are about one in n of all.
func (s *sim) some(all []*simJob, n int) (few []*simJob) {
	for _, t := range all {
		if s.rng.IntN(n) == 0 {
			few = append(few, t)
		}
	}
	return few
}

// moves has a task be a location's, "": nobody's.
func (j *simJob) moves(location string) { j.location, j.kept = location, "" }

// land has one request arrive at the hub. One whose answer nobody can know is lost on its way.
func (s *sim) land(f *flight) {
	if s.stopping && (f.kind == dwork.Steal || f.kind == dwork.Create) {
		s.landsLate(f)
		return
	}
	for _, t := range f.tasks {
		held := s.mayHandle(f, t) && !t.lost
		f.sure, f.not = append(f.sure, held), append(f.not, !held && !t.lost)
	}
	f.refused = f.kind == dwork.Create && s.full
	if !f.refused && (f.kind == dwork.Create || f.kind == dwork.Transfer && (f.sure[0] || f.tasks[0].lost)) {
		v := s.judge(f)
		if f.cyclic = v == cyclic; v == unclear || f.cyclic && f.kind == dwork.Transfer && !f.sure[0] {
			s.say("dwork %v %s %v is lost", f.kind, f.location, f.tasks)
			return
		}
	}
	s.comesTrue(f)
	for _, t := range f.tasks {
		f.lives = append(f.lives, t.life)
	}
	s.signs[f.location] = s.server.Now().Mono
	crash := s.crashes
	s.hubOwed++
	s.server.Dwork(f.payload, func(reply []byte) {
		if s.crashes == crash {
			s.hubOwed--
			s.hubSays(f, reply)
		}
	})
}

// mayHandle says whether a request's location may do with a task what the request says.
func (s *sim) mayHandle(f *flight, t *simJob) bool {
	if f.kind == dwork.Complete && s.complete == loop.DworkAny {
		return slices.Contains(locations, t.location)
	}
	return t.location == f.location
}

// landsLate is land when the hub is to stop, for what it does no more.
func (s *sim) landsLate(f *flight) {
	want := dwork.Exit
	if f.kind == dwork.Steal && s.stopped == loop.DworkNotFound {
		want = dwork.NotFound
	}
	s.server.Dwork(f.payload, func(reply []byte) {
		var q dwork.Query
		if err := dwork.DecodeReply(reply, &q); err != nil || q.Type != want {
			s.fail("the server is to stop, and its hub answers %v with %x: %v", f.kind, reply, err)
		}
	})
}

// comesTrue is what a request does that arrives.
func (s *sim) comesTrue(f *flight) {
	for i, t := range f.tasks {
		switch {
		case f.cyclic && f.kind == dwork.Transfer: // its worker has it still
			s.hasStolen(f.location, t)
		case f.refused || f.cyclic:
		case f.kind == dwork.Create:
			s.extends(f, i)
		case f.kind == dwork.Complete && f.sure[i]:
			s.end(t)
			s.done++
		case f.kind == dwork.Complete && t.lost:
			s.doubt(t)
		case f.kind == dwork.Transfer && f.sure[i]:
			t.moves("")
			s.precede(f, i)
		case f.kind == dwork.Transfer && t.lost:
			t.ghosts = append(t.ghosts, f.after[i]...)
		}
	}
	if f.kind == dwork.Exit {
		delete(s.stolen, f.location)
		for _, t := range s.jobs {
			if t.by == ofDwork && t.location == f.location && !t.lost {
				t.moves("")
			}
		}
	}
}

// hubSays checks an answer of the hub.
func (s *sim) hubSays(f *flight, reply []byte) {
	var q dwork.Query
	if err := dwork.DecodeReply(reply, &q); err != nil {
		s.fail("the hub answers %v with %x: %v", f.kind, reply, err)
	}
	s.say("dwork %v %s is answered %v", f.kind, f.location, q.Type)
	switch {
	case f.refused:
		if q.Type != dwork.Error {
			s.fail("the disk is full, and the hub answers %v to %v", q.Type, f.kind)
		}
	case f.cyclic != (q.Type == dwork.Error):
		s.fail("the hub answers %v to %v of %v behind %v; it closes a cycle: %v", q.Type, f.kind, f.tasks, f.after, f.cyclic)
	case f.cyclic:
	case f.kind == dwork.Steal && q.Type == dwork.Transfer:
		for t := range q.Tasks {
			s.steals(f.location, s.task(t.Name))
		}
	case f.kind == dwork.Steal && q.Type == dwork.Exit:
		for _, t := range s.jobs {
			if t.by == ofDwork && t.now == sure {
				s.fail("%s is told that all is done, and %v is not", f.location, t)
			}
		}
	case f.kind == dwork.Create:
		for i, t := range f.tasks {
			if t.life == f.lives[i] {
				s.acknowledged(t)
			}
		}
		f.lasts()
	case f.kind == dwork.Complete || f.kind == dwork.Transfer:
		s.hubTook(f, &q)
	}
}

// hubTook checks the answer to a Complete or a Transfer.
func (s *sim) hubTook(f *flight, q *dwork.Query) {
	var refused []*simJob
	for t := range q.Tasks {
		refused = append(refused, s.task(t.Name))
	}
	for i, t := range f.tasks {
		no := q.Type == dwork.NotFound && (f.kind == dwork.Transfer || slices.Contains(refused, t))
		switch {
		case no && f.sure[i]:
			s.fail("%s held %v, and the hub finds it not", f.location, t)
		case no:
		case f.not[i]:
			s.fail("%s did not hold %v, and the hub takes its %v", f.location, t, f.kind)
		case f.kind == dwork.Complete && t.life == f.lives[i]:
			s.end(t)
			s.removed([]*simJob{t})
		}
	}
	if q.Type == dwork.OK {
		f.lasts()
	}
}

// isNext checks that a task waits for no other, and not until later.
func (s *sim) isNext(t *simJob) {
	for _, p := range slices.Concat(t.preds, t.late) {
		if p.now == sure {
			s.fail("%v is handed out before %v is complete", t, p)
		}
	}
	if s.wall = max(s.wall, s.server.Now().Wall); t.notBefore > s.wall {
		s.fail("%v is handed out %d ms early", t, t.notBefore-s.wall)
	}
}

// label is what a worker of another protocol has for a location, without its number.
func (c *simConn) label() string {
	if c.gloom() {
		return "gloom"
	}
	return "periodic"
}

// steals checks that a worker may be given a task, and notes it.
func (s *sim) steals(location string, t *simJob) {
	s.say("%s is given %v", location, t)
	switch {
	case t.now == gone:
		s.fail("%v is handed out after its end, or before it came", t)
	case t.location != "" && !t.lost:
		s.fail("%v is handed to %s and %s holds it", t, location, t.location)
	}
	s.isNext(t)
	t.now, t.lost, t.holder, t.run = sure, false, nil, new(simRun)
	t.moves(location)
	s.hasStolen(location, t)
	s.handed++
}

// hasStolen has a worker know that it has a task. It may do so already: after a crash it may be
// given again what it has, and that while its Transfer is under way, which is refused then.
func (s *sim) hasStolen(location string, t *simJob) {
	if !slices.Contains(s.stolen[location], t) {
		s.stolen[location] = append(s.stolen[location], t)
	}
}

// silent says whether a worker has given no sign of life for the length of the lease.
func (s *sim) silent(location string) bool {
	return s.lease > 0 && slices.Contains(locations, location) && s.server.Now().Mono-s.signs[location] >= s.lease.Milliseconds()
}

// graphExpired notes whose tasks were taken away from them while time passed.
func (s *sim) graphExpired() {
	for _, t := range s.jobs {
		if t.by == ofDwork && !t.lost && s.silent(t.location) {
			s.say("%s is silent, and has %v no more", t.location, t)
			t.moves("")
		}
	}
}
