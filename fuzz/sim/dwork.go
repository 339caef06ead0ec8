//go:build invariants

package sim

import (
	"fmt"
	"slices"

	"treadle/codec/dwork"
	"treadle/fuzz/sim/play"
)

// dworkNetwork is what lies between the workers of dwork and the hub.
type dworkNetwork struct {
	onWay  []*dworkCall
	owed   int               // number of calls that have arrived and wait for a commit
	stolen map[string][]*Job // tasks that a location's worker knows to have stolen, by location
}

// dworkCall is a message of a dwork worker to the hub.
type dworkCall struct {
	kind     dwork.Type
	location string
	refused  bool // the disk was full when the request arrived
	tasks    []*Job
	payload  []byte
	after    [][]*Job // by task: the predecessors that the request gives it
	sure     []bool   // by task: its worker certainly held it when the request arrived, see mayHandle
	cyclic   bool     // the request would close a cycle
	lives    []int    // by task: its life when the request had arrived
	added    []edge   // predecessors that the request adds to existing tasks
	notHeld  []bool   // by task: its worker certainly did not hold it when the request arrived
}

// locations are the workers of the simulated graph.
var locations = []string{"w0", "w1", "w2", "w3"}

// task finds a task by its name on the wire.
func (l *Ledger) task(name []byte) *Job {
	var id int
	if _, err := fmt.Sscanf(string(name), "n%d", &id); err != nil || id >= len(l.jobs) || l.jobs[id].by != ofDwork {
		l.trace.Fail("got a task that is called %q, want one of the %d that were created", name, len(l.jobs)-1)
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

// dworkAsk puts a request on its way.
func (s *Simulator) dworkAsk(f *dworkCall) {
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
	s.net.dwork.onWay = append(s.net.dwork.onWay, f)
	s.trace.Say("dwork %v %s %v %v", f.kind, f.location, f.tasks, f.after)
}

// graphAct is something that a user or a worker of the graph does. A worker with tasks also draws those before
// graphTransfers, and steals where nothing before graphSteals fits.
type graphAct int

const (
	graphCreates graphAct = iota
	graphExits
	graphCompletesAny // also tasks that other workers hold
	graphCompletes
	graphTransfers
	graphSteals
	graphExtends // tasks that exist or existed
)

var graphActs = play.NewTable(
	play.Of(6, graphCreates), play.Of(1, graphExits), play.Of(1, graphCompletesAny), play.Of(6, graphCompletes), play.Of(2, graphTransfers),
	play.Of(4, graphSteals), play.Of(4, graphExtends),
)

// graphStep lets a user or a worker of the graph do one thing.
func (s *Simulator) graphStep() {
	location := locations[s.rng.IntN(len(locations))]
	act := graphActs.Draw(s.rng)
	held := s.net.dwork.stolen[location]
	switch {
	case act == graphCreates && s.ledger.live() < maxJobs:
		f := &dworkCall{kind: dwork.Create}
		for range 1 + s.rng.IntN(3) {
			f.tasks, f.after = append(f.tasks, s.ledger.newJob(ofDwork, graphQueue, "")), append(f.after, s.drawSome(s.ledger.lastTasks(6), 3))
		}
		s.dworkAsk(f)
	case act == graphExits:
		s.dworkAsk(&dworkCall{kind: dwork.Exit, location: location})
	case act == graphCompletesAny:
		if tasks := s.drawSome(s.ledger.lastTasks(6), 2); tasks != nil {
			s.dworkAsk(&dworkCall{kind: dwork.Complete, location: location, tasks: tasks})
		}
	case len(held) > 0 && act <= graphCompletes:
		k := 1 + s.rng.IntN(len(held))
		s.dworkAsk(&dworkCall{kind: dwork.Complete, location: location, tasks: slices.Clone(held[:k])})
		s.net.dwork.stolen[location] = held[k:]
	case len(held) > 0 && act <= graphTransfers:
		s.net.dwork.stolen[location] = held[1:]
		s.dworkAsk(&dworkCall{kind: dwork.Transfer, location: location, tasks: held[:1:1], after: [][]*Job{s.drawSome(s.ledger.lastTasks(12), 6)}})
	case act <= graphSteals:
		s.dworkAsk(&dworkCall{kind: dwork.Steal, location: location})
	default:
		f := &dworkCall{kind: dwork.Create}
		for _, t := range s.drawSome(s.ledger.lastTasks(10), 5) {
			f.tasks, f.after = append(f.tasks, t), append(f.after, s.drawSome(s.ledger.lastTasks(10), 4))
		}
		if f.tasks != nil && s.ledger.live() < maxJobs {
			s.dworkAsk(f)
		}
	}
}

// drawSome picks about one in n.
func (s *Simulator) drawSome(all []*Job, n int) (few []*Job) {
	for _, t := range all {
		if s.rng.IntN(n) == 0 {
			few = append(few, t)
		}
	}
	return few
}

// setLocation notes the location that holds a task; "": none.
func (j *Job) setLocation(location string) { j.location, j.savedLocation = location, "" }

// dworkArrive lets a request arrive at the hub. A request that the ledger cannot predict is dropped instead.
func (s *Simulator) dworkArrive(f *dworkCall) {
	if s.ledger.stopping && (f.kind == dwork.Steal || f.kind == dwork.Create) {
		s.dworkArriveLate(f)
		return
	}
	for _, t := range f.tasks {
		held := s.ledger.mayHandle(f, t) && !t.holderUnknown
		f.sure, f.notHeld = append(f.sure, held), append(f.notHeld, !held && !t.holderUnknown)
	}
	f.refused = f.kind == dwork.Create && s.ledger.full
	if !f.refused && (f.kind == dwork.Create || f.kind == dwork.Transfer && (f.sure[0] || f.tasks[0].holderUnknown)) {
		v := s.ledger.predict(f)
		if f.cyclic = v == cyclic; v == unclear || f.cyclic && f.kind == dwork.Transfer && !f.sure[0] {
			s.trace.Say("dwork %v %s %v is lost", f.kind, f.location, f.tasks)
			return
		}
	}
	s.ledger.applyDwork(f)
	for _, t := range f.tasks {
		f.lives = append(f.lives, t.life)
	}
	s.ledger.dworkSigns[f.location] = s.server.Now().Mono
	crash := s.crashes
	s.net.dwork.owed++
	s.server.Dwork(f.payload, func(reply []byte) {
		if s.crashes == crash {
			s.net.dwork.owed--
			s.ledger.hubAnswered(f, reply)
		}
	})
}

// mayHandle reports whether a location may report a task.
func (l *Ledger) mayHandle(f *dworkCall, t *Job) bool {
	if f.kind == dwork.Complete && l.setup.complete == "any" {
		return slices.Contains(locations, t.location)
	}
	return t.location == f.location
}

// dworkArriveLate lets a request arrive that a stopping hub refuses.
func (s *Simulator) dworkArriveLate(f *dworkCall) {
	want := dwork.Exit
	if f.kind == dwork.Steal && s.ledger.setup.stopped == "notfound" {
		want = dwork.NotFound
	}
	s.server.Dwork(f.payload, func(reply []byte) {
		var q dwork.Query
		if err := dwork.DecodeReply(reply, &q); err != nil || q.Type != want {
			s.trace.Fail("the hub answers %v with %x: %v, although the server is to stop", f.kind, reply, err)
		}
	})
}

// applyDwork notes what a request does when it arrives.
func (l *Ledger) applyDwork(f *dworkCall) {
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
		case f.kind == dwork.Complete && t.holderUnknown:
			l.doubt(t)
		case f.kind == dwork.Transfer && f.sure[i]:
			t.setLocation("")
			l.preceded(f, i)
		case f.kind == dwork.Transfer && t.holderUnknown:
			t.maybeLostPreds = append(t.maybeLostPreds, f.after[i]...)
		}
	}
	if f.kind == dwork.Exit {
		delete(l.net.dwork.stolen, f.location)
		for _, t := range l.jobs {
			if t.by == ofDwork && t.location == f.location && !t.holderUnknown {
				t.setLocation("")
			}
		}
	}
}
