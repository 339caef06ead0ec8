package dwork

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The known fields as on the wire, number and kind in one word.
const (
	queryType     = 1<<3 | uint64(protowire.VarintType)
	queryTask     = 2<<3 | uint64(protowire.BytesType)
	queryName     = 3<<3 | uint64(protowire.BytesType)
	queryN        = 4<<3 | uint64(protowire.VarintType)
	queryLocation = 6<<3 | uint64(protowire.BytesType)

	taskName   = 1<<3 | uint64(protowire.BytesType)
	taskOrigin = 2<<3 | uint64(protowire.BytesType)
	taskPred   = 4<<3 | uint64(protowire.BytesType)
	taskSucc   = 5<<3 | uint64(protowire.BytesType)
	taskLog    = 6<<3 | uint64(protowire.BytesType)

	depName     = 1<<3 | uint64(protowire.BytesType)
	depLocation = 2<<3 | uint64(protowire.BytesType)

	logState = 1<<3 | uint64(protowire.VarintType)
	logTime  = 2<<3 | uint64(protowire.VarintType)
)

// fields reads a message field by field: for f.next(). A field whose kind no known field has is skipped. As in
// protobuf, a known number with another kind is an unknown field.
type fields struct {
	rest   []byte
	tag    uint64 // of the field
	number uint64 // its value, when its kind is varint
	bytes  []byte // its value, when its kind is bytes: never nil then
	broken bool   // rest is not valid protobuf
	read   int    // the number of fields read so far; a group counts with the most fields that it has room for
}

// next reads one field. It returns false at the end, or when broken is set.
func (f *fields) next() bool {
	if len(f.rest) == 0 || f.broken {
		return false
	}
	var n int
	if f.tag = uint64(f.rest[0]); f.tag < 0x80 {
		n = 1
	} else if f.tag, n = protowire.ConsumeVarint(f.rest); n < 0 {
		return f.fail()
	}
	number, kind := f.tag>>3, protowire.Type(f.tag&7)
	if number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		return f.fail()
	}
	value := f.rest[n:]
	switch kind {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(value)
	case protowire.BytesType:
		if len(value) > 0 && int(value[0]) < min(len(value), 0x80) { // most are short
			n = 1 + int(value[0])
			f.bytes = value[1:n:n]
			break
		}
		f.bytes, n = protowire.ConsumeBytes(value)
		f.bytes = slices.Clip(f.bytes)
	default:
		n = protowire.ConsumeFieldValue(protowire.Number(number), kind, value)
		f.read += max(n, 0) / 2 // a field of a group has two bytes or more
	}
	if n < 0 {
		return f.fail()
	}
	f.rest = value[n:]
	f.read++
	return true
}

func (f *fields) fail() bool {
	f.broken = true
	return false
}
