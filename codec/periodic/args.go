package periodic

import (
	"encoding/binary"
	"math"
)

// Str8 reads a string with a length of one byte. s is a view into in, and rest is the bytes behind s. When in is too
// short, ok is false and rest is in.
func Str8(in []byte) (s, rest []byte, ok bool) {
	if len(in) == 0 {
		return nil, in, false
	}
	end := 1 + int(in[0])
	if len(in) < end {
		return nil, in, false
	}
	return in[1:end:end], in[end:], true
}

// Int64 reads a signed integer of 8 bytes; rest and ok are those of Str8.
func Int64(in []byte) (v int64, rest []byte, ok bool) {
	if len(in) < 8 {
		return 0, in, false
	}
	return int64(binary.BigEndian.Uint64(in)), in[8:], true
}

// Int16 reads a signed integer of 2 bytes; rest and ok are those of Str8.
func Int16(in []byte) (v int16, rest []byte, ok bool) {
	if len(in) < 2 {
		return 0, in, false
	}
	return int16(binary.BigEndian.Uint16(in)), in[2:], true
}

// Uint32 reads an unsigned integer of 4 bytes; rest and ok are those of Str8.
func Uint32(in []byte) (v uint32, rest []byte, ok bool) {
	if len(in) < 4 {
		return 0, in, false
	}
	return binary.BigEndian.Uint32(in), in[4:], true
}

// AppendStr8 appends s with a length of one byte. It panics over MaxStr8, since a shortened name would be another name.
func AppendStr8(dst []byte, s []byte) []byte { return appendStr8(dst, s) }

// AppendStr8String is AppendStr8 for a string.
func AppendStr8String(dst []byte, s string) []byte { return appendStr8(dst, s) }

func appendStr8[T []byte | string](dst []byte, s T) []byte {
	if len(s) > MaxStr8 {
		panic("BUG: a str8 over 255 bytes")
	}
	return append(append(dst, byte(len(s))), s...)
}

// AppendStr32 appends s with a length of 4 bytes. It panics when the length needs more.
func AppendStr32(dst, s []byte) []byte {
	if uint64(len(s)) > math.MaxUint32 {
		panic("BUG: a str32 over 4 GiB")
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}
