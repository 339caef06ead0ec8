package admin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Bounds of a body of JSON lines.
const (
	// linesBuffer is how much of the body is read at a time, in bytes.
	linesBuffer = 64 << 10
	// linesAhead is how many jobs may be submitted that the journal does not have yet: they fill a group of the
	// journal, and the next ones are read while it is written.
	linesAhead = 8 << 10
	// maxRefusedLines bounds the refusals that the answer describes; it counts the others.
	maxRefusedLines = 100
	// pieceTime is the time for the next minPiece bytes of a body to come. A body may take any time as long as it
	// continues.
	pieceTime = 10 * time.Second
)

// lines submits the jobs of one body.
type lines struct {
	api    *API
	in     *bufio.Reader
	limit  int // bytes of a line
	long   []byte
	line   int
	job    codec.Job // of the line
	one    sched.Submission
	sink   protocol.Sink
	answer codec.SubmittedLines
	ahead  int // jobs since the last flush
	journalAhead
}

// journalAhead flushes many changes to the journal, and waits for those of the flush before.
type journalAhead struct {
	host  protocol.Host
	group uint64 // of the flush before
}

// postLines submits a job of each line and answers when the journal has all of them. A line that is refused does not
// hold up the others. The jobs of the lines before are submitted when the body breaks off.
func (api *API) postLines(w http.ResponseWriter, r *http.Request) (any, error) {
	_, transfer := api.incoming.Begin(r.Context(), w)
	defer transfer.End()
	l := lines{api: api, in: bufio.NewReaderSize(endIfSlow(w, r.Body), linesBuffer), limit: int(api.maxBody()), sink: api.host.NewSink(),
		journalAhead: journalAhead{host: api.host}}
	for {
		text, err := l.next(transfer.Resize)
		if whole := err == nil || err == io.EOF; whole && len(bytes.TrimSpace(text)) > 0 {
			l.submit(text)
		}
		if l.ahead >= linesAhead {
			l.sink.Wake()
			l.ahead = 0
			if err := l.flush(); err != nil {
				return nil, err
			}
		}
		if err != nil {
			if err != io.EOF {
				l.answer.Error, l.answer.Next = brokenOff(err), l.line
			}
			break
		}
	}
	l.sink.Wake()
	return &l.answer, api.commit()
}

// brokenOff says why a body has no end.
func brokenOff(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errStopped.Error()
	}
	return "the body ended early: " + err.Error()
}

// next returns the next line, without its end. It is valid until the next call. The last line comes with io.EOF. A line
// beyond the limit is counted as refused and returned empty.
func (l *lines) next(hold func(bytes int) bool) ([]byte, error) {
	l.line++
	text, err := l.in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return text, err
	}
	l.long = append(l.long[:0], text...)
	tooLong := false
	for err == bufio.ErrBufferFull {
		text, err = l.in.ReadSlice('\n')
		if tooLong = tooLong || len(l.long)+len(text) > l.limit; tooLong {
			l.long = l.long[:0]
			continue
		}
		l.long = append(l.long, text...)
		if !hold(cap(l.long)) {
			return nil, errors.New("the server holds too many bodies at once")
		}
	}
	if tooLong {
		l.refuse(badf("the line is longer than --max-frame allows"))
	}
	return l.long, err
}

// submit submits the job of a line.
func (l *lines) submit(text []byte) {
	l.job = codec.Job{}
	err := decodeJob(text, &l.job)
	if err == nil && l.job.Wait != 0 {
		err = badf("a job of several has no wait")
	}
	if err != nil {
		l.refuse(err)
		return
	}
	if err = l.api.submission(&l.one, &l.job); err == nil {
		err = l.api.submit(&l.one, l.sink)
	}
	if err != nil {
		l.refuse(err)
		return
	}
	l.answer.Submitted++
	l.ahead++
}

// refuse counts a line that is refused.
func (l *lines) refuse(err error) {
	l.answer.Refused++
	if len(l.answer.Errors) == maxRefusedLines {
		return
	}
	one := codec.RefusedLine{Line: l.line, Error: err.Error()}
	var why *refusal
	if errors.As(err, &why) {
		one.Reason = why.reason.String()
	}
	l.answer.Errors = append(l.answer.Errors, one)
}

// flush asks the journal to write what has changed, and returns when it has what had changed before the last flush.
func (a *journalAhead) flush() error {
	group, wait := a.host.CommitGroupAll()
	if !wait {
		return nil
	}
	a.host.Flush(1)
	before := a.group
	if a.group = group; before == 0 {
		return nil
	}
	return a.host.Await(before)
}

// minPiece is what must come of a body within pieceTime, if that is not its end: a body that comes byte by byte would
// keep its place for hours.
const minPiece = 4 << 10

// errStopped is the error of a body that came too slowly.
var errStopped = fmt.Errorf("the body stopped: less than %d bytes came within %v", minPiece, pieceTime)

// endIfSlow returns a body that ends with an error when less than minPiece bytes come within pieceTime.
func endIfSlow(w http.ResponseWriter, body io.ReadCloser) io.ReadCloser {
	return &slowGuard{peer: http.NewResponseController(w), ReadCloser: body}
}

type slowGuard struct {
	io.ReadCloser
	peer  *http.ResponseController
	piece int // bytes that have come since the deadline was set
}

// Read implements io.Reader.
func (s *slowGuard) Read(p []byte) (int, error) {
	if s.piece == 0 {
		_ = s.peer.SetReadDeadline(time.Now().Add(pieceTime)) // fails only when the connection is closed, or is none
	}
	n, err := s.ReadCloser.Read(p)
	if s.piece += n; s.piece >= minPiece {
		s.piece = 0
	}
	switch {
	case err == io.EOF:
		_ = s.peer.SetReadDeadline(time.Time{}) // the wait for the answer is bounded by itself
	case err != nil: // net/http reads no more of the body before it sends the answer
		_ = s.peer.SetReadDeadline(time.Unix(1, 0))
	}
	return n, err
}
