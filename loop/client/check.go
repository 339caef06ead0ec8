package client

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// DumpError says that a file is not what DUMP has written.
type DumpError struct{ What string }

func (e *DumpError) Error() string { return e.What }

// Lengths of a dump's parts, in bytes.
const (
	dumpCountLen = 8
	leastJobLen  = 1 + 1 + 4 + 8 + 1 // no name, no workload, no options
)

// optionsLen is what a record's version adds to it.
var optionsLen = [...]int{0, 4, 4, 8}

// CheckDump reads a dump of size bytes to its end, and returns how many jobs it has. What a dump cannot
// be is a DumpError; it takes no more memory than one buffer.
func CheckDump(r io.Reader, size int64) (jobs int64, err error) {
	d := dumpReader{in: bufio.NewReaderSize(io.LimitReader(r, size), copyBuffer), left: size}
	head, err := d.next(dumpCountLen)
	if err != nil {
		return 0, d.explain(err, "it has %s, and a dump has at least %d", counted(size, "byte"), dumpCountLen)
	}
	count := binary.BigEndian.Uint64(head)
	if most := uint64(d.left) / leastJobLen; count > uint64(size) {
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
		return 0, &DumpError{fmt.Sprintf("it has %s behind its %s, which would not be loaded", counted(d.left, "byte"), counted(jobs, "job"))}
	}
	return jobs, nil
}

// counted is a number of things.
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type dumpReader struct {
	in   *bufio.Reader
	left int64
}

// errVersion is a record whose end is not known.
var errVersion = errors.New("unknown version")

// job reads past one record.
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
		err = d.skip(int64(binary.BigEndian.Uint32(length)) + 8) // the workload, and when it is due
	}
	if err != nil {
		return err
	}
	version, err := d.next(1)
	if err != nil {
		return err
	}
	if int(version[0]) >= len(optionsLen) {
		return errVersion
	}
	return d.skip(int64(optionsLen[version[0]]))
}

// next returns the next n bytes, until it is called again.
func (d *dumpReader) next(n int) ([]byte, error) {
	b, err := d.in.Peek(n)
	if err != nil {
		return nil, err
	}
	_, err = d.in.Discard(n)
	d.left -= int64(n)
	return b, err
}

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

// explain is a DumpError, unless the source cannot be read.
func (d *dumpReader) explain(err error, format string, args ...any) error {
	switch {
	case errors.Is(err, errVersion):
		return &DumpError{"it is no dump: a job's record has a version that there is not"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &DumpError{fmt.Sprintf(format, args...)}
	}
	return err
}
