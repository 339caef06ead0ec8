package gloom

import "encoding/binary"

// Next takes one frame from the front of in and returns its payload, a view into in, and the bytes that the whole frame
// takes up. n == 0 and err == nil: more bytes are needed. limit bounds the payload in bytes; the one error is
// ErrTooLarge, as soon as the length is there. Next does not check that the payload is JSON. Nothing is allocated.
func Next(in []byte, limit int) (payload []byte, n int, err error) {
	if len(in) < HeaderLen {
		return nil, 0, nil
	}
	size := int64(binary.BigEndian.Uint32(in))
	if size > int64(limit) {
		return nil, 0, ErrTooLarge
	}
	if int64(len(in)-HeaderLen) < size {
		return nil, 0, nil
	}
	n = HeaderLen + int(size)
	return in[HeaderLen:n:n], n, nil
}

// Need returns how many bytes in must have before Next can return a frame or an error: those of the whole frame, or
// HeaderLen without a header. A caller that buffers a large frame then calls Next once, not for every chunk. Need is
// more than len(in) whenever Next has returned n == 0 without an error.
func Need(in []byte) int {
	if len(in) < HeaderLen {
		return HeaderLen
	}
	return HeaderLen + int(binary.BigEndian.Uint32(in))
}
