package admin

import (
	"cmp"
	"container/heap"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// errNoQueue answers a request about a queue that there is not.
var errNoQueue = errors.New("there is no queue of that name: no job was submitted to it, and no worker serves it")

// getQueues answers with a page of the queues, by name, or with one queue.
func (i *Interface) getQueues(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(q.Get("limit"), defaultPage)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(q.Get("after"))
	if err != nil {
		return nil, badf("the cursor %q is none that a page has", q.Get("after"))
	}
	if q.Has("queue") {
		s, ok := i.host.Sched().StatusOf(protocol.Queue([]byte(q.Get("queue"))))
		if !ok {
			return nil, &notFound{errNoQueue}
		}
		return &codec.Queues{Queues: []codec.Queue{queueOf(&s, i.policies())}}, nil
	}
	first := firstQueues{limit: limit}
	i.host.Sched().Status(func(s sched.QueueStatus) {
		switch {
		case !strings.HasPrefix(protocol.Unescape(s.Name), q.Get("prefix")):
		case len(after) == 0 || s.Name > string(after):
			first.add(s)
		}
	})
	slices.SortFunc(first.all, func(a, b sched.QueueStatus) int { return cmp.Compare(a.Name, b.Name) })
	page := &codec.Queues{Queues: []codec.Queue{}}
	table := i.policies()
	for _, s := range first.all {
		page.Queues = append(page.Queues, queueOf(&s, table))
	}
	if first.more {
		page.Next = base64.RawURLEncoding.EncodeToString([]byte(first.all[len(first.all)-1].Name))
	}
	return page, nil
}

// queueOf returns a queue as JSON has it.
func queueOf(s *sched.QueueStatus, table *sched.Policies) codec.Queue {
	q := codec.Queue{
		Workers: s.Workers, Delayed: s.Delayed, Running: s.Running, Locked: s.Parked, Waiting: s.Waiting, Failed: s.Failed, Done: s.Done,
		Ready: s.Ready(),
	}
	q.Queue, q.QueueBytes = codec.Name(protocol.Unescape(s.Name))
	showPause(&q, table, s.Name)
	return q
}

// showPause says of a queue what its policy says of a pause. name is the queue's in the scheduler.
func showPause(q *codec.Queue, table *sched.Policies, name string) {
	for _, v := range table.Explain(name) {
		switch v.Key {
		case pausedKey:
			q.Paused = v.Value
		case pausedByKey:
			q.PausedBy = v.Value
		case pausedWhyKey:
			q.PausedWhy = v.Value
		}
	}
}

// firstQueues are the first queues by name of those that were added. It implements heap.Interface: the last by name is
// on top.
type firstQueues struct {
	all   []sched.QueueStatus
	limit int
	more  bool // some were left out
}

func (f *firstQueues) add(s sched.QueueStatus) {
	switch {
	case len(f.all) < f.limit:
		heap.Push(f, s)
	case s.Name < f.all[0].Name:
		f.all[0], f.more = s, true
		heap.Fix(f, 0)
	default:
		f.more = true
	}
}

// Len implements sort.Interface.
func (f *firstQueues) Len() int { return len(f.all) }

// Less implements sort.Interface.
func (f *firstQueues) Less(i, j int) bool { return f.all[i].Name > f.all[j].Name }

// Swap implements sort.Interface.
func (f *firstQueues) Swap(i, j int) { f.all[i], f.all[j] = f.all[j], f.all[i] }

// Push implements heap.Interface.
func (f *firstQueues) Push(s any) { f.all = append(f.all, s.(sched.QueueStatus)) }

// Pop implements heap.Interface.
func (f *firstQueues) Pop() any {
	last := f.all[len(f.all)-1]
	f.all = f.all[:len(f.all)-1]
	return last
}
