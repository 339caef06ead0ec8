package disbatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/mongo"
	"go.mongodb.org/mongo-driver/x/mongo/driver"
)

// Times of calls that wait for a database that does not answer.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// logEvery is the time between lines of log about it, however many calls wait.
	logEvery = 10 * time.Second
)

// Retrier repeats calls that the database does not answer, with a back-off, and logs such an outage now and then, however
// many calls wait. Its methods may be called by several goroutines.
type Retrier struct {
	store  *Store
	log    *slog.Logger
	failed func()

	mu      sync.Mutex
	waiting int       // calls that were made at least once and not answered
	logged  time.Time // when there was a line about it
}

// Retrier returns one for calls of the store. Unless it is nil, failed is called for every call that failed.
func (s *Store) Retrier(log *slog.Logger, failed func()) *Retrier {
	if failed == nil {
		failed = func() {}
	}
	return &Retrier{store: s, log: log, failed: failed}
}

// Do repeats a call until the database answers it or ctx ends; what names the call in the log. What the database
// refuses is repeated as well, since most of its refusals pass, save what can never fit: see TooLarge.
func (r *Retrier) Do(ctx context.Context, what string, call func() error) error {
	return r.repeat(ctx, what, call, func(error) error { return nil })
}

// Connect is Do for the first calls of a process: it ends with a SettingError when the database can never be used with
// these settings.
func (r *Retrier) Connect(ctx context.Context, what string, call func() error) error {
	return r.repeat(ctx, what, call, func(err error) error { return r.store.unusable(ctx, err) })
}

// Usable waits until the database answers a read, and ends with a SettingError when it never will with these settings.
func (r *Retrier) Usable(ctx context.Context) error {
	return r.Connect(ctx, "starting", func() error {
		if _, err := r.store.Node(ctx, ""); !errors.Is(err, ErrNotFound) {
			return err
		}
		return nil
	})
}

// repeat is Do that also ends with what final makes of an error, if that is one.
func (r *Retrier) repeat(ctx context.Context, what string, call func() error, final func(error) error) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := call()
		if err == nil || TooLarge(err) {
			if wait > firstRetry {
				r.over(true)
			}
			return err
		}
		r.failed()
		if end := final(err); end != nil {
			if wait > firstRetry {
				r.over(false)
			}
			return end
		}
		r.outage(wait == firstRetry, what, r.store.Explain(err))
		select {
		case <-ctx.Done():
			r.over(false)
			return errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// outage notes a call that was not answered, and logs it now and then.
func (r *Retrier) outage(first bool, what string, err error) {
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

// over notes that a call waits no more.
func (r *Retrier) over(answered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting--; r.waiting == 0 && answered {
		r.log.Info("the database answers again")
		r.logged = time.Time{}
	}
}

// Codes of the database for a document that is over its limit.
const (
	codeTooLarge      = 10334
	codeTooLargeAfter = 17419
)

// TooLarge says that a document is over the limit of the database: no retry ends that.
func TooLarge(err error) bool {
	var server mongo.ServerError
	return errors.Is(err, driver.ErrDocumentTooLarge) || errors.As(err, &server) && (server.HasErrorCode(codeTooLarge) || server.HasErrorCode(codeTooLargeAfter))
}
