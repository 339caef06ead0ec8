package sched

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// op is one verb with its arguments, as drawn. Small numbers choose among what exists, so that an
// op is valid in any state and shrinks well.
type op struct {
	Verb                string
	Peer, Queue, Name   int
	Which               int // a reference, a tag
	At, Priority, Count int
	Timeout, Size       int
	Flag, Rare          bool
	Await               int // a peer; beyond the last: none
}

// themes are mixes of verbs, the frequent ones several times: each brings about
// states that the others hardly reach.
var themes = [][]string{
	strings.Fields(`submit submit submit submit submit submit watch watch broadcast unwatch reserve reserve reserve
		reserve reserve try sleep finish finish finish fail delay delay remove drop flushed flushed forget
		pass pass tick tick tick timeout`),
	strings.Fields(`submit submit submit submit watch reserve reserve reserve reserve finish finish fail delay
		remove flushed flushed flushed flushed pass tick`),
	strings.Fields(`submit submit submit watch watch watch unwatch unwatch reserve reserve reserve try flushed flushed
		finish finish drop drop forget pass tick tick timeout`),
	strings.Fields(`submit submit submit watch broadcast broadcast unwatch reserve reserve reserve sleep sleep
		flushed flushed forget pass tick`),
	strings.Fields(`submit submit submit submit watch watch reserve reserve reserve try sleep finish fail fail fail delay
		remove forget pass pass pass tick tick timeout policy policy failed broadcast drop`),
	strings.Fields(`submit submit submit submit submit watch reserve reserve try finish fail fail delay operate operate
		operate operate operate remove forget pass pass tick tick policy broadcast drop`),
	strings.Fields(`submit submit submit submit watch watch reserve reserve upto upto finish grant grant grant grant lease-finish
		lease-fail lease-fail lease-release lease-extend remove forget pass pass tick tick timeout policy failed broadcast drop`),
}

var (
	machineQueues    = []string{"f", "g", "h", "", "echo"}
	machineNames     = []string{"a", "b", "c", "d", "", strings.Repeat("n", 200)}
	machinePriority  = []int64{0, 0, 0, 0, 1, -1, math.MaxInt64, math.MinInt64}
	machineTimeout   = []int32{0, 0, 0, 1, 2, 60, -1}
	machineCount     = []int32{0, 0, 1, math.MaxInt32, math.MinInt32}
	machineWorkloads = []int{0, 0, 3, 3, 60, 60, 130, 300, ownChunk}
	machinePass      = []Time{
		{Wall: 1}, {Wall: 200}, {Wall: 750, Mono: grain}, {Wall: 1000, Mono: 8 * grain}, {Mono: 8 * grain}, {Wall: 5000, Mono: 40 * grain}, {Wall: -1500, Mono: grain},
	}
)

const (
	machinePeers  = 4
	machineTags   = 5
	machineWindow = 200
)

func drawOp(t *rapid.T, verbs []string) op {
	n := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
	o := op{Verb: rapid.SampledFrom(verbs).Draw(t, "verb"), Peer: n("peer", machinePeers), Queue: n("queue", len(machineQueues))}
	switch o.Verb {
	case "submit":
		o.Name, o.Which, o.At = n("name", len(machineNames)), n("space", 2), n("at", 16)
		o.Priority, o.Count = n("priority", len(machinePriority)), n("count", len(machineCount))
		o.Timeout, o.Size = n("timeout", len(machineTimeout)), n("size", len(machineWorkloads))
		o.Flag, o.Rare, o.Await = rapid.Bool().Draw(t, "onFail"), n("needWorker", 8) == 0, n("await", 3*machinePeers)
	case "remove":
		o.Name, o.Which = n("name", len(machineNames)), n("space", 2)
	case "reserve", "try", "sleep", "upto":
		o.Which = n("tag", machineTags)
	case "finish", "fail", "delay":
		o.Which, o.Flag, o.Rare = n("ref", 12), n("other", 6) == 0, n("stale", 8) == 0
		o.At, o.Count = n("delay", 6), n("step", len(machineCount))
	case "grant", "lease-finish", "lease-fail", "lease-release", "lease-extend":
		o.Which, o.Flag, o.Rare, o.At = n("ref", 12), n("other", 6) == 0, n("stale", 4) == 0, n("for", len(machineLeases))
	case "flushed":
		o.Size = n("unsent", 5)
	case "pass":
		o.At = n("time", len(machinePass))
	case "timeout":
		o.At = n("timeout", 4)
	case "policy":
		o.Which, o.Flag = n("policy", len(machinePolicies)), n("none", 5) == 0
	case "failed":
		o.Which, o.Flag = n("failed", 4), rapid.Bool().Draw(t, "remove")
	case "operate":
		o.Which, o.Count, o.At, o.Priority = n("job", 12), n("verb", int(MoveJobs)), n("due", 8), n("priority", len(machinePriority))
	}
	return o
}

// drawOps draws short runs of ops, so that single ops can be left out to find the shortest sequence
// that fails.
func drawOps(t *rapid.T) []op {
	theme := rapid.SampledFrom(themes).Draw(t, "theme")
	one := rapid.Custom(func(t *rapid.T) op { return drawOp(t, theme) })
	return slices.Concat(rapid.SliceOfN(rapid.SliceOf(one), 40, 40).Draw(t, "ops")...)
}

// machine runs a scheduler and the model in parallel.
type machine struct {
	t          *rapid.T
	s          *Scheduler
	m          *model
	rec        recorder
	peers      []*Peer // by the model's peers' places
	modelPeers []*modelPeer
	runs       []Run // every one that ever began
	tokens     []Token
	leases     map[Token]*modelLease
	lastID     SessionID
	lastTag    uint64
	next       Time // of the next Tick, as the last one said
	alarmed    bool // since then
}

func newMachine(t *rapid.T, shards int) *machine {
	now := Time{Wall: 1_700_000_000_250, Mono: 10 * grain}
	x := &machine{t: t, m: newModel(now, len(machineQueues)-1), next: Time{Wall: never, Mono: never}, leases: make(map[Token]*modelLease)}
	x.s = New(Options{Shards: shards, Window: machineWindow, MaxQueues: len(machineQueues) - 1, Alarm: func() { x.alarmed = true }})
	x.peers, x.modelPeers = make([]*Peer, machinePeers), make([]*modelPeer, machinePeers)
	for i := range x.peers {
		x.connect(i)
	}
	return x
}

func (x *machine) connect(i int) {
	x.lastID++
	x.peers[i] = x.s.NewPeer(x.lastID)
	x.modelPeers[i] = &modelPeer{id: x.lastID, watches: make(map[string]bool), window: machineWindow}
	if i == machinePeers-1 {
		x.peers[i] = x.s.NewRequestPeer(x.lastID, "")
		x.modelPeers[i].window, x.modelPeers[i].request = math.MaxInt, true
	}
	x.m.peers = append(x.m.peers, x.modelPeers[i])
}

// TestSchedulerAgainstModel checks that the scheduler does what the model does, delivery by
// delivery, for any sequence of verbs, with one shard and with several, and that its structures
// agree after each verb.
func TestSchedulerAgainstModel(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				x := newMachine(t, shards)
				for i, o := range drawOps(t) {
					if err := x.run(o); err != nil {
						t.Fatalf("op %d, %+v: %v", i, o, err)
					}
				}
				if err := x.drain(); err != nil {
					t.Fatalf("at the end: %v", err)
				}
			})
		})
	}
}

// run does one op in both and compares everything.
func (x *machine) run(o op) error {
	if err := x.verb(o); err != nil {
		return err
	}
	for _, d := range x.rec.take() {
		if d.job.run != (Run{}) {
			x.runs = append(x.runs, d.job.run)
		}
		if err := x.m.step(d); err != nil {
			return fmt.Errorf("delivery %+v: %w", d, err)
		}
	}
	switch o.Verb {
	case "try":
		if err := x.tried(o); err != nil {
			return err
		}
	case "upto":
		if err := x.triedUpTo(o); err != nil {
			return err
		}
	}
	if err := x.m.settled(); err != nil {
		return err
	}
	if err := x.compare(); err != nil || !x.m.unmatched() {
		return err
	}
	return x.run(op{Verb: "tick"})
}

func (x *machine) verb(o op) error {
	s, m, p, mp := x.s, x.m, x.peers[o.Peer], x.modelPeers[o.Peer]
	queue, now, sink := machineQueues[o.Queue], m.now, &x.rec
	switch o.Verb {
	case "submit":
		return x.submit(o)
	case "watch", "broadcast":
		err := s.Watch(now, p, []byte(queue), o.Verb == "broadcast", sink)
		return same("error", err, m.watch(mp, queue, o.Verb == "broadcast"))
	case "unwatch":
		s.Unwatch(p, []byte(queue))
		delete(mp.watches, queue)
	case "reserve":
		m.reserve(mp, uint64(o.Which), false)
		return s.Reserve(now, p, uint64(o.Which), sink)
	case "sleep":
		m.reserve(mp, uint64(o.Which), true)
		return s.Sleep(now, p, uint64(o.Which), sink)
	case "try":
		m.reserve(mp, uint64(o.Which+machineTags), false)
	case "upto":
		x.upTo(o)
	case "finish", "fail", "delay":
		return x.report(o)
	case "grant":
		return x.grant(o)
	case "lease-finish", "lease-fail", "lease-release", "lease-extend":
		return x.granted(o)
	case "remove":
		name := machineNames[o.Name]
		return same("removed", s.Remove(now, Space(o.Which), []byte(queue), []byte(name), sink), m.remove(Space(o.Which), queue, name))
	case "drop":
		return same("dropped", s.Drop([]byte(queue)), m.drop(queue))
	case "flushed":
		unsent := []int{0, 0, 0, machineWindow / 2, machineWindow}[o.Size]
		mp.unsent, m.asker = unsent, mp
		s.Flushed(now, p, unsent, sink)
	case "forget":
		m.forget(mp)
		s.Disconnect(now, p, sink)
		x.connect(o.Peer)
	case "pass":
		m.now.Wall += machinePass[o.At].Wall
		m.now.Mono += machinePass[o.At].Mono
	case "timeout":
		m.timeout = []int64{0, 500, 1000, 600_000}[o.At]
		s.SetTimeout(m.timeout)
	case "tick":
		return x.tick()
	case "policy":
		return x.policy(o)
	case "failed":
		return x.failed(o)
	case "operate":
		return x.operate(o)
	}
	return nil
}

// tried is the rest of a TryReserve, after its deliveries.
func (x *machine) tried(o op) error {
	ok, err := x.s.TryReserve(x.m.now, x.peers[o.Peer], uint64(o.Which+machineTags), &x.rec)
	if err != nil {
		return err
	}
	for _, d := range x.rec.take() {
		if d.job.run != (Run{}) {
			x.runs = append(x.runs, d.job.run)
		}
		if err := x.m.step(d); err != nil {
			return fmt.Errorf("delivery %+v: %w", d, err)
		}
	}
	return same("reserved", ok, x.m.unreserve(x.modelPeers[o.Peer], uint64(o.Which+machineTags)))
}

func (x *machine) submit(o op) error {
	second := x.m.second()
	at := []int64{0, 0, 0, 0, 0, 0, second - 2, second - 1, second, second + 1, second + 1, second + 2, second + 5,
		-5, math.MaxInt64, math.MinInt64}[o.At]
	j := Submission{
		Space: Space(o.Which), Queue: []byte(machineQueues[o.Queue]), Name: []byte(machineNames[o.Name]),
		Workload: []byte(strings.Repeat("w", machineWorkloads[o.Size])), SchedAt: at, Priority: machinePriority[o.Priority],
		Count: machineCount[o.Count], Timeout: machineTimeout[o.Timeout], NeedWorker: o.Rare,
	}
	var mp *modelPeer
	if o.Await < machinePeers {
		x.lastTag++
		j.Await, j.Tag, j.OnFail, mp = x.peers[o.Await], x.lastTag, o.Flag, x.modelPeers[o.Await]
	}
	got, err := x.s.outcome(x.m.now, &j, &x.rec)
	want, wantErr := x.m.submit(&j, mp)
	if e := same("error", err, wantErr); e != nil {
		return e
	}
	return same("outcome", got, want)
}

// report is Finish, Fail or Delay of a run: mostly one that is held and by its holder, sometimes by
// another peer, or one that has ended, or one that never was.
func (x *machine) report(o op) error {
	ref, peer := Run{Shard: uint16(o.Which), Record: uint32(o.Which) << slabBits, Number: uint64(o.Count)}, o.Peer
	var live []Run
	for _, j := range x.m.jobs {
		if j.state == reserved {
			live = append(live, j.run)
		}
	}
	switch {
	case o.Rare && len(x.runs) > 0:
		ref = x.runs[(len(x.runs)-1)*o.Which/12]
	case !o.Rare && len(live) > 0:
		ref = live[o.Which%len(live)]
		for i, mp := range x.modelPeers {
			if !o.Flag && x.m.runs[ref].holder == mp {
				peer = i
			}
		}
	}
	j, wantErr := x.m.held(x.modelPeers[peer], ref, len(x.s.shards))
	now, p := x.m.now, x.peers[peer]
	delay := []int64{0, 1, 2, -3, 7, 1_000_000}[o.At]
	step := machineCount[o.Count]
	var err error
	switch o.Verb {
	case "finish":
		data := strings.Repeat("r", o.Which)
		if j != nil && wantErr == nil {
			x.m.finish(j, data)
		}
		err = x.s.Finish(now, p, ref, []byte(data), &x.rec)
	case "fail":
		if j != nil && wantErr == nil {
			x.m.release(j, now.Wall, 0, true)
		}
		err = x.s.Fail(now, p, ref, nil, &x.rec)
	case "delay":
		if j != nil && wantErr == nil {
			x.m.release(j, now.Wall+delay*1000, step, false)
		}
		err = x.s.Delay(now, p, ref, delay, step, &x.rec)
	}
	return same("error", err, wantErr)
}

func same[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}
