package periodic

import "encoding/binary"

// NeedJob returns how many bytes in, the front of an unfinished Job record, must have before ParseJob can continue.
// Once in has the workload's size, that is the length of the record. It is more than len(in) while ParseJob returns
// ErrTruncated.
func NeedJob(in []byte) int {
	need := minJobLen
	if len(in) < need {
		return need
	}
	fn := 1 + int(in[0])
	if need = fn + minJobLen - 1; len(in) < need {
		return need
	}
	name := fn + 1 + int(in[fn])
	if need = name + minJobLen - 2; len(in) < need {
		return need
	}
	need = name + 4 + int(binary.BigEndian.Uint32(in[name:])) + jobTailLen
	if len(in) < need {
		return need
	}
	switch in[need-1] {
	case versionCount, versionTimeout:
		need += 4
	case versionBoth:
		need += 8
	}
	return need
}
