package kts46

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	codec "treadle/codec/kts46"
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

// budget are the large calls that are being read, or the large answers that are being written,
// first whose peer has moved nothing for the longest.
type budget struct {
	mu    sync.Mutex
	all   []*moving
	bytes int
}

// moving is one of them.
type moving struct {
	of     *budget
	size   int
	giveUp func() // ends its connection
	body   io.Reader
	answer io.Writer
}

// begin counts one until its end. While all of them are more than most bytes, the first is
// given up.
func (l *budget) begin(size, most int, giveUp func()) *moving {
	m := &moving{of: l, size: size, giveUp: giveUp}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, m)
	for l.bytes += size; l.bytes > most && len(l.all) > 1; {
		l.all[0].giveUp()
		l.bytes -= l.all[0].size
		l.all = slices.Delete(l.all, 0, 1)
	}
	return m
}

// Write implements io.Writer, in pieces: whoever takes one goes behind all others.
func (m *moving) Write(body []byte) (n int, err error) {
	for piece := range slices.Chunk(body, pieceSize) {
		k, err := m.answer.Write(piece)
		if n += k; err != nil {
			return n, err
		}
		m.leave(true)
	}
	return n, nil
}

// Read implements io.Reader: whoever sends goes behind all others.
func (m *moving) Read(p []byte) (n int, err error) {
	if n, err = m.body.Read(p); n > 0 {
		m.leave(true)
	}
	return n, err
}

// leave takes one from its place; back: to stand behind the others. false: it has none, since
// it was given up.
func (m *moving) leave(back bool) bool {
	l := m.of
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.all, m)
	if i < 0 {
		return false
	}
	if l.all = slices.Delete(l.all, i, i+1); back {
		l.all = append(l.all, m)
	} else {
		l.bytes -= m.size
	}
	return true
}

// over is a deadline that has passed.
var over = time.Unix(1, 0)

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
	m := h.unheard.begin(int(size), h.host.MostUnsent(), func() {
		close(gone)
		_ = http.NewResponseController(w).SetReadDeadline(over) // fails only when it is closed
	})
	m.body = body
	if all, err = io.ReadAll(m); err == nil {
		select {
		case h.hearing <- struct{}{}:
			if m.leave(true) {
				return all, sync.OnceFunc(func() {
					m.leave(false)
					<-h.hearing
				}), nil
			}
			<-h.hearing
		case <-gone: // what it has read is not counted any more
		}
		err = os.ErrDeadlineExceeded
	}
	m.leave(false)
	return nil, nil, err
}
