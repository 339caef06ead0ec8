package kts46

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"

	codec "treadle/codec/kts46"
	"treadle/loop/web"
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

// pieceSize is what is written of a large answer at a time.
const pieceSize = 256 << 10

// moving is a large call that is being read, or a large answer that is being written, from or to a peer.
type moving struct {
	*web.Holding
	call   io.Reader
	answer io.Writer
}

// Write implements io.Writer, in pieces: an answer that is read goes on ahead of those that are not.
func (m *moving) Write(body []byte) (n int, err error) {
	for piece := range slices.Chunk(body, pieceSize) {
		k, err := m.answer.Write(piece)
		if n += k; err != nil {
			return n, err
		}
		m.Moved()
	}
	return n, nil
}

// Read implements io.Reader.
func (m *moving) Read(p []byte) (n int, err error) {
	if n, err = m.call.Read(p); n > 0 {
		m.Moved()
	}
	return n, err
}

// largeCall is how long a call is at most that is not counted.
const largeCall = 64 << 10

// hear reads a call. A large one is counted until heard is called, and has its turn until then:
// what is made of a megabyte takes a hundred. heard may be called again.
func (h *Hub) hear(w http.ResponseWriter, body io.Reader, size int64) (all []byte, heard func(), err error) {
	if size < 0 { // nobody has said
		var first bytes.Buffer
		if _, err = io.CopyN(&first, body, largeCall+1); err == io.EOF {
			return first.Bytes(), func() {}, nil
		} else if err != nil {
			return nil, nil, err
		}
		body, size = io.MultiReader(&first, body), codec.MaxRequest
	}
	if size <= largeCall {
		all, err = io.ReadAll(body)
		return all, func() {}, err
	}
	gone := make(chan struct{})
	m := &moving{call: body, Holding: h.unheard.Begin(int(size), nil, func() {
		close(gone)
		_ = http.NewResponseController(w).SetReadDeadline(web.Over) // fails only when it is closed
	})}
	if all, err = io.ReadAll(m); err == nil {
		select {
		case h.hearing <- struct{}{}:
			if m.Moved() {
				return all, sync.OnceFunc(func() {
					m.End()
					<-h.hearing
				}), nil
			}
			<-h.hearing
		case <-gone: // what it has read is not counted any more
		}
		err = os.ErrDeadlineExceeded
	}
	m.End()
	return nil, nil, err
}
