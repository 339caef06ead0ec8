package main

import (
	"bytes"
	"context"
	"fmt"
)

// The lines with which a command that is run by treadle work --work-data speaks: what is behind the first eight bytes
// and one more, which is skipped, is data for receivers, or the job's result. Any other line ends the output, too.
const (
	lineData = "WORKDATA"
	lineDone = "WORKDONE"
)

// workData takes what such a command prints apart.
type workData struct {
	publish func(ctx context.Context, data []byte)
	most    int // bytes of a line

	line   []byte // unfinished
	result []byte
	done   bool // what follows does not count
	err    error
}

// take is given the output as it comes.
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

// end is the end of the output. Without a closing line the result is empty.
func (w *workData) end(ctx context.Context) {
	if !w.done && len(w.line) > 0 {
		w.finish(ctx)
	}
}

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
