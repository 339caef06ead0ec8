package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// maxWhole is the longest line that is written in one piece.
const maxWhole = 64 << 10

// lines is the output of a worker's commands. It writes whole lines when several commands run at once.
type lines struct {
	con   *console
	whole bool
	mu    sync.Mutex // held while writing
}

func newLines(con *console, commands int) *lines { return &lines{con: con, whole: commands > 1} }

// open returns the outputs of one command; end must be called when the command has ended.
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

// lineWriter writes whole lines to another writer.
type lineWriter struct {
	all *lines
	to  io.Writer

	mu   sync.Mutex // a process that the command leaves running may print after end
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

// end writes the unfinished last line.
func (w *lineWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) > 0 {
		w.line = append(w.line, '\n')
		_ = w.pass(len(w.line)) // the command has ended: no caller takes the error
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

// counted returns a number with its noun, in the plural unless it is 1.
func counted[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
