package admin

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/admin/history"
	"treadle/loop/protocol"
	"treadle/sched"
)

const (
	// readEvery is the time between two readings of the queues for the history.
	readEvery = time.Second
	// restAfter is how many times as long as a reading took the next one waits at least: with very many queues,
	// readings take at most a hundredth of a processor.
	restAfter = 100
	// recentStep is the step of a Recent, in seconds.
	recentStep = 5
)

// rings are the history of the server, which request handlers and one goroutine share.
type rings struct {
	mu sync.Mutex
	h  history.History
}

// rates returns the rates of a queue, or of all jobs; nil when there are none yet.
func (i *Interface) rates(queue string, all bool) *codec.Rates {
	i.rings.mu.Lock()
	defer i.rings.mu.Unlock()
	submitted, done, failed, ok := i.rings.h.Rates(queue, all)
	if !ok {
		return nil
	}
	return &codec.Rates{Submitted: submitted, Done: done, Failed: failed}
}

// keepHistory reads the queues until ctx ends.
func (i *Interface) keepHistory(ctx context.Context) {
	for wait := readEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		i.readQueues()
		wait = max(readEvery, restAfter*time.Since(began))
	}
}

// readQueues adds what the queues are at now to the history.
func (i *Interface) readQueues() {
	now := i.host.Now()
	second := now.Mono/1000 + 1 // of a server in its first second, too
	var counted []sched.QueueStats
	total := history.Counts{}
	oldest := int64(math.MaxInt64)
	i.host.Sched().Measure(func(s *sched.QueueStats) {
		total.Ready, total.Running, oldest = total.Ready+s.Ready, total.Running+s.Running, min(oldest, s.Oldest)
		if s.Counted {
			counted = append(counted, *s)
		}
	})
	stats := i.host.Sched().Stats()
	total.Submitted, total.Done, total.Failed = stats.Submitted, stats.Done, stats.Fails+stats.TimedOut+stats.Abandoned
	if oldest != math.MaxInt64 {
		total.Oldest = now.Wall/1000 - oldest
	}
	i.rings.mu.Lock()
	defer i.rings.mu.Unlock()
	if !i.rings.h.Begin(second) {
		return
	}
	i.rings.h.Total(&total)
	for k := range counted {
		q := i.sumOf(&counted[k], now)
		i.rings.h.Add(counted[k].Name, &history.Counts{
			Submitted: q.Submitted, Done: q.Finished, Failed: q.GivenUp, Ready: q.Ready, Running: q.Running, Oldest: q.Oldest,
		})
	}
	i.rings.h.End()
}

// getHistory answers with what the jobs of a queue, or all jobs, did in a span.
func (i *Interface) getHistory(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	span, names := 0, []string(nil)
	for _, s := range history.Spans {
		names = append(names, s.Name)
	}
	if name := q.Get("span"); name != "" {
		if span = slices.Index(names, name); span < 0 {
			return nil, badf("span is one of %s, not %.64q", strings.Join(names, ", "), name)
		}
	}
	all, queue := !q.Has("queue"), string(protocol.Queue([]byte(q.Get("queue"))))
	join := 1
	if q.Get("step") == "5s" {
		if join = recentStep; span > 0 {
			return nil, badf("a step of 5s is for the span 5m")
		}
	} else if q.Has("step") {
		return nil, badf("step is 5s, not %.64q", q.Get("step"))
	}
	i.rings.mu.Lock()
	defer i.rings.mu.Unlock()
	slots, last, ok := i.rings.h.View(queue, all, span, join)
	if !ok {
		return nil, &notFound{errNoHistory}
	}
	now := i.host.Now()
	h := &codec.History{Span: names[span], Step: history.Spans[span].Step * join, Slots: []codec.HistorySlot{}}
	h.End = now.Wall + (last-1)*1000 - now.Mono
	for _, s := range slots {
		h.Slots = append(h.Slots, codec.HistorySlot(s))
	}
	return h, nil
}

// errNoHistory answers a request about a queue without a history.
var errNoHistory = errors.New("no history is kept of this queue: only the busiest have one, once they have been there for a second")
