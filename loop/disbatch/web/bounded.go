package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"treadle/loop/budget"
	"treadle/loop/web"
)

const (
	// maxHeld bounds the bytes of bodies that are incomplete or wait for a turn, and of unread replies.
	maxHeld = 128 << 20
	// freeHeld is what each request may hold whatever the others hold: far more than a usual one needs.
	freeHeld = 64 << 10
	// readTimeout is the time for the client to read a piece of a reply.
	readTimeout = 10 * time.Second
	// maxRequests is how many requests are answered at once; more wait. The database sends 16 MiB at a time to each.
	maxRequests = 16
	// largeBody is the size from which a body or a search result counts as large, in bytes. Its documents take many
	// times as much memory, so only maxLarge are answered at once.
	largeBody = 1 << 20
	maxLarge  = 2
)

// newTransfers returns the budget of a command interface.
func newTransfers(maxBytes int) *web.Transfers {
	return &web.Transfers{Budget: budget.Budget{Max: maxBytes, Free: freeHeld}, Renew: readTimeout}
}

// bufferedReply is a reply that is written later. Its header is the header of the response.
type bufferedReply struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (b *bufferedReply) WriteHeader(status int) { b.status = status }

// Write implements http.ResponseWriter.
func (b *bufferedReply) Write(p []byte) (int, error) { return b.body.Write(p) }

// largeKey is the key in a request's context of the function that takes its large turn.
type largeKey struct{}

// errBusy answers a request that was evicted or whose turn did not come in time.
var errBusy = errors.New("too many requests at once, or too large ones: try again, or ask for fewer tasks")

// takeLargeTurn takes the large turn of a request that needs much memory. It returns errBusy if none is free in time.
func takeLargeTurn(ctx context.Context) error {
	if take, ok := ctx.Value(largeKey{}).(func() bool); ok && !take() {
		return errBusy
	}
	return nil
}

// bounded limits how many requests are answered at once, and counts bodies and replies in a budget. A request's turn
// begins when its whole body has come and ends when its reply is complete: no request waits for slow clients.
func bounded(transfers *web.Transfers, next http.Handler) http.Handler {
	usualTurns, largeTurns := make(web.Semaphore, maxRequests), make(web.Semaphore, maxLarge)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		ctx, transfer := transfers.Begin(ctx, w)
		defer transfer.End()
		var body []byte
		if hasParams(r) { // no other body is read
			var err error
			if body, err = transfer.ReadAll(r.Body, 0); err != nil {
				send(w, unread(err).reply())
				return
			}
		}
		turns, takeLarge := usualTurns, func() bool { return transfer.Take(ctx, largeTurns) }
		if len(body) > largeBody {
			turns = largeTurns // alone: a usual turn would be taken while the request waits
		}
		a := bufferedReply{ResponseWriter: w, status: http.StatusOK}
		func() {
			defer transfer.Release()
			if !transfer.Wait(ctx, turns, 0) {
				send(&a, newRequestError(http.StatusServiceUnavailable, errBusy.Error()).reply())
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(&a, r.WithContext(context.WithValue(ctx, largeKey{}, takeLarge)))
		}()
		w.WriteHeader(a.status)
		_ = transfer.Send(w, a.body.Bytes()) // a client that is gone needs no reply
	})
}

// unread is the refusal of a body that could not be read.
func unread(err error) *requestError {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return newRequestError(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is over %dMiB: create the tasks in several requests", large.Limit>>20))
	}
	return badRequest("%v", err)
}
