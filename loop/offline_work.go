//go:build invariants

package loop

import (
	"context"
	"errors"
	"slices"
	"time"
)

// offlineWork is a call, or what a call has begun. It has a goroutine, as in a server with sockets, that never runs at
// the same time as anything else: the function that lets it continue waits until it has ended or waits again.
type offlineWork struct {
	parked chan offlineWait // receives what the work waits for
	resume chan error       // ends that wait
	ended  chan struct{}    // closed at the end of the work
	after  func()           // runs then
	wait   offlineWait
}

// offlineWait is what work waits for: a group of the journal, or a token.
type offlineWait struct {
	group uint64

	token         bool // these count, and not group
	ctx           context.Context
	closed, woken <-chan struct{}
	until         int64 // Mono
}

// errNoToken ends a wait without its token.
var errNoToken = errors.New("no token came in time")

// newBlockingCalls lets the goroutines of calls wait in turns.
func (o *Offline) newBlockingCalls() blockingCalls {
	return blockingCalls{
		awaitGroup: func(group uint64) error { return o.park(offlineWait{group: group}) },
		awaitToken: func(ctx context.Context, closed, woken <-chan struct{}, limit time.Duration) bool {
			until := o.time.Mono + max(limit.Milliseconds(), 1)
			return o.park(offlineWait{token: true, ctx: ctx, closed: closed, woken: woken, until: until}) == nil
		},
		start: func(work func()) { o.begun = append(o.begun, work) },
		yield: func(began time.Time) time.Time {
			_ = o.park(offlineWait{token: true, ctx: context.Background(), until: o.time.Mono + 1}) // it goes on when time passes
			return began
		},
	}
}

// newWork makes work that start starts.
func (o *Offline) newWork(do func()) *offlineWork {
	w := &offlineWork{parked: make(chan offlineWait), resume: make(chan error), ended: make(chan struct{}), after: func() {}}
	go func() {
		defer close(w.ended)
		if <-w.resume == nil {
			do()
		}
	}()
	return w
}

// start begins work.
func (o *Offline) start(w *offlineWork) { o.resume(w, nil) }

// resume ends the wait of work, and returns when the work waits again or has ended.
func (o *Offline) resume(w *offlineWork, why error) {
	o.working, w.wait = w, offlineWait{}
	w.resume <- why
	select {
	case w.wait = <-w.parked:
		o.works = append(o.works, w)
	case <-w.ended:
		w.after()
	}
}

// park waits in the work that runs.
func (o *Offline) park(wait offlineWait) error {
	w := o.working
	w.parked <- wait
	return <-w.resume
}

// resumeNext resumes the first work whose wait is over, or else starts the next work in begun. It returns false when
// there is neither.
func (o *Offline) resumeNext() bool {
	for i, w := range o.works {
		if why, over := o.isOver(&w.wait); over {
			o.works = slices.Delete(o.works, i, i+1)
			o.resume(w, why)
			return true
		}
	}
	if len(o.begun) == 0 {
		return false
	}
	next := o.begun[0]
	o.begun = o.begun[1:]
	o.start(o.newWork(next))
	return true
}

// isOver reports whether a wait has ended. why is nil when its group was committed or its token came.
func (o *Offline) isOver(w *offlineWait) (why error, over bool) {
	if !w.token {
		failed := o.server.failure.Load()
		switch {
		case w.group <= o.server.journal.committed():
			return nil, true
		case failed != nil:
			return failed, true
		}
		return nil, false
	}
	ended := o.closing || w.ctx.Err() != nil || o.time.Mono >= w.until
	if len(w.woken) > 0 && (!ended || o.pick == nil || o.pick(2) == 0) { // as a select with two cases
		<-w.woken
		return nil, true
	}
	return errNoToken, ended
}

// nextWork returns the Mono at which the next wait is over.
func (o *Offline) nextWork() int64 {
	next := o.time.Mono + maxNextWork
	for _, w := range o.works {
		if w.wait.token {
			next = min(next, w.wait.until)
		}
	}
	return next
}

// maxNextWork is for how many milliseconds nothing is due when nothing waits.
const maxNextWork = 1 << 40

// endWork ends all waits, as the end of the process does.
func (o *Offline) endWork() {
	o.begun = nil
	for len(o.works) > 0 {
		w := o.works[0]
		o.works = o.works[1:]
		w.after = func() {}
		o.resume(w, errStopping)
	}
}
