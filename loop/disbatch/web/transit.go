package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"treadle/loop/web"
)

const (
	// maxTransit bounds what is held of bodies that have not come to their end or wait for their
	// turn, and of replies that have not been read.
	maxTransit = 128 << 20
	// minTransit is what all of them may have without that: far more than any usual one.
	minTransit = 64 << 10
	// readTimeout is for some of a reply to be read. It begins anew when it is.
	readTimeout = 10 * time.Second
	// maxRequests keeps the memory of what requests find bounded, of which the database sends
	// 16 MiB at a time; more requests wait.
	maxRequests = 16
	// largeBody is where a body, or what is found, counts as large. What is made of it takes many
	// times as much, so fewer have their turn at once.
	largeBody = 1 << 20
	maxLarge  = 2
)

// passage is the way of one request's body and its reply. It has one user.
type passage struct {
	*web.Holding
	peer  *http.ResponseController
	stop  context.CancelFunc // of the request
	waits atomic.Bool        // for its turn
}

// begin is called at a request's beginning, with what ends its wait for a turn; End at its end.
func begin(on *web.Budget, w http.ResponseWriter, stop context.CancelFunc) *passage {
	p := &passage{peer: http.NewResponseController(w), stop: stop}
	p.Holding = on.Begin(0, p.moved, p.giveUp)
	return p
}

// moved gives the peer of a request that has moved its time to read anew.
func (p *passage) moved() {
	p.waits.Store(false)
	_ = p.peer.SetWriteDeadline(time.Now().Add(readTimeout)) // fails only when it is closed
}

// giveUp ends a request that waits for its turn, which is told so, or its connection.
func (p *passage) giveUp() {
	p.stop()
	if p.waits.Load() {
		_ = p.peer.SetWriteDeadline(time.Now().Add(readTimeout)) // fails only when it is closed
	} else {
		_, _ = p.peer.SetReadDeadline(web.Over), p.peer.SetWriteDeadline(web.Over)
	}
}

// Write implements io.Writer: so much of the body has come.
func (p *passage) Write(b []byte) (int, error) {
	p.Add(len(b))
	return len(b), nil
}

// send sends a reply.
func (p *passage) send(w http.ResponseWriter, a *made) {
	rest := a.body.Bytes()
	p.Hold(len(rest))
	w.WriteHeader(a.status)
	for piece := range slices.Chunk(rest, minTransit) {
		if _, err := w.Write(piece); err != nil {
			return // a client that is gone needs no reply
		}
		p.Add(-len(piece))
	}
}

// made is a reply that is being made. Its header is that of the response.
type made struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (a *made) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *made) Write(b []byte) (int, error) { return a.body.Write(b) }

// turns are places for so many requests at once.
type turns chan struct{}

// turn is a request's place, as soon as it has taken it. It has one user.
type turn struct {
	of  turns
	has bool
}

// take waits for a place, if the request has none; it returns an error if none is free in time.
func (t *turn) take(ctx context.Context) error {
	if t.has {
		return nil
	}
	select {
	case t.of <- struct{}{}:
		t.has = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *turn) end() {
	if t.has {
		<-t.of
	}
}

// largeKey is of the turn, in a request's context, that it takes before it needs much memory.
type largeKey struct{}

// errBusy says that a turn was not there in time, or too much is on its way.
var errBusy = errors.New("too many requests at once, or too large ones: try again, or ask for fewer tasks")

// enlarge takes that turn, if there is one; it returns errBusy if none is free in time.
func enlarge(ctx context.Context) error {
	if t, ok := ctx.Value(largeKey{}).(*turn); ok && t.take(ctx) != nil {
		return errBusy
	}
	return nil
}

// bounded keeps requests in their limits, and bodies and replies that are on their way in a budget. Requests have a turn when
// all of their body is there, which ends when the reply is made: nobody waits for those who send
// or read slowly.
func bounded(on *web.Budget, next http.Handler) http.Handler {
	all, much := make(turns, maxRequests), make(turns, maxLarge)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		p := begin(on, w, cancel)
		defer p.End()
		var body []byte
		if hasParams(r) { // what others send is not read
			var err error
			if body, err = io.ReadAll(io.TeeReader(http.MaxBytesReader(w, r.Body, maxBody), p)); err != nil {
				send(w, unread(err))
				return
			}
		}
		usual, large := turn{of: all}, turn{of: much}
		take := usual.take
		if len(body) > largeBody {
			take = large.take // and no usual one: it would keep it while it waits
		}
		a := made{ResponseWriter: w, status: http.StatusOK}
		func() {
			defer large.end()
			defer usual.end()
			p.waits.Store(true)
			if take(ctx) != nil || !p.Hold(0) {
				send(&a, reply{status: http.StatusServiceUnavailable, body: object{"error": errBusy.Error()}})
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(&a, r.WithContext(context.WithValue(ctx, largeKey{}, &large)))
		}()
		p.send(w, &a)
	})
}

// unread is the reply to a body that could not be read.
func unread(err error) reply {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return reply{status: http.StatusRequestEntityTooLarge, body: object{"error": fmt.Sprintf("the body is over %dMiB: create the tasks in several requests", large.Limit>>20)}}
	}
	return bad("%v", err)
}
