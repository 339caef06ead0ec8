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
		l.trace.Failf("got a task that is called %q, want one of the %d that were created", name, len(l.jobs)-1)
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
func (s *Simulator) dworkAsk(call *dworkCall) {
	call.payload = dwork.AppendType(nil, call.kind)
	for i, t := range call.tasks {
		var parts []byte
		if call.after != nil {
			for _, p := range call.after[i] {
				parts = dwork.AppendPred(parts, dwork.Dep{Name: []byte(p.name)})
			}
		}
		call.payload = dwork.AppendTask(call.payload, []byte(t.name), []byte(t.workload()), parts)
	}
	switch call.kind {
	case dwork.Steal:
		call.payload = dwork.AppendN(call.payload, int32(1+s.rng.IntN(3)))
		call.payload = dwork.AppendLocation(call.payload, []byte(call.location))
	case dwork.Create:
	default:
		call.payload = dwork.AppendLocation(call.payload, []byte(call.location))
	}
	s.net.dwork.onWay = append(s.net.dwork.onWay, call)
	s.trace.Logf("dwork %v %s %v %v", call.kind, call.location, call.tasks, call.after)
}

// dworkAct is something that a user or a worker of the graph does. A worker with tasks also draws those before
// graphTransfers, and steals where nothing before graphSteals fits.
type dworkAct int

const (
	dworkCreates dworkAct = iota
	dworkExits
	dworkCompletesAny // also tasks that other workers hold
	dworkCompletes
	dworkTransfers
	dworkSteals
	dworkExtends // tasks that exist or existed
)

var dworkActs = play.NewTable(
	play.Of(6, dworkCreates), play.Of(1, dworkExits), play.Of(1, dworkCompletesAny), play.Of(6, dworkCompletes), play.Of(2, dworkTransfers),
	play.Of(4, dworkSteals), play.Of(4, dworkExtends),
)

// dworkStep lets a user or a worker of the graph do one thing.
func (s *Simulator) dworkStep() {
	location := locations[s.rng.IntN(len(locations))]
	act := dworkActs.Draw(s.rng)
	held := s.net.dwork.stolen[location]
	switch {
	case act == dworkCreates && s.ledger.live() < maxJobs:
		call := &dworkCall{kind: dwork.Create}
		for range 1 + s.rng.IntN(3) {
			call.tasks, call.after = append(call.tasks, s.ledger.newJob(ofDwork, graphQueue, "")), append(call.after, s.drawSome(s.ledger.lastTasks(6), 3))
		}
		s.dworkAsk(call)
	case act == dworkExits:
		s.dworkAsk(&dworkCall{kind: dwork.Exit, location: location})
	case act == dworkCompletesAny:
		if tasks := s.drawSome(s.ledger.lastTasks(6), 2); tasks != nil {
			s.dworkAsk(&dworkCall{kind: dwork.Complete, location: location, tasks: tasks})
		}
	case len(held) > 0 && act <= dworkCompletes:
		k := 1 + s.rng.IntN(len(held))
		s.dworkAsk(&dworkCall{kind: dwork.Complete, location: location, tasks: slices.Clone(held[:k])})
		s.net.dwork.stolen[location] = held[k:]
	case len(held) > 0 && act <= dworkTransfers:
		s.net.dwork.stolen[location] = held[1:]
		s.dworkAsk(&dworkCall{kind: dwork.Transfer, location: location, tasks: held[:1:1], after: [][]*Job{s.drawSome(s.ledger.lastTasks(12), 6)}})
	case act <= dworkSteals:
		s.dworkAsk(&dworkCall{kind: dwork.Steal, location: location})
	default:
		call := &dworkCall{kind: dwork.Create}
		for _, t := range s.drawSome(s.ledger.lastTasks(10), 5) {
			call.tasks, call.after = append(call.tasks, t), append(call.after, s.drawSome(s.ledger.lastTasks(10), 4))
		}
		if call.tasks != nil && s.ledger.live() < maxJobs {
			s.dworkAsk(call)
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
func (s *Simulator) dworkArrive(call *dworkCall) {
	if s.ledger.stopping && (call.kind == dwork.Steal || call.kind == dwork.Create) {
		s.dworkArriveLate(call)
		return
	}
	for _, t := range call.tasks {
		held := s.ledger.mayHandle(call, t) && !t.holderUnknown
		call.sure, call.notHeld = append(call.sure, held), append(call.notHeld, !held && !t.holderUnknown)
	}
	call.refused = call.kind == dwork.Create && s.ledger.full
	if !call.refused && (call.kind == dwork.Create || call.kind == dwork.Transfer && (call.sure[0] || call.tasks[0].holderUnknown)) {
		v := s.ledger.predict(call)
		if call.cyclic = v == cyclic; v == unclear || call.cyclic && call.kind == dwork.Transfer && !call.sure[0] {
			s.trace.Logf("dwork %v %s %v is lost", call.kind, call.location, call.tasks)
			return
		}
	}
	s.ledger.dworkArrived(call)
	for _, t := range call.tasks {
		call.lives = append(call.lives, t.life)
	}
	s.ledger.dworkSigns[call.location] = s.server.Now().Mono
	incarnation := s.serverEnds
	s.net.dwork.owed++
	s.server.Dwork(call.payload, func(reply []byte) {
		if s.serverEnds == incarnation {
			s.net.dwork.owed--
			s.ledger.dworkAnswered(call, reply)
		}
	})
}

// mayHandle reports whether a location may report a task.
func (l *Ledger) mayHandle(call *dworkCall, t *Job) bool {
	if call.kind == dwork.Complete && l.setup.dworkComplete == "any" {
		return slices.Contains(locations, t.location)
	}
	return t.location == call.location
}

// dworkArriveLate lets a request arrive that a stopping hub refuses.
func (s *Simulator) dworkArriveLate(call *dworkCall) {
	want := dwork.Exit
	if call.kind == dwork.Steal && s.ledger.setup.dworkStop == "notfound" {
		want = dwork.NotFound
	}
	s.server.Dwork(call.payload, func(reply []byte) {
		var q dwork.Query
		if err := dwork.DecodeReply(reply, &q); err != nil || q.Type != want {
			s.trace.Failf("the hub answers %v with %x: %v, although the server is to stop", call.kind, reply, err)
		}
	})
}

// dworkArrived notes what a request does when it arrives.
func (l *Ledger) dworkArrived(call *dworkCall) {
	for i, t := range call.tasks {
		switch {
		case call.cyclic && call.kind == dwork.Transfer: // its worker has it still
			l.taskKnown(call.location, t)
		case call.refused || call.cyclic:
		case call.kind == dwork.Create:
			l.extended(call, i)
		case call.kind == dwork.Complete && call.sure[i]:
			l.end(t)
			l.done++
		case call.kind == dwork.Complete && t.holderUnknown:
			l.doubt(t)
		case call.kind == dwork.Transfer && call.sure[i]:
			t.setLocation("")
			l.preceded(call, i)
		case call.kind == dwork.Transfer && t.holderUnknown:
			t.maybeLostPreds = append(t.maybeLostPreds, call.after[i]...)
		}
	}
	if call.kind == dwork.Exit {
		delete(l.net.dwork.stolen, call.location)
		for _, t := range l.jobs {
			if t.by == ofDwork && t.location == call.location && !t.holderUnknown {
				t.setLocation("")
			}
		}
	}
}
