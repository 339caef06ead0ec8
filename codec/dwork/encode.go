package dwork

import "google.golang.org/protobuf/encoding/protowire"

// AppendType begins a message. An Error, an Exit and most NotFound replies have nothing more.
func AppendType(dst []byte, t Type) []byte {
	return append(dst, byte(queryType), byte(t))
}

// AppendTask appends a task to a message: its name, its origin, and its parts, which AppendPred, AppendSucc and
// AppendLog have made in this order. They may be in any number of slices.
func AppendTask(dst, name, origin []byte, parts ...[]byte) []byte {
	size := protowire.SizeBytes(len(name)) + protowire.SizeBytes(len(origin)) + 2
	for _, p := range parts {
		size += len(p)
	}
	dst = protowire.AppendVarint(append(dst, byte(queryTask)), uint64(size))
	dst = appendBytes(dst, taskName, name)
	dst = appendBytes(dst, taskOrigin, origin)
	for _, p := range parts {
		dst = append(dst, p...)
	}
	return dst
}

// AppendName appends a message's name: the task to look up, or the text of a status.
func AppendName(dst, name []byte) []byte { return appendBytes(dst, queryName, name) }

// AppendN appends a message's n: the number of tasks to steal, or of ready ones.
func AppendN(dst []byte, n int32) []byte { return appendNumber(dst, queryN, int64(n)) }

// AppendLocation appends a message's location: a worker.
func AppendLocation(dst, location []byte) []byte { return appendBytes(dst, queryLocation, location) }

// AppendPred appends a task that the task waits for to the task's parts.
func AppendPred(parts []byte, d Dep) []byte { return appendDep(parts, taskPred, d) }

// AppendSucc appends a task that waits for the task to the task's parts.
func AppendSucc(parts []byte, d Dep) []byte { return appendDep(parts, taskSucc, d) }

// AppendLog appends a log entry to the task's parts.
func AppendLog(parts []byte, e LogEntry) []byte {
	size := 2 + protowire.SizeVarint(uint64(e.State)) + protowire.SizeVarint(uint64(e.Time))
	parts = append(parts, byte(taskLog), byte(size))
	return appendNumber(appendNumber(parts, logState, int64(e.State)), logTime, e.Time)
}

// appendDep appends a dependency as a field of a message.
func appendDep(parts []byte, tag uint64, d Dep) []byte {
	size := 1 + protowire.SizeBytes(len(d.Name))
	if d.Location != nil {
		size += 1 + protowire.SizeBytes(len(d.Location))
	}
	parts = protowire.AppendVarint(append(parts, byte(tag)), uint64(size))
	parts = appendBytes(parts, depName, d.Name)
	if d.Location != nil {
		parts = appendBytes(parts, depLocation, d.Location)
	}
	return parts
}

func appendBytes(dst []byte, tag uint64, value []byte) []byte {
	return protowire.AppendBytes(append(dst, byte(tag)), value)
}

func appendNumber(dst []byte, tag uint64, value int64) []byte {
	return protowire.AppendVarint(append(dst, byte(tag)), uint64(value))
}
