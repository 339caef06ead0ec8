package admin

import (
	"cmp"
	"container/heap"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"

	codec "treadle/codec/admin"
	"treadle/loop/admin/history"
	"treadle/loop/protocol"
	"treadle/sched"
)

// errNoQueue answers a request about a queue that there is not.
var errNoQueue = errors.New("there is no queue of that name: no job was submitted to it, and no worker serves it")

// getQueues answers with a page of the queues, in the order of sort, or with one queue.
func (api *API) getQueues(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(q.Get("limit"), defaultPage)
	if err != nil {
		return nil, err
	}
	if q.Has("queue") {
		s, ok := api.host.Sched().StatsOf(protocol.Queue([]byte(q.Get("queue"))))
		if !ok {
			return nil, &notFound{errNoQueue}
		}
		return &codec.Queues{Queues: []codec.Queue{api.queueOf(&s, api.host.Now(), api.policies())}, Of: 1}, nil
	}
	order, ok := queueOrders[cmp.Or(q.Get("sort"), "name")]
	if !ok {
		return nil, badf("sort is name, ready, running, delayed, failed, done, workers, oldest, submitted or finished, not %.64q", q.Get("sort"))
	}
	first := firstQueues{limit: limit}
	if first.after, err = parsePlace(q.Get("after")); err != nil {
		return nil, err
	}
	prefix, part := q.Get("prefix"), strings.ToLower(q.Get("contains"))
	api.rings.mu.Lock() // here, so that no lock of a shard waits for it
	api.host.Sched().Measure(func(s *sched.QueueStats) {
		name := protocol.Unescape(s.Name)
		if strings.HasPrefix(name, prefix) && (part == "" || strings.Contains(strings.ToLower(name), part)) {
			first.of++
			first.add(order(&api.rings.h, s), s)
		}
	})
	api.rings.mu.Unlock()
	slices.SortFunc(first.all, func(a, b placed) int { return a.compare(&b.place) })
	page, now, table := &codec.Queues{Queues: []codec.Queue{}, Of: first.of}, api.host.Now(), api.policies()
	for n := range first.all {
		page.Queues = append(page.Queues, api.queueOf(&first.all[n].stats, now, table))
	}
	if first.more {
		page.Next = first.all[len(first.all)-1].String()
	}
	return page, nil
}

// queueOrders are the orders of the queues by their names: each queue has a value, and the largest comes first.
var queueOrders = map[string]func(*history.History, *sched.QueueStats) int64{
	"name":    func(*history.History, *sched.QueueStats) int64 { return 0 },
	"ready":   func(_ *history.History, s *sched.QueueStats) int64 { return int64(s.Ready) },
	"running": func(_ *history.History, s *sched.QueueStats) int64 { return int64(s.Running) },
	"delayed": func(_ *history.History, s *sched.QueueStats) int64 { return int64(s.Delayed) },
	"failed":  func(_ *history.History, s *sched.QueueStats) int64 { return int64(s.Failed) },
	"done":    func(_ *history.History, s *sched.QueueStats) int64 { return int64(s.Done) },
	"workers": func(_ *history.History, s *sched.QueueStats) int64 { return int64(s.Workers) },
	"oldest":  func(_ *history.History, s *sched.QueueStats) int64 { return -s.Oldest },
	"submitted": func(h *history.History, s *sched.QueueStats) int64 {
		submitted, _, _, _ := h.Rates(s.Name, false)
		return int64(1000 * submitted)
	},
	"finished": func(h *history.History, s *sched.QueueStats) int64 {
		_, done, _, _ := h.Rates(s.Name, false)
		return int64(1000 * done)
	},
}

// queueOf returns a queue as JSON has it.
func (api *API) queueOf(s *sched.QueueStats, now sched.Time, table *sched.Policies) codec.Queue {
	q := api.sumOf(s, now)
	q.Queue, q.QueueBytes = codec.Name(protocol.Unescape(s.Name))
	fillPause(&q, table, s.Name)
	if left := s.PausedUntil - now.Mono; s.Paused == 0 && left > 0 {
		if q.Paused == "submits" { // by a policy, whose reason stays
			q.Paused = "both"
		} else {
			q.Paused, q.PausedBy, q.PausedWhy = "hand-out", "pause-tube", "for "+wait(left)
		}
	}
	if s.Counted {
		q.Rates = api.rates(s.Name, false)
	}
	return q
}

// sumOf is queueOf without what a sum of queues does not have: a name, a pause and rates.
func (api *API) sumOf(s *sched.QueueStats, now sched.Time) codec.Queue {
	q := codec.Queue{
		Workers: s.Workers, Busy: s.Busy, Ready: s.Ready, Delayed: s.Delayed, Running: s.Running, Locked: s.Parked, Waiting: s.Waiting,
		Failed: s.Failed, Done: s.Done, Counted: s.Counted, DoneTotal: s.Tally.Ended[sched.EndDone],
		FailedTotal: s.Tally.Ended[sched.EndFailed] + s.Tally.Ended[sched.EndTimedOut],
	}
	for space, n := range s.Tally.Submitted {
		if q.SubmittedTotal += n; n > 0 && !slices.Contains(q.Protocols, api.host.Spaces()[space].Protocol) {
			q.Protocols = append(q.Protocols, api.host.Spaces()[space].Protocol)
		}
	}
	if s.Oldest != math.MaxInt64 {
		q.Oldest = max(now.Wall/1000-s.Oldest, 0)
	}
	return q
}

// fillPause sets the pause of a queue from its policy. name is the queue's in the scheduler.
func fillPause(q *codec.Queue, table *sched.Policies, name string) {
	for _, v := range table.Explain(name) {
		switch v.Key {
		case sched.KeyPaused:
			q.Paused = v.Value
		case sched.KeyPausedBy:
			q.PausedBy = v.Value
		case sched.KeyPausedWhy:
			q.PausedWhy = v.Value
		}
	}
}

// place is where a queue stands in an order. It is the cursor of a page.
type place struct {
	value int64
	name  string
}

// compare orders the largest value first, and queues of one value by name.
func (p *place) compare(q *place) int {
	return cmp.Or(cmp.Compare(q.value, p.value), cmp.Compare(p.name, q.name))
}

// String returns the cursor.
func (p *place) String() string {
	return base64.RawURLEncoding.EncodeToString(append(binary.AppendVarint(nil, p.value), p.name...))
}

// parsePlace reads a cursor; nil: the page is the first.
func parsePlace(text string) (*place, error) {
	if text == "" {
		return nil, nil
	}
	all, err := base64.RawURLEncoding.DecodeString(text)
	value, n := binary.Varint(all)
	if err != nil || n <= 0 {
		return nil, badf("the cursor %.100q is none that a page has", text)
	}
	return &place{value, string(all[n:])}, nil
}

// placed is a queue at its place.
type placed struct {
	place
	stats sched.QueueStats
}

// firstQueues are the first of the added queues, in order, behind a place. It implements heap.Interface: the last in
// order is on top.
type firstQueues struct {
	all   []placed
	after *place // nil: none
	limit int
	leave func(*sched.QueueStats) // is called with each that is left out; nil: none is told
	of    int                     // queues that match
	more  bool                    // some were left out
}

// add adds a queue that has a value in the order. It keeps a copy of s.
func (f *firstQueues) add(value int64, s *sched.QueueStats) {
	p := placed{place: place{value, s.Name}}
	switch {
	case f.after != nil && p.compare(f.after) <= 0: // of an earlier page
	case len(f.all) < f.limit:
		p.stats = *s
		heap.Push(f, p)
	case p.compare(&f.all[0].place) < 0:
		f.leaveOut(&f.all[0].stats)
		p.stats = *s
		f.all[0] = p
		heap.Fix(f, 0)
	default:
		f.leaveOut(s)
	}
}

func (f *firstQueues) leaveOut(s *sched.QueueStats) {
	if f.more = true; f.leave != nil {
		f.leave(s)
	}
}

// Len implements sort.Interface.
func (f *firstQueues) Len() int { return len(f.all) }

// Less implements sort.Interface.
func (f *firstQueues) Less(i, j int) bool { return f.all[i].compare(&f.all[j].place) > 0 }

// Swap implements sort.Interface.
func (f *firstQueues) Swap(i, j int) { f.all[i], f.all[j] = f.all[j], f.all[i] }

// Push implements heap.Interface.
func (f *firstQueues) Push(s any) { f.all = append(f.all, s.(placed)) }

// Pop implements heap.Interface.
func (f *firstQueues) Pop() any {
	last := f.all[len(f.all)-1]
	f.all = f.all[:len(f.all)-1]
	return last
}
