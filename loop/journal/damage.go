package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// Damage is one place in the store that is missing or cannot be read.
type Damage struct {
	File   string // relative to the data directory; empty: unknown
	Offset int64  // offset in the file; -1: unknown
	Length int64  // length in bytes; 0: unknown
	What   string
}

// String returns the damage as one line: the file, the offset, what is wrong and the length, as far as they are known.
func (d Damage) String() string {
	s := d.What
	if d.Offset >= 0 {
		s = fmt.Sprintf("at offset %d: %s", d.Offset, s)
	}
	if d.Length > 0 {
		s = fmt.Sprintf("%s (%v)", s, Size(d.Length))
	}
	if d.File != "" {
		s = d.File + " " + s
	}
	return s
}

// DamageError reports that a data directory has lost committed changes.
type DamageError struct {
	Dir    string
	Damage []Damage // at least one
}

func (e *DamageError) Error() string {
	more := ""
	if n := len(e.Damage) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return fmt.Sprintf("the data directory %q is damaged: %s%s; run treadle journal check, then treadle journal repair", e.Dir, e.Damage[0], more)
}

// damaged turns an error of reading the store into a DamageError, unless a callback or the
// operating system returned it.
func (j *Journal) damaged(err error) error {
	var own callbackError
	if errors.As(err, &own) {
		return own.error
	}
	if failed := j.disk.failure(); failed != nil {
		err = failed // this error names the file
	}
	return j.dir.damageError(err)
}

func (d *dataDir) damageError(err error) error {
	var g decodeError
	if pebble.IsCorruptionError(err) || errors.As(err, &g) {
		return &DamageError{Dir: d.root, Damage: []Damage{d.locate(damageOf(err))}}
	}
	return fmt.Errorf("cannot read the data directory %q: %w", d.root, cause(err))
}

// decodeError reports bytes that the store reads and this package cannot decode.
type decodeError struct{ error }

// firstError returns the first error that is not nil. A close after a failure often fails for the
// same reason, and one report is enough.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// The store names table numbers and block offsets only in the text of its errors.
var (
	tableInError  = regexp.MustCompile(`\b(\d{6,})(?:\.sst)?\b`)
	blockInError  = regexp.MustCompile(`\bblock (\d+)/(\d+): `)
	footerInError = regexp.MustCompile(`\binvalid table \d+: `)
)

// Sizes in tables of storeFormat.
const (
	blockTrailer = 5  // bytes behind each block: compression type and checksum
	tableFooter  = 57 // bytes at the end of a table: where the index blocks are
)

// damageOf extracts file and offset from an error of the store.
func damageOf(err error) Damage {
	what, _, _ := strings.Cut(err.Error(), "\n") // the other lines are a stack trace
	d := Damage{Offset: -1, What: what}
	if !pebble.IsCorruptionError(err) {
		return d
	}
	if m := tableInError.FindStringSubmatch(what); m != nil {
		d.File = filepath.Join(storeName, m[1]+".sst")
	}
	if m := blockInError.FindStringSubmatchIndex(what); m != nil {
		d.Offset, _ = strconv.ParseInt(what[m[2]:m[3]], 10, 64)
		d.Length, _ = strconv.ParseInt(what[m[4]:m[5]], 10, 64)
		d.Length += blockTrailer
		d.What = "a block cannot be read: " + what[m[1]:]
	} else if m := footerInError.FindStringIndex(what); m != nil {
		d.Length = tableFooter
		d.What = "the table's footer cannot be read: " + what[m[1]:]
	}
	return d
}

// locate sets the offset of a damaged footer, which is at the end of its file.
func (d *dataDir) locate(at Damage) Damage {
	if at.Offset >= 0 || at.Length == 0 {
		return at
	}
	if info, err := d.fs.Stat(d.path(at.File)); err == nil {
		at.Offset = max(info.Size()-at.Length, 0)
	}
	return at
}
