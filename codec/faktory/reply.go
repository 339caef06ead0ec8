package faktory

import (
	"bytes"
	"errors"
	"strconv"
)

// AppendOK appends the reply to a command that was carried out.
func AppendOK(dst []byte) []byte { return append(dst, "+OK\r\n"...) }

// AppendNull appends the reply to a FETCH without a job.
func AppendNull(dst []byte) []byte { return append(dst, "$-1\r\n"...) }

// AppendBulk appends a reply of any bytes.
func AppendBulk(dst, data []byte) []byte {
	return EndBulk(append(BeginBulk(dst, len(data)), data...))
}

// BeginBulk begins a reply of n bytes, which the caller appends before EndBulk.
func BeginBulk(dst []byte, n int) []byte {
	return append(strconv.AppendInt(append(dst, '$'), int64(n), 10), "\r\n"...)
}

// EndBulk ends what BeginBulk began.
func EndBulk(dst []byte) []byte { return append(dst, "\r\n"...) }

// AppendError appends an error: a code in capitals, and a text. Line ends in the text become spaces.
func AppendError(dst []byte, code, text string) []byte {
	dst = append(append(append(dst, '-'), code...), ' ')
	for i := range len(text) {
		if c := text[i]; c == '\r' || c == '\n' {
			dst = append(dst, ' ')
		} else {
			dst = append(dst, c)
		}
	}
	return append(dst, "\r\n"...)
}

// AppendHi appends the server's greeting. With a salt the client has to prove that it knows the password, see Hash.
func AppendHi(dst []byte, salt string, iterations int) []byte {
	dst = strconv.AppendInt(append(dst, `+HI {"v":`...), Version, 10)
	if salt != "" {
		dst = strconv.AppendInt(append(dst, `,"i":`...), int64(iterations), 10)
		dst = append(append(append(dst, `,"s":"`...), salt...), '"')
	}
	return append(dst, "}\r\n"...)
}

// Kind is the kind of a reply.
type Kind byte

// The kinds of replies.
const (
	Simple Kind = '+' // a line
	Error  Kind = '-' // a line: a code and a text
	Number Kind = ':'
	Bulk   Kind = '$' // any bytes
	Null   Kind = 0   // a Bulk that is not there
)

// ErrReply reports that bytes are no reply.
var ErrReply = errors.New("the server sent no reply of the protocol")

// NextReply returns the kind and the data of the first reply of in, a view, and its length. n is 0 when it is not
// complete. The error is ErrTooLong for data of more than limit bytes, or ErrReply.
func NextReply(in []byte, limit int) (kind Kind, data []byte, n int, err error) {
	end := bytes.Index(in, []byte("\r\n"))
	if end < 0 {
		if len(in) > limit {
			return 0, nil, 0, ErrTooLong
		}
		return 0, nil, 0, nil
	}
	if end == 0 {
		return 0, nil, 0, ErrReply
	}
	kind, data, n = Kind(in[0]), in[1:end:end], end+2
	switch kind {
	case Simple, Error:
		return kind, data, n, nil
	case Number:
		if _, err := strconv.ParseInt(string(data), 10, 64); err != nil {
			return 0, nil, 0, ErrReply
		}
		return kind, data, n, nil
	case Bulk:
		return nextBulk(in, data, n, limit)
	}
	return 0, nil, 0, ErrReply
}

// nextBulk is NextReply for a Bulk, whose length is text. n is where its bytes begin.
func nextBulk(in, text []byte, n, limit int) (Kind, []byte, int, error) {
	size, err := strconv.Atoi(string(text))
	switch {
	case err != nil || size < -1 || len(text) > 1 && text[0] == '0' || text[0] == '+':
		return 0, nil, 0, ErrReply
	case size == -1:
		return Null, nil, n, nil
	case size > limit:
		return 0, nil, 0, ErrTooLong
	case len(in) < n+size+2:
		return 0, nil, 0, nil
	case in[n+size] != '\r' || in[n+size+1] != '\n':
		return 0, nil, 0, ErrReply
	}
	return Bulk, in[n : n+size : n+size], n + size + 2, nil
}
