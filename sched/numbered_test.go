package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// numberedModel is a naive scheduler of numbered jobs: slices that are scanned for everything.
type numberedModel struct {
	now    Time
	jobs   []*numberedJob
	peers  []*numberedPeer
	paused map[string]int64 // Mono of the end
	used   map[string]bool  // the queues with jobs or peers, as of the last discard
	placed int              // counts jobs that became delayed or buried
	ticked bool
}

type numberedPeer struct {
	watches map[string]bool
	waits   bool
}

type numberedJob struct {
	number   uint64
	queue    string
	priority int64
	timeout  int32
	state    state
	due      int64 // Wall of a delayed job
	deadline int64 // Mono of a reserved one
	order    int   // of becoming delayed or buried
	fresh    bool  // the present Tick has made it ready
	holder   int
	run      Run
	counts   Counts
}

// next returns the job that a peer is handed now.
func (m *numberedModel) next(watches map[string]bool) (first *numberedJob) {
	for _, j := range m.jobs {
		if j.state == ready && watches[j.queue] && m.paused[j.queue] <= m.now.Mono && (first == nil || j.compare(first) < 0) {
			first = j
		}
	}
	return first
}

// discard ends the pauses of queues that have lost the last of their jobs and of the peers that watch them. A queue
// that is paused before it has any stays paused.
func (m *numberedModel) discard() {
	used := make(map[string]bool)
	for _, j := range m.jobs {
		used[j.queue] = true
	}
	for _, p := range m.peers {
		for queue := range p.watches {
			used[queue] = true
		}
	}
	for queue := range m.used {
		if !used[queue] {
			delete(m.paused, queue)
		}
	}
	m.used = used
}

func (j *numberedJob) compare(o *numberedJob) int {
	return cmp.Or(cmp.Compare(o.priority, j.priority), cmp.Compare(j.number, o.number))
}

func (m *numberedModel) remove(j *numberedJob) {
	m.jobs = slices.DeleteFunc(m.jobs, func(o *numberedJob) bool { return o == j })
}

// place makes a job ready, or delayed for so many milliseconds.
func (m *numberedModel) place(j *numberedJob, ms int64) {
	j.state, j.run = ready, Run{}
	if ms > 0 {
		m.placed++
		j.state, j.due, j.order = delayed, m.now.Wall+ms, m.placed
	}
}

func (m *numberedModel) bury(j *numberedJob) {
	m.placed++
	j.state, j.order, j.run = failed, m.placed, Run{}
	j.counts.Buried++
}

func (m *numberedModel) kick(j *numberedJob) {
	m.place(j, 0)
	j.counts.Kicked++
}

// of returns the jobs of a queue in a state, in the order in which Kick and Peek take them.
func (m *numberedModel) of(queue string, in state) (all []*numberedJob) {
	for _, j := range m.jobs {
		if j.queue == queue && j.state == in {
			all = append(all, j)
		}
	}
	slices.SortFunc(all, func(x, y *numberedJob) int {
		switch in {
		case delayed:
			return cmp.Or(cmp.Compare(x.due, y.due), cmp.Compare(x.order, y.order))
		case failed:
			return cmp.Compare(x.order, y.order)
		}
		return x.compare(y)
	})
	return all
}

func (m *numberedModel) tick() {
	m.ticked = true
	for _, j := range m.jobs {
		switch {
		case j.state == delayed && j.due <= m.now.Wall:
			m.place(j, 0)
			j.fresh = true
		case j.state == reserved && j.deadline <= m.now.Mono:
			m.place(j, 0)
			j.fresh = true
			j.counts.TimedOut++
		}
	}
}

// numberedMachine runs a scheduler and the model in parallel.
type numberedMachine struct {
	t       *rapid.T
	s       *Scheduler
	m       *numberedModel
	rec     recorder
	peers   []*Peer
	lastID  SessionID
	journal memJournal
}

var numberedQueues = []string{"f", "g", "h"}

func newNumberedMachine(t *rapid.T, shards int) *numberedMachine {
	x := &numberedMachine{t: t, m: &numberedModel{now: Time{Wall: 1_700_000_000_250, Mono: 10 * grain}, paused: make(map[string]int64)}}
	for range shards {
		x.journal = append(x.journal, make(map[uint64]Saved))
	}
	x.s = New(Options{Shards: shards, Rules: testRules, Journal: x.journal, Grace: 700})
	for i := range 3 {
		x.peers, x.m.peers = append(x.peers, nil), append(x.m.peers, nil)
		x.connect(i)
	}
	return x
}

func (x *numberedMachine) connect(i int) {
	x.lastID++
	x.peers[i] = x.s.NewPeer(x.lastID, LongNames|NoGrace|AutoDelete)
	x.m.peers[i] = &numberedPeer{watches: make(map[string]bool)}
}

func (x *numberedMachine) n(label string, n int) int { return rapid.IntRange(0, n-1).Draw(x.t, label) }

// someJob draws a job, if there is one.
func (x *numberedMachine) someJob() *numberedJob {
	if len(x.m.jobs) == 0 {
		return &numberedJob{number: 1 << 40, holder: -1}
	}
	return x.m.jobs[x.n("job", len(x.m.jobs))]
}

// start is the model's side of a job that a peer was handed.
func (x *numberedMachine) start(peer int, j *numberedJob, d delivered) {
	if d.job.name != fmt.Sprint(j.number) || d.job.queue != j.queue || d.job.priority != j.priority || d.effect != Assign || d.to != x.peers[peer].id {
		x.t.Fatalf("peer %d got %+v, want %+v", peer, d, *j)
	}
	j.state, j.holder, j.run = reserved, peer, d.job.run
	j.deadline = roundUp(x.m.now.Mono + int64(j.timeout)*1000)
	j.counts.Runs++
	x.m.peers[peer].waits = false
}

// settle checks the deliveries of a verb: each waiting peer has the first job that is ready for it.
func (x *numberedMachine) settle() {
	for _, d := range x.rec.take() {
		peer := slices.IndexFunc(x.peers, func(p *Peer) bool { return p.id == d.to })
		if peer < 0 || !x.m.peers[peer].waits {
			x.t.Fatalf("a peer that does not wait got %+v", d)
		}
		j := x.m.next(x.m.peers[peer].watches)
		if i := slices.IndexFunc(x.m.jobs, func(o *numberedJob) bool { return fmt.Sprint(o.number) == d.job.name }); i >= 0 && x.m.ticked {
			j = x.m.jobs[i] // a Tick makes jobs ready one after the other
		}
		if j == nil || j.state != ready || x.m.paused[j.queue] > x.m.now.Mono {
			x.t.Fatalf("peer %d got %+v, want %+v", peer, d, j)
		}
		for _, o := range x.m.jobs {
			if o.queue == j.queue && o.state == ready && !o.fresh && o.compare(j) < 0 {
				x.t.Fatalf("peer %d got %+v before %+v", peer, d, *o)
			}
		}
		x.start(peer, j, d)
	}
	x.m.ticked = false
	for _, j := range x.m.jobs {
		j.fresh = false
	}
	x.m.discard()
	for i, p := range x.m.peers {
		if p.waits && x.m.next(p.watches) != nil {
			x.t.Fatalf("peer %d waits beside job %d", i, x.m.next(p.watches).number)
		}
	}
}

func (x *numberedMachine) verb() {
	s, m, now, sink := x.s, x.m, x.m.now, &x.rec
	queue := numberedQueues[x.n("queue", len(numberedQueues))]
	i := x.n("peer", len(x.peers))
	p, mp := x.peers[i], m.peers[i]
	switch rapid.SampledFrom(strings.Fields("put put put put watch unwatch reserve reserve reserve wait unwait report report report report touch kick kick kick-number remove reserve-number reserve-number pass pass tick tick forget pause peek")).Draw(x.t, "verb") {
	case "put":
		x.put(queue)
	case "watch":
		x.ok(s.Watch(now, p, []byte(queue), false, sink))
		mp.watches[queue] = true
	case "unwatch":
		s.Unwatch(p, []byte(queue))
		delete(mp.watches, queue)
	case "reserve":
		if mp.waits {
			break
		}
		want := m.next(mp.watches)
		got, err := s.TryReserve(now, p, 1, sink)
		x.ok(err)
		if got != (want != nil) {
			x.t.Fatalf("reserved is %v, want %+v", got, want)
		}
		if got {
			x.start(i, want, x.rec.take()[0])
		}
	case "wait":
		mp.waits = true
		x.ok(s.Reserve(now, p, 1, sink))
	case "unwait":
		if got := s.StopReserve(p, 1); got != mp.waits {
			x.t.Fatalf("unreserved is %v, want %v", got, mp.waits)
		}
		mp.waits = false
	case "report", "touch":
		x.report(x.n("report", 4))
	case "kick":
		x.kick(queue)
	case "kick-number":
		j := x.someJob()
		_, ok := s.KickNumber(now, numberedSpace, j.number, sink)
		if want := j.state == failed || j.state == delayed; ok != want {
			x.t.Fatalf("kicked is %v of %+v", ok, *j)
		} else if want {
			m.kick(j)
		}
	case "remove":
		j := x.someJob()
		_, ok := s.RemoveNumber(now, numberedSpace, j.number, sink)
		if ok != (j.state != reserved && j.state != free) {
			x.t.Fatalf("removed is %v of %+v", ok, *j)
		} else if ok {
			m.remove(j)
		}
	case "reserve-number":
		j := x.someJob()
		ok := s.ReserveNumber(now, p, numberedSpace, j.number, 2, sink)
		if ok != (j.state != reserved && j.state != free) {
			x.t.Fatalf("reserved by number is %v of %+v", ok, *j)
		} else if ok {
			waits := mp.waits
			x.start(i, j, x.rec.take()[0])
			mp.waits = waits
		}
	case "pass":
		step := []Time{{Wall: 1, Mono: 1}, {Wall: 300, Mono: grain}, {Wall: 1000, Mono: 8 * grain}, {Wall: 4000, Mono: 32 * grain}}[x.n("time", 4)]
		m.now.Wall, m.now.Mono = now.Wall+step.Wall, now.Mono+step.Mono
		x.tick() // a pause ends by the clock alone
	case "tick":
		x.tick()
	case "forget":
		for _, j := range m.jobs {
			if j.state == reserved && j.holder == i {
				m.place(j, 0)
			}
		}
		s.Disconnect(now, p, sink)
		x.connect(i)
	case "pause":
		ms := int64(x.n("ms", 3)) * 2000
		x.ok(s.PauseFor(now, []byte(queue), ms))
		m.paused[queue] = now.Mono + max(ms, 1)
	case "peek":
		x.peek(queue)
	}
}

func (x *numberedMachine) ok(err error) {
	if err != nil {
		x.t.Fatal(err)
	}
}

func (x *numberedMachine) tick() {
	x.m.tick()
	x.s.ticks(x.m.now, &x.rec)
}

func (x *numberedMachine) put(queue string) {
	j := &numberedJob{queue: queue, priority: int64(x.n("priority", 3)) - 1, timeout: int32(1 + x.n("timeout", 3)), holder: -1}
	ms := int64(max(x.n("delay", 5)-2, 0)) * 1000
	sub := Submission{Space: numberedSpace, Queue: []byte(queue), Workload: []byte("w"), Priority: j.priority, Timeout: j.timeout, After: ms}
	x.m.jobs = append(x.m.jobs, j)
	x.m.place(j, ms)
	j.counts = Counts{Submitted: x.m.now.Wall, Delay: uint32(ms / 1000)}
	x.ok(x.s.Submit(x.m.now, &sub, &x.rec))
	j.number = sub.Number
}

// report ends a run, or starts its time-out anew: mostly one that the peer holds.
func (x *numberedMachine) report(which int) {
	j := x.someJob()
	by := max(j.holder, 0)
	if x.n("other", 6) == 0 {
		by = x.n("by", len(x.peers))
	}
	s, m, now, p, sink := x.s, x.m, x.m.now, x.peers[by], &x.rec
	holds := j.state == reserved && by == j.holder
	priority, ms := int64(x.n("new priority", 3))-1, int64(x.n("new delay", 3))*1000
	var err error
	switch which {
	case 0:
		if err = s.Finish(now, p, j.run, nil, sink); holds {
			m.remove(j)
		}
	case 1:
		if holds {
			j.priority = priority
			j.counts.Released, j.counts.Delay = j.counts.Released+1, uint32(ms/1000)
		}
		run := j.run
		if holds {
			m.place(j, ms)
		}
		err = s.Release(now, p, run, priority, ms, sink)
	case 2:
		if err = s.Bury(now, p, j.run, priority, sink); holds {
			j.priority = priority
			m.bury(j)
		}
	case 3:
		if err = s.Touch(now, p, j.run); holds {
			j.deadline = roundUp(now.Mono + int64(j.timeout)*1000)
		}
	}
	if (err == nil) != holds {
		x.t.Fatalf("report %d of %+v by peer %d: %v", which, *j, by, err)
	}
}

func (x *numberedMachine) kick(queue string) {
	n, in := x.n("bound", 4), []state{failed, delayed}[x.n("of", 2)]
	all := x.m.of(queue, in)
	all = all[:min(n, len(all))]
	for _, j := range all {
		x.m.kick(j)
	}
	got, more := x.s.Kick(x.m.now, []byte(queue), n, in == failed, &x.rec)
	if got != len(all) || more {
		x.t.Fatalf("kicked %d, more %v, want %d", got, more, len(all))
	}
}

func (x *numberedMachine) peek(queue string) {
	for which, in := range []state{PeekReady: ready, PeekDelayed: delayed, PeekBuried: failed} {
		all := x.m.of(queue, in)
		ref, ok := x.s.Peek([]byte(queue), Peeked(which))
		if ok != (len(all) > 0) || ok && ref.Seq != all[0].number {
			x.t.Fatalf("peek %d of %s: %v %v, want the first of %d", which, queue, ref, ok, len(all))
		}
	}
}

// compare compares what both show of all jobs, queues and counts.
func (x *numberedMachine) compare(s *Scheduler) {
	want := NumberedStats{}
	queues := make(map[string]bool)
	for _, j := range x.m.jobs {
		queues[j.queue] = true
		ref, ok := s.FindNumber(numberedSpace, j.number)
		if !ok {
			x.t.Fatalf("job %d is not found", j.number)
		}
		s.View(x.m.now, ref, func(v *JobView) {
			if s == x.s && v.Counts != j.counts || v.Counts.Submitted != j.counts.Submitted || v.Priority != j.priority || v.Timeout != j.timeout || v.Queue != j.queue {
				x.t.Fatalf("job %d is %+v, want %+v", j.number, *v, *j)
			}
		})
		want.Ready += oneIf(j.state == ready)
		want.Urgent += oneIf(j.state == ready && j.priority > 0)
		want.Delayed += oneIf(j.state == delayed)
		want.Reserved += oneIf(j.state == reserved)
		want.Buried += oneIf(j.state == failed)
	}
	if s != x.s {
		want.Ready, want.Reserved, want.Urgent = want.Ready+want.Reserved, 0, s.Stats().Numbered.Urgent
	}
	if got := s.Stats().Numbered; got != want {
		x.t.Fatalf("counts are %+v, want %+v", got, want)
	}
	for _, p := range x.m.peers {
		for queue := range p.watches {
			queues[queue] = s == x.s || queues[queue]
		}
	}
	for queue, until := range x.m.paused {
		queues[queue] = queues[queue] || s == x.s && until > x.m.now.Mono
	}
	s.Status(func(q QueueStatus) {
		if !queues[q.Name] {
			x.t.Fatalf("queue %s has neither jobs nor workers: %+v", q.Name, q)
		}
	})
}

// TestNumberedAgainstModel checks that numbered jobs are handed out by priority and number, kicked, peeked, buried,
// counted and timed out as the model has it, that queues go with their last jobs and peers, and that the journal
// restores the jobs under their numbers.
func TestNumberedAgainstModel(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				x := newNumberedMachine(t, shards)
				t.Repeat(map[string]func(*rapid.T){
					"verbs": func(t *rapid.T) {
						x.t = t
						for range 6 {
							x.verb()
							x.settle()
							if err := x.s.check(); err != nil {
								t.Fatal(err)
							}
							x.compare(x.s)
						}
						if x.n("restart", 3) == 0 {
							x.compare(x.restored())
						}
					},
				})
			})
		})
	}
}

// restored returns a scheduler made from the journal alone.
func (x *numberedMachine) restored() *Scheduler {
	var saved []Saved
	for _, shard := range x.journal {
		for _, r := range shard {
			saved = append(saved, r)
		}
	}
	slices.SortFunc(saved, func(a, b Saved) int { return cmp.Compare(a.Ref.Seq, b.Ref.Seq) })
	s := New(Options{Shards: 2, Rules: testRules, Journal: memJournal{{}, {}}})
	for i := range saved {
		x.ok(s.Restore(x.m.now, &saved[i]))
	}
	if err := s.check(); err != nil {
		x.t.Fatal("restored:", err)
	}
	return s
}
