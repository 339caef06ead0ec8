package web

import (
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"treadle/loop/budget"
)

// pieceSize is how many bytes of an answer are written at a time. A peer that reads one has moved.
const pieceSize = 64 << 10

// past is a deadline that ends the reading or writing of a connection at once.
var past = time.Unix(1, 0)

// Transfers bounds the bytes of request bodies and answers that are held for peers.
type Transfers struct {
	budget.Budget
	// Renew is the time for a peer to read a piece of its answer; 0: Config.Answer is the time for all of it.
	Renew time.Duration
}

// Transfer is the body of one request, the answer to it, or one after the other. One goroutine uses it.
type Transfer struct {
	*budget.Holding
	peer  *http.ResponseController
	stop  context.CancelFunc
	renew time.Duration
	turn  atomic.Bool // the transfer waits for a turn or has one
	taken []Semaphore
}

// Begin starts a transfer that holds nothing yet; End ends it. The returned context ends with the transfer. When the
// budget evicts the transfer, its connection ends too. But while the transfer waits for a turn only the wait ends, and
// while it has one nothing does.
func (t *Transfers) Begin(ctx context.Context, w http.ResponseWriter) (context.Context, *Transfer) {
	ctx, stop := context.WithCancel(ctx)
	one := &Transfer{peer: http.NewResponseController(w), stop: stop, renew: t.Renew}
	one.Holding = t.Budget.Begin(0, one.extend, one.giveUp)
	return ctx, one
}

// End ends the transfer and its turns. It may be called again.
func (t *Transfer) End() {
	t.Release()
	t.Holding.End()
	t.stop()
}

// extend gives the peer its time to read anew.
func (t *Transfer) extend() {
	if t.renew > 0 {
		_ = t.peer.SetWriteDeadline(time.Now().Add(t.renew)) // fails only when the connection is closed
	}
}

// giveUp ends the transfer's wait for a turn, or its connection.
func (t *Transfer) giveUp() {
	answered := t.turn.Load() // before stop: the request may end its turn as soon as it hears of that
	t.stop()
	if answered {
		t.extend() // the peer is answered
		return
	}
	_, _ = t.peer.SetReadDeadline(past), t.peer.SetWriteDeadline(past) // fail only when the connection is closed
}

// ReadAll reads a body to its end. The transfer holds the bytes that have come, and at least the announced ones.
func (t *Transfer) ReadAll(body io.Reader, announced int) ([]byte, error) {
	t.Resize(announced)
	return io.ReadAll(io.TeeReader(body, &arrived{by: t, announced: announced}))
}

// arrived counts the bytes of a body that have come.
type arrived struct {
	by             *Transfer
	announced, all int
}

// Write implements io.Writer.
func (a *arrived) Write(p []byte) (int, error) {
	a.all += len(p)
	if !a.by.Resize(max(a.all, a.announced)) {
		return 0, os.ErrDeadlineExceeded // as a Read that giveUp ends
	}
	return len(p), nil
}

// Send writes an answer, which the transfer holds until its end. It writes in pieces, so that a peer that reads moves
// ahead of those that do not.
func (t *Transfer) Send(w io.Writer, answer []byte) error {
	t.Resize(len(answer))
	for piece := range slices.Chunk(answer, pieceSize) {
		if _, err := w.Write(piece); err != nil {
			return err
		}
		t.Moved()
	}
	return nil
}

// Semaphore lets as many requests at once use a resource as its capacity.
type Semaphore chan struct{}

// Wait takes a turn; then the transfer holds n bytes. It returns false when ctx ends first or the transfer was evicted.
func (t *Transfer) Wait(ctx context.Context, turns Semaphore, bytes int) bool {
	t.turn.Store(true)
	return t.Take(ctx, turns) && t.Resize(bytes)
}

// Take takes a turn, unless the transfer has it. It returns false when ctx ends first.
func (t *Transfer) Take(ctx context.Context, turns Semaphore) bool {
	if slices.Contains(t.taken, turns) {
		return true
	}
	select {
	case turns <- struct{}{}:
		t.taken = append(t.taken, turns)
		return true
	case <-ctx.Done():
		return false
	}
}

// Release ends the turns that the transfer has taken. It may be called again.
func (t *Transfer) Release() {
	for _, turns := range t.taken {
		<-turns
	}
	t.taken = nil
	t.turn.Store(false)
}
