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
	// sayEvery is the time between lines of log about it, however many calls wait.
	sayEvery = 10 * time.Second
)

// outage is what a process says of a database that does not answer.
type outage struct {
	log *slog.Logger

	mu      sync.Mutex
	waiting int       // calls that were made at least once and not answered
	said    time.Time // when there was a line about it
}

// failed notes a call that was not answered, and says so now and then.
func (o *outage) failed(first bool, what string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first {
		o.waiting++
	}
	if now := time.Now(); now.Sub(o.said) >= sayEvery {
		o.said = now
		o.log.Warn("the database does not answer, trying again", "for", what, "waiting", o.waiting, "error", err.Error())
	}
}

// over notes that a call waits no more.
func (o *outage) over(answered bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting--; o.waiting == 0 && answered {
		o.log.Info("the database answers again")
		o.said = time.Time{}
	}
}

// persist repeats a call until the database answers it or ctx ends. What the database
// refuses is repeated as well, since most of its refusals pass, save what can never fit.
func (p *performer) persist(ctx context.Context, what string, call func() error) error {
	return p.repeat(ctx, what, call, func(error) error { return nil })
}

// connect is persist for the first calls of a process: it ends with a SettingError when the
// database can never be used with these settings.
func (p *performer) connect(ctx context.Context, what string, call func() error) error {
	return p.repeat(ctx, what, call, func(err error) error { return p.store.unusable(ctx, err) })
}

// repeat is persist that also ends with what final makes of an error, if that is one.
func (p *performer) repeat(ctx context.Context, what string, call func() error, final func(error) error) error {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := call()
		if err == nil || tooLarge(err) {
			if wait > firstRetry {
				p.outage.over(true)
			}
			return err
		}
		p.tally.errors.Add(1)
		if end := final(err); end != nil {
			if wait > firstRetry {
				p.outage.over(false)
			}
			return end
		}
		p.outage.failed(wait == firstRetry, what, p.store.explain(err))
		select {
		case <-ctx.Done():
			p.outage.over(false)
			return errors.Join(err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// Codes of the database for a document that is over its limit.
const (
	codeTooLarge      = 10334
	codeTooLargeAfter = 17419
)

func tooLarge(err error) bool {
	var server mongo.ServerError
	return errors.Is(err, driver.ErrDocumentTooLarge) || errors.As(err, &server) && (server.HasErrorCode(codeTooLarge) || server.HasErrorCode(codeTooLargeAfter))
}
