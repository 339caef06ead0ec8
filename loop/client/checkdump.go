package client

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// DumpError reports that a file is not a complete dump.
type DumpError struct{ What string }

func (e *DumpError) Error() string { return e.What }

// Sizes of a dump's parts, in bytes.
const (
	dumpCountLen = 8
	minJobLen    = 1 + 1 + 4 + 8 + 1 // no name, no workload, no options
)

// optionsLen is the number of bytes that each record version adds.
var optionsLen = [...]int{0, 4, 4, 8}

// CheckDump reads a dump of size bytes to its end and returns its number of jobs. An invalid dump
// is a DumpError. CheckDump needs one buffer of memory.
func CheckDump(r io.Reader, size int64) (jobs int64, err error) {
	d := dumpReader{in: bufio.NewReaderSize(io.LimitReader(r, size), copyBuffer), left: size}
	head, err := d.next(dumpCountLen)
	if err != nil {
		return 0, d.explain(err, "it has %s, and a dump has at least %d", plural(size, "byte"), dumpCountLen)
	}
	count := binary.BigEndian.Uint64(head)
	if most := uint64(d.left) / minJobLen; count > uint64(size) {
		return 0, &DumpError{"it is no dump: it does not begin with a number of jobs"}
	} else if count > most {
		return 0, &DumpError{fmt.Sprintf("it is no dump, or was cut: it begins with a number of jobs, %d, for which it is too short", count)}
	}
	jobs = int64(count)
	for i := range jobs {
		if err := d.job(); err != nil {
			return 0, d.explain(err, "it was cut, or is no dump: it ends inside job %d of %d", i+1, jobs)
		}
	}
	if d.left > 0 {
		return 0, &DumpError{fmt.Sprintf("it has %s behind its %s, which would not be loaded", plural(d.left, "byte"), plural(jobs, "job"))}
	}
	return jobs, nil
}

// plural returns a number with its noun.
func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type dumpReader struct {
	in   *bufio.Reader
	left int64
}

// errUnknownVersion reports a record of an unknown version, whose end is therefore unknown.
var errUnknownVersion = errors.New("unknown version")

// job skips one record.
func (d *dumpReader) job() error {
	for range 2 { // function and name
		length, err := d.next(1)
		if err == nil {
			err = d.skip(int64(length[0]))
		}
		if err != nil {
			return err
		}
	}
	length, err := d.next(4)
	if err == nil {
		err = d.skip(int64(binary.BigEndian.Uint32(length)) + 8) // the workload and the due time
	}
	if err != nil {
		return err
	}
	version, err := d.next(1)
	if err != nil {
		return err
	}
	if int(version[0]) >= len(optionsLen) {
		return errUnknownVersion
	}
	return d.skip(int64(optionsLen[version[0]]))
}

// next returns the next n bytes, which are valid until the next call.
func (d *dumpReader) next(n int) ([]byte, error) {
	b, err := d.in.Peek(n)
	if err != nil {
		return nil, err
	}
	_, err = d.in.Discard(n)
	d.left -= int64(n)
	return b, err
}

// skip skips n bytes of the dump. It returns io.ErrUnexpectedEOF if the dump has fewer.
func (d *dumpReader) skip(n int64) error {
	if n > d.left {
		return io.ErrUnexpectedEOF
	}
	for d.left -= n; n > 0; {
		k, err := d.in.Discard(int(min(n, copyBuffer)))
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

// explain returns a DumpError, or err when the source cannot be read.
func (d *dumpReader) explain(err error, format string, args ...any) error {
	switch {
	case errors.Is(err, errUnknownVersion):
		return &DumpError{"it is no dump: a job's record has an unknown version"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &DumpError{fmt.Sprintf(format, args...)}
	}
	return err
}
