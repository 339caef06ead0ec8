package loop

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// ktsLong are the methods whose answers may have tens of megabytes, and ktsMany is how many
// projects and jobs, or for the last one workers, there are when they do. One of these answers is
// put together at a time, and what of them is unread has a bound.
var ktsLong = map[string]bool{"getServerStatus": true, "getProjectStatus": true, "getJobsList": true, ktsHeldList: true}

const (
	ktsHeldList = "getCurrentTasks"
	ktsMany     = 1000
)

// compose waits for the turn to put a method's answer together, if it may be long. done, which
// may be called again, ends the turn.
func (h *ktsHub) compose(method string) (done func()) {
	if !ktsLong[method] {
		return func() {}
	}
	h.mu.Lock()
	many := h.entries
	if method == ktsHeldList {
		many = len(h.workers)
	}
	h.mu.Unlock()
	if many < ktsMany {
		return func() {}
	}
	h.composing.Lock()
	return sync.OnceFunc(h.composing.Unlock)
}

// ktsUnread are the long answers that are being written, oldest first.
type ktsUnread struct {
	mu    sync.Mutex
	all   []*ktsAnswer
	bytes int
}

type ktsAnswer struct {
	to   *http.ResponseController
	size int
}

// begin counts an answer until the function returned is called. While all of them are more
// than most bytes, the oldest is given up, which ends its connection.
func (u *ktsUnread) begin(w http.ResponseWriter, size, most int) (done func()) {
	a := &ktsAnswer{http.NewResponseController(w), size}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = append(u.all, a)
	for u.bytes += size; u.bytes > most && len(u.all) > 1; {
		_ = u.all[0].to.SetWriteDeadline(time.Unix(1, 0)) // fails only when it is closed
		u.bytes -= u.all[0].size
		u.all = slices.Delete(u.all, 0, 1)
	}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if i := slices.Index(u.all, a); i >= 0 {
			u.bytes -= a.size
			u.all = slices.Delete(u.all, i, i+1)
		}
	}
}
