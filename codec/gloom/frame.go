package gloom

import "encoding/binary"

// Next takes one frame from the front of in and returns its payload, a view into in, and the bytes that the whole frame
// takes up. n == 0 and err == nil: more bytes are needed. limit bounds the payload in bytes; the one error is
// ErrTooLarge, as soon as the length is there. Whether the payload is JSON is not looked at. Nothing is allocated.
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

// Need returns how many bytes in must hold before Next can return something new, so that a caller who buffers a large
// frame calls Next once and not for every chunk: the whole frame, or HeaderLen when the header is not there. It is more
// than len(in) whenever Next has returned n == 0 without an error.
func Need(in []byte) int {
	if len(in) < HeaderLen {
		return HeaderLen
	}
	return HeaderLen + int(binary.BigEndian.Uint32(in))
}
