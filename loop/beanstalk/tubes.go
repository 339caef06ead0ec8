package beanstalk

import (
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	codec "treadle/codec/beanstalk"
	"treadle/sched"
)

const (
	// defaultTube is the tube that every connection uses and watches at first.
	defaultTube = "default"
	// maxWatched bounds the tubes that a connection watches, as the scheduler does.
	maxWatched = 64 << 10
	// maxTubes bounds the tubes in the table, which take about 300 bytes each and are copied for a list-tubes. Tubes
	// that have jobs and neither connections nor counts are not among them.
	maxTubes = 256 << 10
	// tubesPerCost is how many tubes are compared or counted in the time of one unit of Session.Cost.
	tubesPerCost = 32
	// freedAtOnce is how many unused tubes are looked for each time that one is made. More than one keeps the table
	// short.
	freedAtOnce = 2
)

// tube is what the protocol counts of a queue, beside the scheduler.
type tube struct {
	name  string
	queue []byte // the same

	using, watching        atomic.Int64 // connections; changed under the lock of tubes
	waiting                atomic.Int64 // connections
	puts, deletes, pauses  atomic.Uint64
	pausedFor, pausedUntil atomic.Int64 // seconds of the last pause-tube, and Mono of its end
}

func (t *tube) paused(now sched.Time) bool { return t.pausedUntil.Load() > now.Mono }

func (t *tube) used() bool { return t.using.Load()+t.watching.Load() > 0 }

// tubes are the tubes that connections use or watch, and former ones with jobs: a tube keeps its counts as long as it
// has jobs.
type tubes struct {
	sched *sched.Scheduler

	mu     sync.Mutex
	byName map[string]*tube
}

func (s *tubes) init(scheduler *sched.Scheduler) {
	s.sched, s.byName = scheduler, make(map[string]*tube)
}

// getOrMake returns the tube of a name, made when it is missing or has ended, nil when there are too many. The caller
// holds the lock.
func (s *tubes) getOrMake(name string) *tube {
	t := s.byName[name]
	if t != nil && name != defaultTube && !t.used() && !s.hasQueue(t.queue) {
		delete(s.byName, name) // its last connection had jobs or watched it in the scheduler when it left
		t = nil
	}
	if t == nil {
		if s.freeUnused(); len(s.byName) >= maxTubes {
			return nil
		}
		t = &tube{name: name, queue: []byte(name)}
		s.byName[name] = t
	}
	return t
}

// freeUnused looks at a few tubes, which differ each time, and frees those that have neither connections nor jobs.
func (s *tubes) freeUnused() {
	left := freedAtOnce
	for name, t := range s.byName {
		if !t.used() && !s.hasQueue(t.queue) {
			delete(s.byName, name)
		}
		if left--; left == 0 {
			return
		}
	}
}

func (s *tubes) hasQueue(queue []byte) bool {
	_, ok := s.sched.StatusOf(queue)
	return ok
}

// use counts a connection that uses a tube. It returns nil when there are too many tubes.
func (s *tubes) use(name string) *tube {
	return s.enter(name, func(t *tube) *atomic.Int64 { return &t.using })
}

func (s *tubes) unuse(now sched.Time, t *tube) { s.leave(now, t, &t.using) }

// watch counts a connection that watches a tube. It returns nil when there are too many tubes.
func (s *tubes) watch(name string) *tube {
	return s.enter(name, func(t *tube) *atomic.Int64 { return &t.watching })
}

func (s *tubes) unwatch(now sched.Time, t *tube) { s.leave(now, t, &t.watching) }

func (s *tubes) enter(name string, count func(*tube) *atomic.Int64) *tube {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.getOrMake(name)
	if t != nil {
		count(t).Add(1)
	}
	return t
}

// leave counts a connection that leaves a tube. A tube that nothing is left of ends, and its pause with it.
func (s *tubes) leave(now sched.Time, t *tube, count *atomic.Int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if count.Add(-1); t.used() {
		return
	}
	st, exists := s.sched.StatusOf(t.queue)
	if exists && st.Jobs+st.Failed+st.Done+st.Workers == 0 && t.paused(now) && t.name != defaultTube {
		_ = s.sched.PauseFor(now, t.queue, 0) // it fails when the queue has just gone
		exists = false
	}
	if !exists {
		delete(s.byName, t.name)
	}
}

// keepPause pauses the queue of a paused tube before it gets a job. The queue and its pause may have gone with its last
// job.
func (s *tubes) keepPause(now sched.Time, t *tube) {
	if t.paused(now) {
		_ = s.sched.PauseFor(now, t.queue, t.pausedUntil.Load()-now.Mono) // the verb that follows fails for the same reason
	}
}

// find returns the tube of a name. ok is false when it is not in the table.
func (s *tubes) find(name string) (t *tube, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok = s.byName[name]
	return t, ok
}

// tubeFor returns the tube of a name, made when it is missing. Of too many tubes it returns one that is not in the
// table.
func (s *tubes) tubeFor(name string) *tube {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.getOrMake(name); t != nil {
		return t
	}
	return new(tube)
}

// exists reports whether there is a tube of a name: it is used or watched, or has jobs. default always exists.
func (s *tubes) exists(name []byte) bool {
	if string(name) == defaultTube || s.hasQueue(name) {
		return true
	}
	t, ok := s.find(string(name))
	return ok && t.used()
}

// inUse returns the names of default and of the tubes that are used or watched.
func (s *tubes) inUse() []string {
	names := []string{defaultTube}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, t := range s.byName {
		if name != defaultTube && t.used() {
			names = append(names, name)
		}
	}
	return names
}

// size returns how many tubes are in the table.
func (s *tubes) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byName)
}

// tubeOf returns the tube of a queue, mostly one that the connection uses or watches.
func (c *conversation) tubeOf(queue string) *tube {
	if c.used.name == queue {
		return c.used
	}
	if len(c.watched) <= tubesPerCost {
		for _, t := range c.watched {
			if t.name == queue {
				return t
			}
		}
	}
	return c.p.tubes.tubeFor(queue)
}

// use changes the tube that puts, kicks and peeks are for.
func (c *conversation) use(name []byte) {
	if string(name) != c.used.name {
		t := c.p.tubes.use(string(name))
		if t == nil {
			c.refuse(sched.ErrQueues)
			return
		}
		c.p.tubes.unuse(c.s.Loop.Now, c.used)
		c.used = t
	}
	c.reply(codec.AppendUsing(c.scratch(), c.used.name))
}

// watchedAt returns the index of a tube among the watched tubes of the connection, or -1.
func (c *conversation) watchedAt(name []byte) int {
	c.s.Cost += len(c.watched) / tubesPerCost
	return slices.IndexFunc(c.watched, func(t *tube) bool { return t.name == string(name) })
}

// watch adds a tube to the tubes from which the connection reserves.
func (c *conversation) watch(name []byte) {
	if c.watchedAt(name) < 0 {
		if len(c.watched) >= maxWatched {
			c.refuse(sched.ErrWatches)
			return
		}
		t := c.p.tubes.watch(string(name))
		if t == nil {
			c.refuse(sched.ErrQueues)
			return
		}
		if c.worker {
			loop := c.s.Loop
			c.p.tubes.keepPause(loop.Now, t)
			if err := c.p.sched.Watch(loop.Now, c.s.Peer(), t.queue, false, loop.Sink); err != nil {
				c.p.tubes.unwatch(loop.Now, t)
				c.refuse(err)
				return
			}
		}
		c.watched = append(c.watched, t)
	}
	c.replyWatching()
}

func (c *conversation) replyWatching() {
	c.reply(codec.AppendCount(c.scratch(), codec.Watching, uint64(len(c.watched))))
}

// ignore takes the last tube to the place of one that is no longer watched, as beanstalkd does.
func (c *conversation) ignore(name []byte) {
	i := c.watchedAt(name)
	if i >= 0 && len(c.watched) == 1 {
		c.replyWord(codec.NotIgnored)
		return
	}
	if i >= 0 {
		t, last := c.watched[i], len(c.watched)-1
		c.watched[i], c.watched[last] = c.watched[last], nil
		c.watched = c.watched[:last]
		if c.worker {
			c.p.sched.Unwatch(c.s.Peer(), t.queue)
		}
		c.p.tubes.unwatch(c.s.Loop.Now, t)
	}
	c.replyWatching()
}

// pauseTube has a tube that exists hand out nothing for a time.
func (c *conversation) pauseTube(r *codec.Request) {
	if !c.p.tubes.exists(r.Tube) {
		c.replyWord(codec.NotFound)
		return
	}
	now, ms := c.s.Loop.Now, int64(r.Delay)*1000
	if err := c.p.sched.PauseFor(now, r.Tube, ms); err != nil {
		c.refuse(err)
		return
	}
	t := c.p.tubes.tubeFor(string(r.Tube))
	t.pauses.Add(1)
	t.pausedFor.Store(int64(r.Delay))
	t.pausedUntil.Store(now.Mono + ms)
	c.replyWord(codec.Paused)
}

// The head of all data, and the beginning of the lines of a list.
const (
	head = "---\n"
	item = "- "
)

func appendItem(dst []byte, name string) []byte {
	return append(append(append(dst, item...), name...), '\n')
}

func (c *conversation) listWatched() {
	data := append([]byte(nil), head...)
	for _, t := range c.watched {
		data = appendItem(data, t.name)
	}
	c.s.Cost += len(c.watched) / tubesPerCost
	c.reply(codec.AppendData(c.scratch(), data))
}

// tubeListing is a list-tubes that goes on in a later turn.
type tubeListing struct {
	inUse  []string // tubes that may be no queues and are not listed yet
	cursor sched.Cursor
	data   []byte
}

// listTubes lists a batch of queues at a time. Queues whose names are none of tubes are left out. It returns false
// when it goes on in a later turn.
func (c *conversation) listTubes() (done bool) {
	l := c.listing
	if l == nil {
		l = &tubeListing{data: append([]byte(nil), head...), inUse: c.p.tubes.inUse()}
		slices.Sort(l.inUse)
	}
	c.listing = nil
	for done = false; !done; {
		n := 0
		if len(l.inUse) > 0 {
			n = min(len(l.inUse), listedAtOnce)
			l.addUnqueued(c.p, n)
		} else {
			l.cursor, done = c.p.sched.StatusSome(l.cursor, func(q sched.QueueStatus) {
				if n++; codec.ValidTube(q.Name) {
					l.data = appendItem(l.data, q.Name)
				}
			})
		}
		c.s.Cost += n
		if len(l.data) > c.p.host.Limits().MaxOutbound {
			c.replyWord(codec.OutOfMemory)
			return true
		}
		if !done && c.s.PauseIfCostly() {
			c.listing = l
			return false
		}
	}
	c.reply(codec.AppendData(nil, l.data))
	return true
}

// listedAtOnce is how many tubes are looked up before a listing looks at its cost.
const listedAtOnce = 256

// addUnqueued lists, of the next n tubes in use, the tubes that are no queues.
func (l *tubeListing) addUnqueued(p *Protocol, n int) {
	for _, name := range l.inUse[:n] {
		if !p.tubes.hasQueue([]byte(name)) {
			l.data = appendItem(l.data, name)
		}
	}
	l.inUse = l.inUse[n:]
}

func appendNumber[T int | int64 | uint64 | uint32](dst []byte, key string, n T) []byte {
	dst = append(append(dst, key...), ": "...)
	if n < 0 {
		dst = strconv.AppendInt(dst, int64(n), 10)
	} else {
		dst = strconv.AppendUint(dst, uint64(n), 10)
	}
	return append(dst, '\n')
}

func appendText(dst []byte, key, text string) []byte {
	return append(append(append(append(dst, key...), ": "...), text...), '\n')
}
