package kts46

import (
	"context"
	"io"
	"net/http"
	"os"
	"sync"
)

// longMethods are the methods whose answers may have tens of megabytes, and manyEntries is how many
// projects and jobs, or for the last one workers, there are when they do. One of these answers is
// put together at a time, and what of them is unread has a bound.
var longMethods = map[string]bool{"getServerStatus": true, "getProjectStatus": true, "getJobsList": true, heldList: true}

const (
	heldList    = "getCurrentTasks"
	manyEntries = 1000
)

// compose waits for the turn to put a method's answer together, if it may be long. done, which
// may be called again, ends the turn.
func (h *Hub) compose(method string) (done func()) {
	if !longMethods[method] {
		return func() {}
	}
	h.mu.Lock()
	many := h.entries
	if method == heldList {
		many = len(h.workers)
	}
	h.mu.Unlock()
	if many < manyEntries && (h.site == nil || method == heldList) { // how much is in MongoDB is not known
		return func() {}
	}
	h.composing.Lock()
	return sync.OnceFunc(h.composing.Unlock)
}

// largeCall is the size from which a call counts as large, in bytes.
const largeCall = 64 << 10

// hear reads a call. A large one counts against the budget of unread calls until heard is called, and has its turn
// until then: what is made of a megabyte takes a hundred. heard may be called again.
func (h *Hub) hear(w http.ResponseWriter, body io.Reader, size int64) (call []byte, heard func(), err error) {
	if size >= 0 && size <= largeCall {
		call, err = io.ReadAll(body)
		return call, func() {}, err
	}
	ctx, transfer := h.unheard.Begin(context.Background(), w) // a client that has left has its call carried out
	call, err = transfer.ReadAll(body, int(max(size, 0)))
	if err == nil && len(call) > largeCall && !transfer.Wait(ctx, h.hearing, len(call)) {
		err = os.ErrDeadlineExceeded
	}
	if err != nil {
		transfer.End()
	}
	return call, transfer.End, err
}
