package periodic

import "encoding/binary"

// Job is one Job record: str8 func, str8 name, str32 workload, int64 sched_at, ver1 and the fields of that version. The
// byte slices are views into the decoded bytes.
type Job struct {
	Func     []byte
	Name     []byte
	Workload []byte
	SchedAt  int64 // unix seconds; 0: at once
	Count    int32 // how often a worker has delayed the job, in the worker's own steps
	Timeout  int32 // seconds; 0: the job has none
}

// The versions of a record say which of the two optional fields follow.
const (
	versionBare = iota
	versionCount
	versionTimeout
	versionBoth
)

const (
	jobTailLen = 8 + 1                  // sched_at, version
	minJobLen  = 1 + 1 + 4 + jobTailLen // a record without a name, a workload or options
)

// ParseJob reads one record from the front of in and returns the bytes it takes up. The error is ErrTruncated when in
// ends inside the record, or ErrVersion; n is 0 then and j must not be used. Nothing is allocated. ParseJob does not
// bound the length of the workload; the caller does.
func ParseJob(in []byte, j *Job) (n int, err error) {
	if len(in) < minJobLen {
		return 0, ErrTruncated
	}
	funcEnd := 1 + int(in[0])
	if len(in) < funcEnd+minJobLen-1 {
		return 0, ErrTruncated
	}
	nameEnd := funcEnd + 1 + int(in[funcEnd])
	if len(in) < nameEnd+minJobLen-2 {
		return 0, ErrTruncated
	}
	size := int64(binary.BigEndian.Uint32(in[nameEnd:]))
	if int64(len(in)) < int64(nameEnd)+4+size+jobTailLen {
		return 0, ErrTruncated
	}
	workloadEnd := nameEnd + 4 + int(size)
	j.Func = in[1:funcEnd:funcEnd]
	j.Name = in[funcEnd+1 : nameEnd : nameEnd]
	j.Workload = in[nameEnd+4 : workloadEnd : workloadEnd]
	j.SchedAt = int64(binary.BigEndian.Uint64(in[workloadEnd:]))
	n = workloadEnd + jobTailLen
	version := in[n-1]
	if version == versionBare {
		j.Count, j.Timeout = 0, 0
		return n, nil
	}
	options, err := parseOptions(in[n:], version, j)
	if err != nil {
		return 0, err
	}
	return n + options, nil
}

// parseOptions reads the fields that a version over 0 adds to a record, and returns the bytes they take up.
func parseOptions(in []byte, version byte, j *Job) (n int, err error) {
	if version > versionBoth {
		return 0, ErrVersion
	}
	n = 4
	if version == versionBoth {
		n = 8
	}
	if len(in) < n {
		return 0, ErrTruncated
	}
	first := int32(binary.BigEndian.Uint32(in))
	switch version {
	case versionCount:
		j.Count, j.Timeout = first, 0
	case versionTimeout:
		j.Count, j.Timeout = 0, first
	default:
		j.Count, j.Timeout = first, int32(binary.BigEndian.Uint32(in[4:]))
	}
	return n, nil
}

// AppendJob appends j as a record of the smallest version that holds it: 0 without count and timeout, 1 with a count, 2
// with a timeout, 3 with both. It panics when Func or Name is over MaxStr8.
func AppendJob(dst []byte, j *Job) []byte {
	dst = AppendStr8(dst, j.Func)
	dst = AppendStr8(dst, j.Name)
	dst = AppendStr32(dst, j.Workload)
	return AppendJobTail(dst, j.SchedAt, j.Count, j.Timeout)
}

// AppendJobTail appends the part of a record behind the workload, as AppendJob does: schedAt in unix seconds, the
// version, count, and timeout in seconds. It is for callers that have the rest of the record as bytes.
func AppendJobTail(dst []byte, schedAt int64, count, timeout int32) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(schedAt))
	switch {
	case count == 0 && timeout == 0:
		return append(dst, versionBare)
	case timeout == 0:
		return binary.BigEndian.AppendUint32(append(dst, versionCount), uint32(count))
	case count == 0:
		return binary.BigEndian.AppendUint32(append(dst, versionTimeout), uint32(timeout))
	}
	dst = binary.BigEndian.AppendUint32(append(dst, versionBoth), uint32(count))
	return binary.BigEndian.AppendUint32(dst, uint32(timeout))
}
