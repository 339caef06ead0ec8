package loop

import (
	"context"
	"time"
)

// blockingCalls is how goroutines of requests wait, and how work that outlasts them is begun. Each function has the
// contract of the method of admin.Host that calls it. Offline replaces them, so that one goroutine runs at a time.
type blockingCalls struct {
	awaitGroup func(group uint64) error
	awaitToken func(ctx context.Context, closed, woken <-chan struct{}, limit time.Duration) bool
	start      func(work func())
	yield      func(began time.Time) time.Time
}

func newBlockingCalls(s *Server) blockingCalls {
	return blockingCalls{s.awaitCommit, awaitToken, func(work func()) { go work() }, yield}
}

// awaitToken implements admin.Host's Wait.
func awaitToken(ctx context.Context, closed, woken <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-woken:
		return true
	case <-timer.C:
	case <-ctx.Done():
	case <-closed:
	}
	return false
}

// longPart is the shortest part of work after which other goroutines come first. It is longer than a sleep is late.
// Where all processors are busy, an arrived message waits as long.
const longPart = 250 * time.Microsecond

// yield implements admin.Host's Yield.
func yield(began time.Time) time.Time {
	worked := time.Since(began)
	if worked < longPart {
		return began
	}
	time.Sleep(worked)
	return time.Now()
}
