// Package faktory is the bytes of the Faktory work protocol: commands as lines with JSON, replies as of RESP, and the
// JSON of jobs. It knows no sockets.
//
// Decoded values are views into the input, and the Append functions write into buffers of the caller. A job keeps the
// bytes of its values: numbers of any size, the escapes of strings and the order of members in custom data.
package faktory

import (
	"bytes"
	"errors"
)

// Version is the version of the protocol that the greeting names.
const Version = 2

// ErrTooLong reports that a line is longer than the limit.
var ErrTooLong = errors.New("a line is too long")

// Next returns the first line of in without its end, CR LF or LF, and the length with it. n is 0 when the line is not
// complete. The caller knows that the first scanned bytes have no LF. The error is ErrTooLong for a line of more than
// limit bytes.
func Next(in []byte, scanned, limit int) (line []byte, n int, err error) {
	i := bytes.IndexByte(in[scanned:], '\n')
	if i < 0 {
		if len(in) > limit+1 { // a CR may be the last byte
			return nil, 0, ErrTooLong
		}
		return nil, 0, nil
	}
	n = scanned + i + 1
	line = in[: n-1 : n-1]
	if last := len(line) - 1; last >= 0 && line[last] == '\r' {
		line = line[:last:last]
	}
	if len(line) > limit {
		return nil, 0, ErrTooLong
	}
	return line, n, nil
}

// Cut splits a line into its first word and what follows the space behind it.
func Cut(line []byte) (word, rest []byte) {
	word, rest, _ = bytes.Cut(line, space)
	return word, rest
}

var space = []byte{' '}
