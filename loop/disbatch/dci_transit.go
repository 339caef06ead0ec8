package disbatch

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
	mu    sync.Mutex
	all   []*passage
	bytes int
}

// passage is the way of one request's body and its reply. It has one user.
type passage struct {
	of    *transit
	peer  *http.ResponseController
	bytes int // held
}

// begin is called at a request's beginning; end at its end.
func (t *transit) begin(w http.ResponseWriter) *passage {
	p := &passage{of: t, peer: http.NewResponseController(w)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, p)
	return p
}

// hold says that the request has moved, and how many bytes are held for it now. While all hold
// too many, the one that has not moved for the longest is given up, which ends its connection.
func (p *passage) hold(bytes int) {
	t := p.of
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.remove(p) {
		return // it was given up
	}
	_ = p.peer.SetWriteDeadline(time.Now().Add(readTimeout)) // fails only when it is closed
	p.bytes = bytes
	t.bytes += bytes
	t.all = append(t.all, p)
	for t.bytes > maxTransit {
		i := slices.IndexFunc(t.all, func(p *passage) bool { return p.bytes > minTransit })
		if i < 0 || i == len(t.all)-1 {
			return // there is none, or it is this one
		}
		long := time.Unix(1, 0)
		_, _ = t.all[i].peer.SetReadDeadline(long), t.all[i].peer.SetWriteDeadline(long) // fail only when it is closed
		t.remove(t.all[i])
	}
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

// enlarge takes that turn, if there is one.
func enlarge(ctx context.Context) error {
	if t, ok := ctx.Value(largeKey{}).(*turn); ok {
		return t.take(ctx)
	}
	return nil
}

// bounded keeps requests in their limits. They have a turn when all of their body is there,
// which ends when the reply is made: nobody waits for those who send or read slowly.
func bounded(next http.Handler) http.Handler {
	var on transit
	all, much := make(turns, maxRequests), make(turns, maxLarge)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		p := on.begin(w)
		defer p.end()
		var body []byte
		if r.Method == http.MethodPost { // what others send is not read
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
		if begin(ctx) == nil {
			p.hold(0)
			func() {
				defer large.end()
				defer usual.end()
				r.Body = io.NopCloser(bytes.NewReader(body))
				next.ServeHTTP(&a, r.WithContext(context.WithValue(ctx, largeKey{}, &large)))
			}()
		} else {
			send(&a, reply{status: http.StatusServiceUnavailable, body: object{"error": "too many requests at once"}})
		}
		p.send(w, &a)
	})
}

// unread is the reply to a body that could not be read.
func unread(err error) reply {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return reply{status: http.StatusRequestEntityTooLarge, body: object{"error": fmt.Sprintf("the body is over %d bytes", large.Limit)}}
	}
	return bad("%v", err)
}
