package gloom

import (
	"encoding/binary"

	codec "treadle/codec/gloom"
	"treadle/loop/protocol"
	"treadle/sched"
)

// The name spaces of Gloom jobs: ids are JSON values, a string's characters in one, any
// other value's text in the other, so that 7 and "7" are two ids.
const (
	TextSpace  sched.Space = 2
	ValueSpace sched.Space = 3
)

func own(space sched.Space) bool { return space == TextSpace || space == ValueSpace }

// Spaces are those of Gloom jobs: an id is unique among all masters; a job dies with its
// master, is never timed, and fails with its fourth slave. Its workload is id, type and
// body, each as it was received.
func Spaces() []protocol.Space {
	space := protocol.Space{
		Rules: sched.Rules{Global: true, Owned: true, Untimed: true, Deaths: 4},
		Bare:  true,
		Text: func(dst []byte, j *sched.Job) []byte {
			_, _, body := splitWorkload(j.Workload)
			return append(dst, body...)
		},
		Result: func(dst, data []byte) []byte {
			dst, _ = codec.AppendValue(dst, data)
			return dst
		},
		Receipt: func(workload []byte) []byte {
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
