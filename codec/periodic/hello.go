package periodic

import (
	"encoding/binary"
)

// Hello is the first packet of a connection. Name and Token are set for the authenticated roles alone, and are views
// into the decoded bytes.
type Hello struct {
	Framing Framing
	Role    Role
	Name    []byte
	Token   []byte
}

// crcClient and crcWorker follow the size field in the CRC hello of the two bare roles: crc4 and the role itself.
const (
	crcClient = "\xa5\x05\xdf\x1b\x01"
	crcWorker = "\x3c\x0c\x8e\xa1\x02"
)

const (
	bareHelloSize  = 1         // payload of a bare role: the role
	minNamedHello  = 1 + 8 + 8 // payload of an authenticated role without name and token
	helloLengthLen = 8         // a name's or token's length is an int64
)

// NextHello decodes the first packet of a connection, which tells the framing, and returns the bytes it takes up. n ==
// 0 and err == nil: more bytes are needed, never more than HelloLimit in all. Errors are ErrMagic, ErrHello,
// ErrChecksum and ErrHelloSize, each as soon as the bytes that prove it are there. h is set only with n > 0.
//
// A payload of one byte is a bare role, and the byte behind the size tells the versions apart: the role itself is the
// plain framing, the first byte of that role's checksum is the CRC framing. Longer payloads exist in the CRC framing
// alone: there that byte may have any value, and the lengths must add up to the size.
func NextHello(in []byte, h *Hello) (n int, err error) {
	if !hasMagic(in, magicRequest) {
		return 0, ErrMagic
	}
	if len(in) < plainHeaderLen {
		return 0, nil
	}
	size := binary.BigEndian.Uint32(in[sizeAt:])
	switch {
	case size > HelloLimit-crcHeaderLen:
		return 0, ErrHelloSize
	case size == bareHelloSize:
		return nextBareHello(in, h)
	case size < minNamedHello:
		return 0, ErrHello
	}
	return nextNamedHello(in, crcHeaderLen+int(size), h)
}

// nextBareHello decodes a hello of one payload byte, whose header is there.
func nextBareHello(in []byte, h *Hello) (n int, err error) {
	if len(in) == plainHeaderLen {
		return 0, nil
	}
	switch first := in[plainHeaderLen]; first {
	case byte(Client), byte(Worker):
		*h = Hello{Framing: Plain, Role: Role(first)}
		return plainHeaderLen + bareHelloSize, nil
	case crcClient[0]:
		return nextCRCHello(in, crcClient, h)
	case crcWorker[0]:
		return nextCRCHello(in, crcWorker, h)
	}
	return 0, ErrHello
}

// nextCRCHello decodes a bare hello in the CRC framing: want is all that may stand behind the size.
func nextCRCHello(in []byte, want string, h *Hello) (n int, err error) {
	end := min(len(in), plainHeaderLen+len(want))
	got := in[plainHeaderLen:end]
	if string(got) != want[:len(got)] {
		return 0, ErrChecksum
	}
	if len(got) < len(want) {
		return 0, nil
	}
	*h = Hello{Framing: CRC, Role: Role(want[len(want)-1])}
	return end, nil
}

// nextNamedHello decodes a hello of an authenticated role that ends at end: role1, int64 length, name, int64 length,
// token.
func nextNamedHello(in []byte, end int, h *Hello) (n int, err error) {
	if len(in) <= crcHeaderLen {
		return 0, nil
	}
	role := Role(in[crcHeaderLen])
	if role != AuthClient && role != AuthWorker {
		return 0, ErrHello
	}
	name := crcHeaderLen + 1 + helloLengthLen // where the name begins
	if len(in) < name {
		return 0, nil
	}
	length := binary.BigEndian.Uint64(in[name-helloLengthLen:])
	if length > uint64(end-name-helloLengthLen) { // a negative length as well
		return 0, ErrHello
	}
	nameEnd := name + int(length)
	token := nameEnd + helloLengthLen // where the token begins
	if len(in) < token {
		return 0, nil
	}
	if binary.BigEndian.Uint64(in[nameEnd:]) != uint64(end-token) {
		return 0, ErrHello
	}
	if len(in) < end {
		return 0, nil
	}
	if checksum(in[crcHeaderLen:end]) != binary.BigEndian.Uint32(in[sumAt:]) {
		return 0, ErrChecksum
	}
	*h = Hello{Framing: CRC, Role: role, Name: in[name:nameEnd:nameEnd], Token: in[token:end:end]}
	return end, nil
}

// AppendHello appends the first packet of a connection to dst. Name and Token are sent only with the authenticated
// roles, which only the CRC framing has. AppendHello panics when a plain hello has such a role.
func AppendHello(dst []byte, h *Hello) []byte {
	named := h.Role == AuthClient || h.Role == AuthWorker
	if named && h.Framing == Plain {
		panic("BUG: an authenticated role in the plain framing")
	}
	start := len(dst)
	dst = append(BeginRequest(dst, h.Framing), byte(h.Role))
	if named {
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(h.Name)))
		dst = append(dst, h.Name...)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(h.Token)))
		dst = append(dst, h.Token...)
	}
	End(dst, start, h.Framing)
	return dst
}

// AppendHelloReply appends the answer to a hello as of 2018 and 2019: the connection id alone, without a message id and
// without a command. The id has 4 bytes, since clients of that version fail on a longer one.
func AppendHelloReply(dst []byte, fr Framing, connectionID uint32) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint32(BeginResponse(dst, fr), connectionID)
	End(dst, start, fr)
	return dst
}

// AppendHelloReplyData appends the answer to a hello as of 2020 and later, which is of the CRC framing: the command
// DATA and the connection id, without a message id.
func AppendHelloReplyData(dst []byte, connectionID uint32) []byte {
	start := len(dst)
	dst = append(BeginResponse(dst, CRC), byte(Data))
	dst = binary.BigEndian.AppendUint32(dst, connectionID)
	End(dst, start, CRC)
	return dst
}
