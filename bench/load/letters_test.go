package load

import (
	"encoding/binary"
	"net"
)

// letters is a protocol as small as can be: a message is a letter and a job's id, behind which an assigned job has its
// workload. Requests have capital letters.
type letters struct{ traits Traits }

func letter(dst []byte, letter byte, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, letter), id)
}

func (l letters) Traits() Traits {
	l.traits.Parse = Sized(WorkloadLen)
	return l.traits
}
func (letters) Greet(net.Conn, Role) error { return nil }
func (letters) AppendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst) + 9
	dst = append(letter(dst, 'S', id), Workload(WorkloadLen)...)
	PutWorkload(dst[start:], id, sent)
	return dst
}
func (letters) AppendGrab(dst []byte, _ uint32) []byte { return letter(dst, 'G', 0) }
func (letters) AppendDone(dst []byte, e *Event) []byte { return letter(dst, 'D', e.ID) }
func (letters) Pending(net.Conn) (int, error)          { return 0, nil }
func (letters) Next(in []byte, e *Event) (int, error) {
	if len(in) < 9 {
		return 0, nil
	}
	kind, ok := map[byte]EventKind{'s': Submitted, 'j': Assigned, 'e': Empty, 'w': Woken, 'f': Finished, 'a': Answered}[in[0]]
	if !ok {
		return 0, Unexpected("letters", in)
	}
	e.Kind, e.ID = kind, binary.BigEndian.Uint64(in[1:])
	if kind != Assigned {
		return 9, nil
	}
	if len(in) < 9+WorkloadLen {
		return 0, nil
	}
	e.Workload = in[9:][:WorkloadLen]
	return 9 + WorkloadLen, nil
}
