package sched

import (
	"math"
	"slices"
)

// delivered is a Delivery as a test keeps it. Fields that the effect does not carry are zero.
type delivered struct {
	to     SessionID
	tag    uint64
	effect Effect
	job    deliveredJob // Assign, Broadcast
	data   string       // Result
}

type deliveredJob struct {
	ref            JobRef
	run            Run // of an Assign
	queue          string
	space          Space
	name, workload string
	schedAt        int64
	priority       int64
	count, timeout int32
	running        bool
}

func copyJob(j *Job) deliveredJob {
	v := deliveredJob{
		ref: j.Ref, queue: j.Queue, space: j.Space, name: string(j.Name), workload: string(j.Workload),
		schedAt: j.SchedAt, priority: j.Priority, count: j.Count, timeout: j.Timeout, running: j.Running,
	}
	if j.RunNumber != 0 {
		v.run = j.Run()
	}
	return v
}

// recorder is a Sink that keeps copies.
type recorder struct {
	all     []delivered
	history string // of the last Assign
}

func (r *recorder) Deliver(d *Delivery) {
	v := delivered{to: d.To, tag: d.Tag, effect: d.Effect}
	switch d.Effect {
	case Assign, Broadcast, WakeWith:
		v.job = copyJob(&d.Job)
		r.history = string(d.History)
	case Result:
		v.data = string(d.Data)
	}
	r.all = append(r.all, v)
}

func (r *recorder) take() []delivered {
	all := r.all
	r.all = nil
	return all
}

// model is a naive scheduler, written from the protocols' pages and the verbs' comments: one slice
// of jobs, scanned for everything. A verb changes it at once. Each delivery to a waiting peer is
// then checked against the rules (step), and at the end of the verb no delivery may be missing
// (settled). So the order within a queue, a session and a verb is exact. The order between queues
// that a Tick promotes is free.
type model struct {
	now       Time
	timeout   int64
	maxQueues int

	queues  map[string]bool
	peers   []*modelPeer
	jobs    []*modelJob // in order of submission
	dropped []*modelJob // of dropped queues, until the next Tick
	refs    map[JobRef]*modelJob
	runs    map[Run]*modelJob // every run that ever began
	clock   int               // counts events: submissions, reserves, jobs that become ready
	counted Counters

	policies *Policies
	rates    map[string]*modelRate
	failed   []*modelJob // given up, the oldest first

	// Of the verb under way:
	owed     []delivered          // deliveries that must come next
	anyOrder []delivered          // deliveries that must come, in any order
	leaving  []*modelJob          // dropped jobs whose awaits end, in any order
	arriving map[string]*arrivals // jobs that become ready during the verb, by queue
	ticked   bool
	asker    *modelPeer // the peer that reserves: it receives the first job of all its queues
}

// arrivals become ready in the order of ordered; loose ones after them, in any order.
type arrivals struct {
	ordered, loose []*modelJob
	stamp          int // of the loose ones, once the first has arrived
}

type modelJob struct {
	id             int // order of submission
	space          Space
	queue, name    string
	workload       string
	schedAt        int64
	second, past   int64 // due: Unix second, and milliseconds after it
	priority       int64
	count, timeout int32
	state          state
	stamp          int // order of becoming ready; equal where that order is free
	holder         *modelPeer
	since          int64 // when it was reserved
	waits          []modelWait
	ref            JobRef
	run            Run // of the reservation, while there is one
	lease          *modelLease
	tries          int   // failures since it was submitted or retried by hand
	failedAt       int64 // Wall
}

type modelWait struct {
	peer   *modelPeer
	tag    uint64
	onFail bool
}

type modelPeer struct {
	id      SessionID
	watches map[string]bool // queue -> broadcast
	slots   []modelSlot
	unsent  int
	window  int
	request bool
}

type modelSlot struct {
	tag  uint64
	age  int
	wake bool
}

func newModel(now Time, maxQueues int) *model {
	return &model{
		now: now, maxQueues: maxQueues, queues: make(map[string]bool),
		refs: make(map[JobRef]*modelJob), runs: make(map[Run]*modelJob), arriving: make(map[string]*arrivals),
		rates: make(map[string]*modelRate),
	}
}

func (m *model) second() int64 { return int64(math.Floor(float64(m.now.Wall) / 1000)) }

func (m *model) nextStamp() int {
	m.clock++
	return m.clock
}

func (m *model) find(space Space, queue, name string) *modelJob {
	for _, j := range m.jobs {
		if j.space == space && j.queue == queue && j.name == name {
			return j
		}
	}
	return nil
}

func (m *model) workers(queue string) (n, broadcasts int) {
	for _, p := range m.peers {
		if b, ok := p.watches[queue]; ok {
			n++
			broadcasts += oneIf(b)
		}
	}
	return n + oneIf(m.leased(queue)), broadcasts
}

func (m *model) makeQueue(name string) error {
	if !m.queues[name] && len(m.queues) >= m.maxQueues {
		return ErrQueues
	}
	m.queues[name] = true
	return nil
}

func (m *model) submit(s *Submission, await *modelPeer) (outcome, error) {
	queue := string(s.Queue)
	if n, _ := m.workers(queue); s.NeedWorker && n == 0 {
		return 0, ErrNoWorker
	}
	if err := m.makeQueue(queue); err != nil {
		return 0, err
	}
	did := replaced
	j := m.find(s.Space, queue, string(s.Name))
	if j == nil || j.state != reserved {
		if err := m.admit(s, j); err != nil {
			return 0, err
		}
	}
	if j == nil {
		j = &modelJob{id: m.nextStamp(), space: s.Space, queue: queue, name: string(s.Name)}
		m.jobs = append(m.jobs, j)
		did = added
	}
	if await != nil {
		j.waits = append(j.waits, modelWait{await, s.Tag, s.OnFail})
	}
	if j.state == reserved {
		m.counted.Ignored++
		return ignored, nil
	}
	m.counted.Submitted += uint64(oneIf(did == added))
	m.counted.Replaced += uint64(oneIf(did == replaced))
	j.workload, j.schedAt, j.priority = string(s.Workload), s.SchedAt, s.Priority
	j.count, j.timeout, j.tries = s.Count, s.Timeout, 0
	j.second, j.past = s.SchedAt, 0
	if s.SchedAt == 0 {
		j.second = m.second()
	}
	m.place(j)
	return did, nil
}

// isDue reports whether a pending job's time has come.
func (m *model) isDue(j *modelJob) bool {
	second := m.second()
	return j.second < second || j.second == second && j.past <= m.now.Wall-second*1000
}

func (m *model) place(j *modelJob) {
	j.state, j.stamp, j.holder, j.run = delayed, m.nextStamp(), nil, Run{}
	if m.isDue(j) {
		j.state = ready
	}
}

// due gives a job a new due time, which it also shows.
func (j *modelJob) due(wall int64) {
	j.second = int64(math.Floor(float64(wall) / 1000))
	j.past = wall - j.second*1000
	j.schedAt = j.second
}

func (m *model) watch(p *modelPeer, queue string, broadcast bool) error {
	if _, ok := p.watches[queue]; !ok {
		if err := m.makeQueue(queue); err != nil {
			return err
		}
	}
	p.watches[queue] = broadcast
	return nil
}

// reserve adds a slot unless the tag waits already.
func (m *model) reserve(p *modelPeer, tag uint64, wake bool) {
	m.asker = p
	for _, s := range p.slots {
		if s.tag == tag && s.wake == wake {
			return
		}
	}
	p.slots = append(p.slots, modelSlot{tag, m.nextStamp(), wake})
}

// unreserve is the end of a TryReserve: true when the slot was served.
func (m *model) unreserve(p *modelPeer, tag uint64) bool {
	for i := len(p.slots) - 1; i >= 0; i-- {
		if p.slots[i].tag == tag && !p.slots[i].wake {
			p.slots = slices.Delete(p.slots, i, i+1)
			return false
		}
	}
	return true
}

// held returns the job that a peer holds under a run.
func (m *model) held(p *modelPeer, run Run, shards int) (*modelJob, error) {
	j := m.runs[run]
	err := error(nil)
	switch {
	case int(run.Shard) >= shards:
		j, err = nil, ErrNotFound
	case j == nil || j.state != reserved || j.run != run:
		err = ErrNotFound
	case j.holder != p:
		err = errNotHolder
	}
	m.counted.Stale += uint64(oneIf(err != nil))
	return j, err
}

// end removes a job and owes its awaits an effect.
func (m *model) end(j *modelJob, e Effect, data string) {
	for _, w := range j.waits {
		m.owed = append(m.owed, delivered{to: w.peer.id, tag: w.tag, effect: e, data: data})
	}
	j.state, j.waits = free, nil
	m.jobs = slices.DeleteFunc(m.jobs, func(o *modelJob) bool { return o == j })
}

func (m *model) finish(j *modelJob, data string) {
	m.counted.Done++
	m.end(j, Result, data)
}

// release is Fail and Delay.
func (m *model) release(j *modelJob, wall int64, step int32, fails bool) {
	m.counted.Released++
	m.counted.RunsFailed += uint64(oneIf(fails))
	j.waits = slices.DeleteFunc(j.waits, func(w modelWait) bool {
		if w.onFail {
			m.owed = append(m.owed, delivered{to: w.peer.id, tag: w.tag, effect: Failed})
		}
		return w.onFail
	})
	if fails && m.fails(j, false) {
		return
	}
	j.count = int32(min(max(int64(j.count)+int64(step), math.MinInt32), math.MaxInt32))
	j.due(wall)
	m.place(j)
}

func (m *model) remove(space Space, queue, name string) bool {
	j := m.find(space, queue, name)
	if j == nil {
		return false
	}
	m.counted.Removed++
	j.endLease(ErrLeaseRemoved)
	m.end(j, Removed, "")
	return true
}

func (m *model) drop(queue string) bool {
	if n, _ := m.workers(queue); n > 0 || !m.queues[queue] {
		return false
	}
	for _, j := range m.jobs {
		if j.queue == queue && j.state == reserved {
			return false
		}
	}
	delete(m.queues, queue)
	m.jobs = slices.DeleteFunc(m.jobs, func(j *modelJob) bool {
		if j.queue == queue {
			m.dropped = append(m.dropped, j)
		}
		return j.queue == queue
	})
	for _, j := range m.failedOf(queue) {
		m.dropped = append(m.dropped, j)
		m.failed = slices.DeleteFunc(m.failed, func(o *modelJob) bool { return o == j })
	}
	if r := m.rates[queue]; r != nil {
		m.rates[queue] = &modelRate{rate: r.rate}
	}
	return true
}

// forget ends a peer. The order in which its jobs become ready is free here, see
// TestDisconnectKeepsOrder.
func (m *model) forget(p *modelPeer) {
	p.slots, p.watches = nil, nil
	for _, j := range slices.Concat(m.jobs, m.dropped) {
		j.waits = slices.DeleteFunc(j.waits, func(w modelWait) bool { return w.peer == p })
		if j.holder == p && j.state == reserved {
			m.counted.Abandoned++
			m.back(j, !p.request)
		}
	}
	m.peers = slices.DeleteFunc(m.peers, func(o *modelPeer) bool { return o == p })
}

// back is the end of a run without a report: the job is ready during the verb, or what a policy makes of it.
func (m *model) back(j *modelJob, failed bool) {
	if failed && m.fails(j, true) {
		return
	}
	j.due(m.now.Wall)
	j.state, j.holder, j.run = delayed, nil, Run{}
	m.arrivals(j.queue).loose = append(m.arrivals(j.queue).loose, j)
}

func (m *model) arrivals(queue string) *arrivals {
	if m.arriving[queue] == nil {
		m.arriving[queue] = &arrivals{}
	}
	return m.arriving[queue]
}

// overdue returns when a reserved job times out, never without a time-out.
func (m *model) overdue(j *modelJob) int64 {
	switch {
	case j.lease != nil:
		return j.lease.until
	case j.timeout > 0:
		return j.since + int64(j.timeout)*1000
	case m.timeout > 0:
		return j.since + m.timeout
	}
	return never
}

// tick first makes the delayed jobs ready, by due time, then the overdue ones.
func (m *model) tick() {
	for _, j := range m.jobs {
		if j.state == delayed && m.isDue(j) {
			m.arrivals(j.queue).ordered = append(m.arrivals(j.queue).ordered, j)
		}
	}
	for _, a := range m.arriving {
		slices.SortFunc(a.ordered, func(x, y *modelJob) int {
			if x.second != y.second {
				return 1 - 2*oneIf(x.second < y.second)
			}
			if x.past != y.past {
				return int(x.past - y.past)
			}
			return x.stamp - y.stamp
		})
	}
	for _, j := range slices.Clone(m.jobs) {
		if j.state == reserved && m.overdue(j) <= m.now.Mono {
			m.counted.TimedOut++
			j.endLease(ErrLeaseExpired)
			m.back(j, true)
		}
	}
	m.tickPolicies()
	m.ticked = true
	m.counted.Removed += uint64(len(m.dropped))
	m.leaving, m.dropped = m.dropped, nil
}
