package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
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

// transit are the bodies and replies that are on their way, first the one that has not moved for
// the longest.
type transit struct {
	most  int // bytes that they may hold
	mu    sync.Mutex
	all   []*passage
	bytes int
}

// passage is the way of one request's body and its reply. It has one user.
type passage struct {
	of    *transit
	peer  *http.ResponseController
	stop  context.CancelFunc // of the request
	bytes int                // held
	waits bool               // for its turn
}

// begin is called at a request's beginning, with what ends its wait for a turn; end at its end.
func (t *transit) begin(w http.ResponseWriter, stop context.CancelFunc) *passage {
	p := &passage{of: t, peer: http.NewResponseController(w), stop: stop}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, p)
	return p
}

// hold says that the request has moved, and how many bytes are held for it now. While all hold
// too many, the one that has not moved for the longest is given up. It returns whether this one
// was not given up before.
func (p *passage) hold(bytes int) bool {
	t := p.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.remove(p) {
		return false
	}
	_ = p.peer.SetWriteDeadline(time.Now().Add(readTimeout)) // fails only when it is closed
	p.bytes, p.waits = bytes, false
	t.bytes += bytes
	t.all = append(t.all, p)
	for t.bytes > t.most {
		i := slices.IndexFunc(t.all, func(p *passage) bool { return p.bytes > minTransit })
		if i < 0 || i == len(t.all)-1 {
			break // there is none, or it is this one
		}
		t.giveUp(t.all[i])
	}
	return true
}

// giveUp ends a request that waits for its turn, which is told so, or its connection.
func (t *transit) giveUp(p *passage) {
	p.stop()
	if p.waits {
		_ = p.peer.SetWriteDeadline(time.Now().Add(readTimeout)) // fails only when it is closed
	} else {
		long := time.Unix(1, 0)
		_, _ = p.peer.SetReadDeadline(long), p.peer.SetWriteDeadline(long)
	}
	t.remove(p)
}

// wait says that all of the body is there, and the request waits for its turn.
func (p *passage) wait() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.waits = true
}

func (p *passage) end() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.remove(p)
}

// remove returns whether it was there.
func (t *transit) remove(p *passage) bool {
	i := slices.Index(t.all, p)
	if i < 0 {
		return false
	}
	t.bytes -= p.bytes
	t.all = slices.Delete(t.all, i, i+1)
	return true
}

// Write implements io.Writer: so much of the body has come.
func (p *passage) Write(b []byte) (int, error) {
	p.hold(p.bytes + len(b))
	return len(b), nil
}

// send sends a reply.
func (p *passage) send(w http.ResponseWriter, a *made) {
	rest := a.body.Bytes()
	p.hold(len(rest))
	w.WriteHeader(a.status)
	for piece := range slices.Chunk(rest, minTransit) {
		if _, err := w.Write(piece); err != nil {
			return // a client that is gone needs no reply
		}
		p.hold(p.bytes - len(piece))
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

// bounded keeps requests in their limits; on are those that are on their way. They have a turn when
// all of their body is there, which ends when the reply is made: nobody waits for those who send
// or read slowly.
func bounded(on *transit, next http.Handler) http.Handler {
	all, much := make(turns, maxRequests), make(turns, maxLarge)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		p := on.begin(w, cancel)
		defer p.end()
		var body []byte
		if hasParams(r) { // what others send is not read
			var err error
			if body, err = io.ReadAll(io.TeeReader(http.MaxBytesReader(w, r.Body, maxBody), p)); err != nil {
				send(w, unread(err))
				return
			}
		}
		usual, large := turn{of: all}, turn{of: much}
		begin := usual.take
		if len(body) > largeBody {
			begin = large.take // and no usual one: it would keep it while it waits
		}
		a := made{ResponseWriter: w, status: http.StatusOK}
		func() {
			defer large.end()
			defer usual.end()
			p.wait()
			if begin(ctx) != nil || !p.hold(0) {
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
