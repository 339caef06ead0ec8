// Package play is what the plays of the simulation share: the record of a play, tables from which its dice draw, and
// the search for a shorter play that fails in the same way. It knows neither servers nor peers.
package play

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// Trace is the record of a play: what happened, one line each, and the first check that failed. It depends
// on the seed, the number of steps and the steps that are kept, and on nothing else.
type Trace struct {
	text    strings.Builder
	failure string
}

// violation is a promise that the server has broken. It ends the play by a panic.
type violation string

// Logf adds a line.
func (t *Trace) Logf(format string, args ...any) { fmt.Fprintf(&t.text, format+"\n", args...) }

// Failf ends the play. The first failure is kept: a Failf from within the server only ends a session there, and
// the play continues until its next check.
func (t *Trace) Failf(format string, args ...any) {
	if t.failure == "" {
		t.failure = fmt.Sprintf(format, args...)
	}
	panic(violation(t.failure))
}

// Caught makes an error of what ended a play at a step. A panic that is no violation continues.
func (t *Trace) Caught(panicked any, seed uint64, step int) error {
	v, ok := panicked.(violation)
	if !ok {
		panic(panicked)
	}
	if t.failure == "" {
		t.failure = string(v)
	}
	return fmt.Errorf("seed %d, step %d: %s", seed, step, t.failure)
}

// Sum is the hash of the trace: two plays with the same sum were the same to the last byte.
func (t *Trace) Sum() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.text.String()))
	return h.Sum64()
}

// Text returns the record.
func (t *Trace) Text() string { return t.text.String() }
