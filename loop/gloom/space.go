package gloom

import (
	"encoding/binary"

	codec "treadle/codec/gloom"
	"treadle/codec/jsontext"
	"treadle/loop/protocol"
	"treadle/sched"
)

// The name spaces of Gloom jobs. An id is a JSON value. Strings and other values have a space each, so that 7 and "7"
// are two ids.
const (
	TextSpace  sched.Space = 2
	ValueSpace sched.Space = 3
)

func isGloom(space sched.Space) bool { return space == TextSpace || space == ValueSpace }

// Spaces returns the name spaces of Gloom jobs. An id is unique among all masters. A job is removed when its master
// leaves, has no time-out, and fails when its fourth slave leaves. Its workload is id, type and body as received.
func Spaces() []protocol.Space {
	body := func(dst []byte, j *sched.Job) []byte {
		_, _, body := splitWorkload(j.Workload)
		return append(dst, body...)
	}
	space := protocol.Space{
		Protocol: name,
		Rules:    sched.Rules{Global: true, Owned: true, Untimed: true, MaxFailures: 4},
		NoTimes:  true,
		AsText:   body,
		AsJSON:   body,
		FromResult: func(dst, data []byte) []byte {
			dst, _ = jsontext.AppendValue(dst, data)
			return dst
		},
		ReplyPart: func(workload []byte) []byte {
			_, _, body := splitWorkload(workload)
			return workload[:len(workload)-len(body)]
		},
	}
	text, value := space, space
	text.ID, value.ID = TextSpace, ValueSpace
	return []protocol.Space{text, value}
}

func appendWorkload(dst []byte, m *codec.Message) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(m.ID)))
	dst = append(dst, m.ID...)
	dst = binary.AppendUvarint(dst, uint64(len(m.Type)))
	dst = append(dst, m.Type...)
	return append(dst, m.Body...)
}

func splitWorkload(workload []byte) (id, typ, body []byte) {
	part := func() []byte {
		size, n := binary.Uvarint(workload)
		p := workload[n : n+int(size)]
		workload = workload[n+int(size):]
		return p
	}
	id, typ = part(), part()
	return id, typ, workload
}
