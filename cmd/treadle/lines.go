package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// maxWhole is the longest line that is kept together.
const maxWhole = 64 << 10

// lines is where the commands of a worker print: whole lines at a time when several run at once.
type lines struct {
	con   *console
	whole bool
	mu    sync.Mutex // of what is written
}

func newLines(con *console, commands int) *lines { return &lines{con: con, whole: commands > 1} }

// open returns where one command prints, and what is to be called behind its end.
func (l *lines) open() (out, err io.Writer, end func()) {
	if !l.whole {
		return l.con.out, l.con.err, func() {}
	}
	o, e := &lineWriter{all: l, to: l.con.out}, &lineWriter{all: l, to: l.con.err}
	return o, e, func() {
		o.end()
		e.end()
	}
}

// lineWriter passes on whole lines.
type lineWriter struct {
	all *lines
	to  io.Writer

	mu   sync.Mutex // what a command leaves running may print behind its end
	line []byte     // unfinished
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = append(w.line, p...)
	n := bytes.LastIndexByte(w.line, '\n') + 1
	if len(w.line) > maxWhole {
		n = len(w.line)
	}
	if err := w.pass(n); err != nil {
		return 0, err
	}
	return len(p), nil
}

// end finishes the last line.
func (w *lineWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) > 0 {
		w.line = append(w.line, '\n')
		_ = w.pass(len(w.line)) // nobody is left to tell
	}
}

func (w *lineWriter) pass(n int) error {
	if n == 0 {
		return nil
	}
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	_, err := w.to.Write(w.line[:n])
	w.line = w.line[:copy(w.line, w.line[n:])]
	return err
}

// counted is a number of things.
func counted[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
