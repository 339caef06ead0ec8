package periodic

import (
	"encoding/binary"
)

// BeginResponse appends the header of a response to dst, without its size and checksum. The caller appends the payload
// and calls End, which fills them in.
func BeginResponse(dst []byte, fr Framing) []byte {
	return appendHeader(dst, fr, wordResponse)
}

// BeginRequest is BeginResponse for a request, on the client's side.
func BeginRequest(dst []byte, fr Framing) []byte {
	return appendHeader(dst, fr, wordRequest)
}

func appendHeader(dst []byte, fr Framing, magic uint32) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(magic)<<32)
	if fr == CRC {
		dst = append(dst, 0, 0, 0, 0)
	}
	return dst
}

// End writes the size, and in the CRC framing the checksum, of the packet that ends dst and was begun when dst had
// start bytes. It panics over MaxPayload.
func End(dst []byte, start int, fr Framing) {
	head := start + fr.HeaderLen()
	size := len(dst) - head
	if size > MaxPayload {
		panic("BUG: a payload over MaxPayload")
	}
	binary.BigEndian.PutUint32(dst[start+sizeAt:], uint32(size))
	if fr == CRC {
		binary.BigEndian.PutUint32(dst[start+sumAt:], checksum(dst[head:]))
	}
}

// AppendResponseHeader appends a whole header for a response whose payload of size bytes is sent in pieces, as DUMP's
// is. sum is the IEEE CRC-32 of that payload and is left out in the plain framing. It panics over MaxPayload.
func AppendResponseHeader(dst []byte, fr Framing, size int, sum uint32) []byte {
	if size > MaxPayload {
		panic("BUG: a payload over MaxPayload")
	}
	dst = binary.BigEndian.AppendUint64(dst, wordResponse<<32|uint64(size))
	if fr == CRC {
		dst = binary.BigEndian.AppendUint32(dst, sum)
	}
	return dst
}

// AppendMessage appends the message id and the command, with which every payload begins. It follows BeginResponse or
// BeginRequest.
func AppendMessage(dst []byte, msgID uint32, cmd Command) []byte {
	return append(dst, byte(msgID>>24), byte(msgID>>16), byte(msgID>>8), byte(msgID), byte(cmd))
}

// AppendReply appends a whole response without arguments: SUCCESS, PONG, NOOP, UNKNOWN and their like.
func AppendReply(dst []byte, fr Framing, msgID uint32, cmd Command) []byte {
	if fr == CRC {
		start := len(dst)
		dst = AppendMessage(BeginResponse(dst, CRC), msgID, cmd)
		End(dst, start, CRC)
		return dst
	}
	return append(dst, 0, 'R', 'E', 'S', 0, 0, 0, messageLen,
		byte(msgID>>24), byte(msgID>>16), byte(msgID>>8), byte(msgID), byte(cmd))
}
