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

// sharedHistory are the history of the server, which request handlers and one goroutine share.
type sharedHistory struct {
	mu sync.Mutex
	h  history.History
}

// rates returns the rates of a queue, or of all jobs; nil when there are none yet.
func (api *API) rates(queue string, all bool) *codec.Rates {
	api.rings.mu.Lock()
	defer api.rings.mu.Unlock()
	submitted, done, failed, ok := api.rings.h.Rates(queue, all)
	if !ok {
		return nil
	}
	return &codec.Rates{Submitted: submitted, Done: done, Failed: failed}
}

// keepHistory reads the queues until ctx ends.
func (api *API) keepHistory(ctx context.Context) {
	for wait := readEvery; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		api.readQueues()
		wait = max(readEvery, restAfter*time.Since(began))
	}
}

// readQueues adds what the queues are at now to the history.
func (api *API) readQueues() {
	now := api.host.Now()
	second := now.Mono/1000 + 1 // of a server in its first second, too
	var counted []sched.QueueStats
	total := history.Counts{}
	oldest := int64(math.MaxInt64)
	api.host.Sched().Measure(func(s *sched.QueueStats) {
		total.Ready, total.Running, oldest = total.Ready+s.Ready, total.Running+s.Running, min(oldest, s.Oldest)
		if s.Counted {
			counted = append(counted, *s)
		}
	})
	stats := api.host.Sched().Stats()
	total.Submitted, total.Done, total.Failed = stats.Submitted, stats.Done, stats.RunsFailed+stats.TimedOut+stats.Abandoned
	if oldest != math.MaxInt64 {
		total.Oldest = now.Wall/1000 - oldest
	}
	api.rings.mu.Lock()
	defer api.rings.mu.Unlock()
	if !api.rings.h.Begin(second) {
		return
	}
	api.rings.h.Total(&total)
	for k := range counted {
		q := api.sumOf(&counted[k], now)
		api.rings.h.Add(counted[k].Name, &history.Counts{
			Submitted: q.SubmittedTotal, Done: q.DoneTotal, Failed: q.FailedTotal, Ready: q.Ready, Running: q.Running, Oldest: q.Oldest,
		})
	}
	api.rings.h.End()
}

// getHistory answers with what the jobs of a queue, or all jobs, did in a span.
func (api *API) getHistory(r *http.Request) (any, error) {
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
	api.rings.mu.Lock()
	defer api.rings.mu.Unlock()
	slots, last, ok := api.rings.h.View(queue, all, span, join)
	if !ok {
		return nil, &notFound{errNoHistory}
	}
	now := api.host.Now()
	h := &codec.History{Span: names[span], Step: history.Spans[span].Step * join, Slots: []codec.HistorySlot{}}
	h.End = now.Wall + (last-1)*1000 - now.Mono
	for _, s := range slots {
		h.Slots = append(h.Slots, codec.HistorySlot(s))
	}
	return h, nil
}

// errNoHistory answers a request about a queue without a history.
var errNoHistory = errors.New("no history is kept of this queue: only the busiest have one, once they have been there for a second")
