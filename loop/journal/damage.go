package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
)

// Damage is one place in the store that cannot be read and should be.
type Damage struct {
	File   string // below the data directory; empty if it is not known
	Offset int64  // in the file; -1 if it is not known
	Length int64  // in bytes; 0 if it is not known
	What   string
}

func (d Damage) String() string {
	s := d.What
	if d.Offset >= 0 {
		s = fmt.Sprintf("at offset %d: %s", d.Offset, s)
	}
	if d.Length > 0 {
		s = fmt.Sprintf("%s (%d bytes)", s, d.Length)
	}
	if d.File != "" {
		s = d.File + " " + s
	}
	return s
}

// DamageError says that a data directory lost committed changes.
type DamageError struct {
	Dir    string
	Damage []Damage // at least one
}

func (e *DamageError) Error() string {
	more := ""
	if n := len(e.Damage) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return fmt.Sprintf("the data directory %q is damaged: %s%s; see treadle journal check", e.Dir, e.Damage[0], more)
}

// damaged turns what reading the store ended with into a DamageError, unless it is
// a caller's error or one of the system.
func (j *Journal) damaged(err error) error {
	var own callerError
	if errors.As(err, &own) {
		return own.error
	}
	if broke := j.guard.failure(); broke != nil {
		err = broke // it knows the file
	}
	return damageError(j.options.Dir, err)
}

func damageError(dir string, err error) error {
	var g garbled
	if pebble.IsCorruptionError(err) || errors.As(err, &g) {
		return &DamageError{Dir: dir, Damage: []Damage{damageOf(err)}}
	}
	return fmt.Errorf("cannot read the data directory %q: %w", dir, cause(err))
}

// garbled is an error for what the store reads well and this package does not
// understand.
type garbled struct{ error }

// first is the first error there is. What failed often fails again when it is
// closed, and once is enough.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// The store names files by number and blocks by place in its messages only.
var (
	tableInError = regexp.MustCompile(`\b(\d{6,})(?:\.sst)?\b`)
	blockInError = regexp.MustCompile(`\bblock (\d+)/(\d+): `)
)

// damageOf reads the place out of an error of the store.
func damageOf(err error) Damage {
	d := Damage{Offset: -1, What: err.Error()}
	if !pebble.IsCorruptionError(err) {
		return d
	}
	if m := tableInError.FindStringSubmatch(d.What); m != nil {
		d.File = filepath.Join(storeName, m[1]+".sst")
	}
	if m := blockInError.FindStringSubmatchIndex(d.What); m != nil {
		d.Offset, _ = strconv.ParseInt(d.What[m[2]:m[3]], 10, 64)
		d.Length, _ = strconv.ParseInt(d.What[m[4]:m[5]], 10, 64)
		d.What = "a block cannot be read: " + d.What[m[1]:]
	}
	return d
}
