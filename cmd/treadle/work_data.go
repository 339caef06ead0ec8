package main

import (
	"bytes"
	"context"
	"fmt"
)

// The lines of a command under treadle work --work-data begin with one of these words. The byte after the word is
// skipped; the rest is data for receivers, or the job's result. Any other line is a result too.
const (
	lineData = "WORKDATA"
	lineDone = "WORKDONE"
)

// workData splits the output of such a command into data and result.
type workData struct {
	publish func(ctx context.Context, data []byte)
	most    int // most bytes of a line

	line   []byte // unfinished
	result []byte
	done   bool // the result has come: later output is ignored
	err    error
}

// take takes the next part of the output.
func (w *workData) take(ctx context.Context, b []byte) {
	for !w.done {
		front, rest, found := bytes.Cut(b, []byte{'\n'})
		if len(w.line)+len(front) > w.most {
			w.done, w.err = true, fmt.Errorf("a line of its output is longer than %d bytes", w.most)
			return
		}
		w.line = append(w.line, front...)
		if !found {
			return
		}
		w.finish(ctx)
		b = rest
	}
}

// end takes the end of the output. Without a line WORKDONE or another line the result is empty.
func (w *workData) end(ctx context.Context) {
	if !w.done && len(w.line) > 0 {
		w.finish(ctx)
	}
}

// finish handles a whole line of the command's output: data, the result, or any other text, which becomes the result
// with the rest.
func (w *workData) finish(ctx context.Context) {
	kind, rest := string(w.line[:min(len(w.line), len(lineData))]), w.line[min(len(w.line), len(lineData)+1):]
	switch kind {
	case lineData:
		w.publish(ctx, rest)
	case lineDone:
		w.done, w.result = true, bytes.Clone(rest)
	default:
		w.done, w.result = true, append([]byte{'\n'}, w.line...)
	}
	w.line = w.line[:0]
}
