package zmq

import "encoding/binary"

// The flags of a frame, its first byte.
const (
	moreFlag    = 1 << iota // another frame of the message follows
	longFlag                // the size has 8 bytes, not 1
	commandFlag             // a command of ZMTP, no message
	reserved    = 0xff &^ (moreFlag | longFlag | commandFlag)
)

const (
	// maxEnvelope is how many bytes a message may have besides its largest frame.
	maxEnvelope = 64 << 10
	// maxHeader is the size of the larger frame header.
	maxHeader = 9
	// maxContext is how much of a PING comes back in the PONG, as ZMTP says.
	maxContext = 16
	// pingTTL is the size of the number in front of a PING's context.
	pingTTL = 2
)

// badFrame is a fault in the bytes of a peer. It ends the connection.
type badFrame string

func (b badFrame) Error() string { return "zmq: " + string(b) }

const (
	errReserved  badFrame = "a frame with unknown flags"
	errFrameSize badFrame = "a frame over the size limit"
	errFrames    badFrame = "a message of too many frames"
	errSize      badFrame = "a message over the size limit"
	errCommand   badFrame = "a command in pieces or inside a message"
)

// limits bound what is taken from a peer.
type limits struct {
	frame  int // bytes of one
	frames int // of one message
}

// message returns the most bytes of a message.
func (l limits) message() int { return l.frame + maxEnvelope }

// buffer returns the most bytes with which next cannot decide: a message that lacks its last frame's header.
func (l limits) buffer() int { return l.message() + maxHeader }

// kind is the kind of a message.
type kind uint8

const (
	request     kind = iota // an envelope and one payload
	noDelimiter             // no empty frame, or none behind it
	extraFrames             // more than one frame behind the delimiter
	ping
	otherCommand
)

// message is one message of a peer. Its fields are views into the bytes.
type message struct {
	kind     kind
	envelope []byte // a request's frames up to and including the delimiter, as they came
	payload  []byte // a request's, or what a ping wants back
}

// next parses the message at the start of in. With n == 0 and no error it needs more bytes. An error is final. Headers
// are checked before the bytes of their frames arrive.
func next(in []byte, l limits) (m message, n int, err error) {
	m.kind = noDelimiter
	for frames := 1; ; frames++ {
		flags, size, head := header(in[n:])
		switch {
		case head == 0:
			return m, 0, nil
		case flags&reserved != 0:
			return m, 0, errReserved
		case flags&commandFlag != 0 && (frames > 1 || flags&moreFlag != 0):
			return m, 0, errCommand
		case size > uint64(l.frame):
			return m, 0, errFrameSize
		case frames > l.frames:
			return m, 0, errFrames
		case n+head+int(size) > l.message():
			return m, 0, errSize
		case n+head+int(size) > len(in):
			return m, 0, nil
		}
		body := in[n+head : n+head+int(size) : n+head+int(size)]
		n += head + int(size)
		switch {
		case flags&commandFlag != 0:
			return command(body), n, nil
		case m.envelope == nil && size == 0:
			m.envelope = in[:n:n]
		case m.envelope != nil && m.kind == noDelimiter:
			m.kind, m.payload = request, body
		case m.envelope != nil:
			m.kind = extraFrames
		}
		if flags&moreFlag == 0 {
			return m, n, nil
		}
	}
}

// header reads a frame's flags and size. head is its own size, 0 when it is not all there.
func header(in []byte) (flags byte, size uint64, head int) {
	switch {
	case len(in) < 2:
		return 0, 0, 0
	case in[0]&longFlag == 0:
		return in[0], uint64(in[1]), 2
	case len(in) < maxHeader:
		return 0, 0, 0
	}
	return in[0], binary.BigEndian.Uint64(in[1:]), maxHeader
}

// command tells a PING from the others, none of which ask for anything. Its name stands behind its own length.
func command(body []byte) message {
	const name = "\x04PING"
	if len(body) < len(name)+pingTTL || string(body[:len(name)]) != name {
		return message{kind: otherCommand}
	}
	context := body[len(name)+pingTTL:]
	return message{kind: ping, payload: context[:min(len(context), maxContext)]}
}

// appendReply appends a message's envelope and its payload, the last frame.
func appendReply(dst, envelope, payload []byte) []byte {
	return append(appendHeader(append(dst, envelope...), 0, len(payload)), payload...)
}

// appendPong appends the answer to a PING.
func appendPong(dst, context []byte) []byte {
	const name = "\x04PONG"
	dst = appendHeader(dst, commandFlag, len(name)+len(context))
	return append(append(dst, name...), context...)
}

// appendHeader appends a frame's flags, without the long one, and its size.
func appendHeader(dst []byte, flags byte, size int) []byte {
	if size > 0xff {
		return binary.BigEndian.AppendUint64(append(dst, flags|longFlag), uint64(size))
	}
	return append(dst, flags, byte(size))
}
