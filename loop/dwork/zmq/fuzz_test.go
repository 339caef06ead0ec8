package zmq

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// frameOf is one frame of a message, as a reader that has all of it sees it.
type frameOf struct {
	flags byte
	body  []byte
}

// cut takes the frames of bytes that are whole frames apart.
func cut(t *testing.T, in []byte) (all []frameOf) {
	t.Helper()
	for r := bytes.NewReader(in); r.Len() > 0; {
		f := frameOf{}
		var size uint64
		f.flags, _ = r.ReadByte()
		if f.flags&longFlag != 0 {
			if err := binary.Read(r, binary.BigEndian, &size); err != nil {
				t.Fatalf("%x is taken for whole frames: %v", in, err)
			}
		} else {
			short, _ := r.ReadByte()
			size = uint64(short)
		}
		if uint64(r.Len()) < size {
			t.Fatalf("%x is taken for whole frames: %d bytes are missing", in, size-uint64(r.Len()))
		}
		f.body = make([]byte, size)
		_, _ = r.Read(f.body)
		all = append(all, f)
	}
	return all
}

// naiveKind says what a message of these frames is, by its list: what stands behind the first empty one.
func naiveKind(all []frameOf) (kind, []byte) {
	if first := all[0]; first.flags&commandFlag != 0 {
		if len(first.body) < 7 || string(first.body[:5]) != "\x04PING" {
			return otherCommand, nil
		}
		return ping, first.body[7:min(len(first.body), 7+16)]
	}
	for i, f := range all {
		if len(f.body) > 0 {
			continue
		}
		switch behind := all[i+1:]; len(behind) {
		case 0:
			return noDelimiter, nil
		case 1:
			return request, behind[0].body
		default:
			return extraFrames, nil
		}
	}
	return noDelimiter, nil
}

// FuzzMessages reads a stream of messages as a dumber reader does that looks at each when all of it is there. No part
// of a message is one, a fault is the same however much stands behind it, and a reply carries what the request did.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(frames("", "a") + frames("id", "other", "", "payload") + commandFrame("PING", "\x00\x01context") + commandFrame("PONG", "")))
	f.Add([]byte(frames("a", "b") + frames("") + frames("", "") + frames("", "a", "b") + "\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01a"))
	f.Add([]byte(long(moreFlag, 3) + "abc" + frames("", "x") + long(0, 1<<40)))
	f.Add([]byte(frames("1", "2", "3", "4", "5")))
	f.Add([]byte("\x08\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		limits := limits{frame: 1 << 8, frames: 4}
		for rest := in; len(rest) > 0; {
			m, n, err := next(rest, limits)
			for i := range rest {
				part, size, fault := next(rest[:i], limits)
				if fault != nil && fault != err || i < n && (size != 0 || fault != nil) || n > 0 && i >= n && (size != n || part.kind != m.kind) {
					t.Fatalf("%x is a message of %d bytes, %v; its first %d are one of %d, %v", rest, n, err, i, size, fault)
				}
			}
			if err != nil || n == 0 {
				return
			}
			all := cut(t, rest[:n])
			for i, f := range all {
				if more := f.flags&moreFlag != 0; more != (i < len(all)-1) || len(f.body) > limits.frame || len(all) > limits.frames {
					t.Fatalf("%x is taken for a message of the frames %v", rest[:n], all)
				}
			}
			what, payload := naiveKind(all)
			if m.kind != what || (what == request || what == ping) && !bytes.Equal(m.payload, payload) {
				t.Fatalf("%x is a message of kind %d with %x, read as %d with %x", rest[:n], what, payload, m.kind, m.payload)
			}
			if what == request {
				reply := appendReply(nil, m.envelope, m.payload)
				again, size, err := next(reply, limits)
				if err != nil || size != len(reply) || !bytes.Equal(again.envelope, m.envelope) || !bytes.Equal(again.payload, m.payload) {
					t.Fatalf("the reply to %x is %x, which is read as %+v, %v", rest[:n], reply, again, err)
				}
			}
			rest = rest[n:]
		}
	})
}
