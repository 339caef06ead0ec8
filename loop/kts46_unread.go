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

// ktsUnread are the long answers that are being written, first whose peer has read nothing for
// the longest.
type ktsUnread struct {
	mu    sync.Mutex
	all   []*ktsAnswer
	bytes int
}

// ktsAnswer is one of them. What is written to it goes to its peer.
type ktsAnswer struct {
	to   http.ResponseWriter
	size int
	of   *ktsUnread
}

// begin counts an answer until its end. While all of them are more than most bytes, the first
// is given up, which ends its connection.
func (u *ktsUnread) begin(w http.ResponseWriter, size, most int) *ktsAnswer {
	a := &ktsAnswer{w, size, u}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = append(u.all, a)
	for u.bytes += size; u.bytes > most && len(u.all) > 1; {
		_ = http.NewResponseController(u.all[0].to).SetWriteDeadline(time.Unix(1, 0)) // fails only when it is closed
		u.bytes -= u.all[0].size
		u.all = slices.Delete(u.all, 0, 1)
	}
	return a
}

// Write implements io.Writer, in pieces: whoever takes one goes behind all others.
func (a *ktsAnswer) Write(body []byte) (n int, err error) {
	for piece := range slices.Chunk(body, pieceSize) {
		k, err := a.to.Write(piece)
		if n += k; err != nil {
			return n, err
		}
		a.of.leave(a, true)
	}
	return n, nil
}

// leave takes an answer from its place; back: to stand behind the others. One that was given up
// has none.
func (u *ktsUnread) leave(a *ktsAnswer, back bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	i := slices.Index(u.all, a)
	if i < 0 {
		return
	}
	if u.all = slices.Delete(u.all, i, i+1); back {
		u.all = append(u.all, a)
	} else {
		u.bytes -= a.size
	}
}
