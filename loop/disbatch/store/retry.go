package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// Times of calls to a database that does not answer.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// logEvery is the least time between log lines about an outage, for all waiting calls together.
	logEvery = 10 * time.Second
)

// Retrier repeats calls that the database does not answer, with a back-off. It logs an outage once per logEvery for all
// its calls together. Its methods are safe for concurrent use.
type Retrier struct {
	store  *Store
	log    *slog.Logger
	failed func()

	mu      sync.Mutex
	waiting int       // calls that have failed at least once and continue
	logged  time.Time // time of the last log line about this outage; zero: none
}

// Retrier returns a Retrier for calls of the store. It calls failed, unless nil, after every attempt that fails.
func (s *Store) Retrier(log *slog.Logger, failed func()) *Retrier {
	if failed == nil {
		failed = func() {}
	}
	return &Retrier{store: s, log: log, failed: failed}
}

// Do repeats a call until the database answers it or ctx ends. what names the call in the log. Do repeats a refused
// call too, since most refusals are temporary. It does not repeat a call with an error of TooLarge.
func (r *Retrier) Do(ctx context.Context, what string, call func() error) error {
	return r.repeat(ctx, what, call, func(error) error { return nil })
}

// Connect is Do for the first call of a process. It returns a SettingError if the settings can never reach a usable
// database.
func (r *Retrier) Connect(ctx context.Context, what string, call func() error) error {
	return r.repeat(ctx, what, call, func(err error) error { return r.store.unusable(ctx, err) })
}

// Usable repeats a read until the database answers it. Its errors are those of Connect.
func (r *Retrier) Usable(ctx context.Context) error {
	return r.Connect(ctx, "starting", func() error {
		if _, err := r.store.Node(ctx, ""); !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	})
}

// repeat is Do that also ends if final returns an error for the error of an attempt.
func (r *Retrier) repeat(ctx context.Context, what string, call func() error, final func(error) error) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := call()
		if err == nil || TooLarge(err) {
			if wait > firstRetry {
				r.callEnded(true)
			}
			return err
		}
		r.failed()
		if end := final(err); end != nil {
			if wait > firstRetry {
				r.callEnded(false)
			}
			return end
		}
		r.noteFailure(wait == firstRetry, what, r.store.Explain(err))
		select {
		case <-ctx.Done():
			r.callEnded(false)
			return errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// noteFailure records an attempt that failed, the first of its call or a later one. It logs once per logEvery.
func (r *Retrier) noteFailure(first bool, what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first {
		r.waiting++
	}
	if now := time.Now(); now.Sub(r.logged) >= logEvery {
		r.logged = now
		r.log.Warn("the database does not answer, trying again", "for", what, "waiting", r.waiting, "error", err.Error())
	}
}

// callEnded records the end of a call that has failed at least once.
func (r *Retrier) callEnded(answered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting--; r.waiting == 0 && answered {
		r.log.Info("the database answers again")
		r.logged = time.Time{}
	}
}
