package kts46

import (
	"context"
	"io"
	"net/http"
	"os"
	"sync"
)

// longMethods are the methods whose answers may have tens of megabytes. An answer counts as long from manyEntries
// projects and jobs, or workers for heldList. One long answer is built at a time.
var longMethods = map[string]bool{"getServerStatus": true, "getProjectStatus": true, "getJobsList": true, heldList: true}

const (
	heldList    = "getCurrentTasks"
	manyEntries = 1000
)

// compose waits until a method may build its answer, if that may be long. done lets the next answer begin and may be
// called again.
func (p *Protocol) compose(method string) (done func()) {
	if !longMethods[method] {
		return func() {}
	}
	p.mu.Lock()
	many := p.entries
	if method == heldList {
		many = len(p.workers)
	}
	p.mu.Unlock()
	if many < manyEntries && (p.site == nil || method == heldList) { // MongoDB may have any number of jobs
		return func() {}
	}
	p.composing.Lock()
	return sync.OnceFunc(p.composing.Unlock)
}

// onRegistry carries out a method on the registry, in a turn. One of longMethods takes a turn only to copy what it
// lists.
func (p *Protocol) onRegistry(method string, do func() (any, error)) (answer any, err error) {
	if longMethods[method] {
		return do()
	}
	return p.updateWithAnswer(do)
}

// largeCall is the size from which a call counts as large, in bytes.
const largeCall = 64 << 10

// readCall reads a call. A large one counts against the budget of incoming calls until done is called. It also has its
// turn until then: parsing takes a hundred times its size in memory. done may be called again.
func (p *Protocol) readCall(w http.ResponseWriter, body io.Reader, size int64) (call []byte, done func(), err error) {
	if size >= 0 && size <= largeCall {
		call, err = io.ReadAll(body)
		return call, func() {}, err
	}
	ctx, transfer := p.incoming.Begin(context.Background(), w) // the call is carried out even if its client has left
	call, err = transfer.ReadAll(body, int(max(size, 0)))
	if err == nil && len(call) > largeCall && !transfer.Wait(ctx, p.largeTurns, len(call)) {
		err = os.ErrDeadlineExceeded
	}
	if err != nil {
		transfer.End()
	}
	return call, transfer.End, err
}
