package periodic

import (
	"encoding/binary"
)

// Frame is one decoded request. It is reused from call to call: Next sets every field.
type Frame struct {
	// MsgID is the 4 opaque bytes that the requester chose and that the reply repeats, read big-endian.
	MsgID uint32
	Cmd   Command
	// Args is what follows the command: a view into the decoded bytes, valid until they change. Nil for LOAD.
	Args []byte
	// More is, for LOAD alone, how many bytes of arguments follow behind the n bytes that Next took. The caller
	// consumes them as a stream before it calls Next again.
	More int
	// Sum is the announced checksum of a LOAD in the CRC framing, and PartialSum that of its message id and command.
	// The caller continues with crc32.Update over the More bytes and compares at their end.
	Sum        uint32
	PartialSum uint32
}

// Next decodes one request from the front of in and returns the bytes it takes up. n == 0 and err == nil: more bytes
// are needed. limit bounds the payload in bytes. It does not bound a LOAD, which is returned as soon as its command
// byte is there and has at most MaxPayload. Errors are ErrMagic, ErrShort, ErrTooLarge and ErrChecksum. Each is
// returned as soon as the bytes that prove it are there; only ErrChecksum needs bytes after the command byte. f is set
// only with n > 0. Nothing is allocated. The caller checks the checksum of a LOAD.
func Next(in []byte, fr Framing, limit int, f *Frame) (n int, err error) {
	head := fr.HeaderLen()
	if len(in) < head+messageLen || binary.BigEndian.Uint32(in) != wordRequest {
		return 0, checkHeader(in)
	}
	size := int64(binary.BigEndian.Uint32(in[sizeAt:]))
	msg := in[head:]
	cmd := Command(msg[msgIDLen])
	if size < messageLen || size > int64(limit) || cmd == Load {
		return nextUncommon(in, head, f)
	}
	if int64(len(msg)) < size {
		return 0, nil
	}
	msg = msg[:size:size]
	if fr == CRC && checksum(msg) != binary.BigEndian.Uint32(in[sumAt:]) {
		return 0, ErrChecksum
	}
	f.MsgID = binary.BigEndian.Uint32(msg)
	f.Cmd = cmd
	f.Args = msg[messageLen:]
	f.More, f.Sum, f.PartialSum = 0, 0, 0
	return head + int(size), nil
}

// checkHeader checks the magic bytes of a packet that is not complete, and its size once all bytes of the size are
// there.
func checkHeader(in []byte) error {
	if !hasMagic(in, magicRequest) {
		return ErrMagic
	}
	if len(in) < plainHeaderLen {
		return nil
	}
	size := binary.BigEndian.Uint32(in[sizeAt:])
	if size < messageLen {
		return ErrShort
	}
	if size > MaxPayload {
		return ErrTooLarge
	}
	return nil
}

// nextUncommon decodes the header and the command byte of a LOAD, and returns the error of a wrong size.
func nextUncommon(in []byte, head int, f *Frame) (n int, err error) {
	if err := checkHeader(in); err != nil {
		return 0, err
	}
	msg := in[head : head+messageLen]
	if Command(msg[msgIDLen]) != Load {
		return 0, ErrTooLarge
	}
	*f = Frame{
		MsgID: binary.BigEndian.Uint32(msg),
		Cmd:   Load,
		More:  int(binary.BigEndian.Uint32(in[sizeAt:])) - messageLen,
	}
	if head == crcHeaderLen {
		f.Sum = binary.BigEndian.Uint32(in[sumAt:])
		f.PartialSum = checksum(msg)
	}
	return head + messageLen, nil
}

// Need returns how many bytes in must have before Next can return a frame or an error. A caller that buffers a large
// frame then calls Next once, not for every chunk. Need is for bytes for which Next has returned n == 0 without an
// error. 0 means that the size is not there yet.
func Need(in []byte, fr Framing) int {
	if len(in) < plainHeaderLen || checkHeader(in) != nil {
		return 0
	}
	head := fr.HeaderLen()
	if len(in) < head+messageLen || Command(in[head+msgIDLen]) == Load {
		return head + messageLen
	}
	return head + int(binary.BigEndian.Uint32(in[sizeAt:]))
}

// Response is one decoded response. Body is a view into the decoded bytes: all that follows the message id, because
// some replies of 2018 (STATUS, RUN_JOB, DUMP) carry no command byte.
type Response struct {
	MsgID uint32
	Body  []byte
}

// NextResponse decodes one response from the front of in and returns the bytes it takes up, on the client's side. n ==
// 0 and err == nil: more bytes are needed. limit bounds the payload in bytes, at most MaxPayload. Errors are those of
// Next; r is set only with n > 0. The answer to a hello has no message id. Its 4 or 5 payload bytes fill MsgID and
// Body, which a client ignores.
func NextResponse(in []byte, fr Framing, limit int, r *Response) (n int, err error) {
	if !hasMagic(in, magicResponse) {
		return 0, ErrMagic
	}
	if len(in) < plainHeaderLen {
		return 0, nil
	}
	size := int64(binary.BigEndian.Uint32(in[sizeAt:]))
	if size < msgIDLen {
		return 0, ErrShort
	}
	if size > min(int64(limit), MaxPayload) {
		return 0, ErrTooLarge
	}
	head := fr.HeaderLen()
	if int64(len(in)-head) < size {
		return 0, nil
	}
	n = head + int(size)
	payload := in[head:n:n]
	if fr == CRC && checksum(payload) != binary.BigEndian.Uint32(in[sumAt:]) {
		return 0, ErrChecksum
	}
	*r = Response{MsgID: binary.BigEndian.Uint32(payload), Body: payload[msgIDLen:]}
	return n, nil
}

// hasMagic reports whether in begins with magic. Of a shorter in, only its bytes are compared.
func hasMagic(in []byte, magic string) bool {
	n := min(len(in), len(magic))
	return string(in[:n]) == magic[:n]
}
