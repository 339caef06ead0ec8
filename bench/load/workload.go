package load

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

const (
	// WorkloadLen is the size of a job's workload in bytes, except in the payload rows.
	WorkloadLen = 100
	// QueueName is the one queue, function or list that all jobs go through.
	QueueName = "bench"

	// timedLen is the least size of a workload that has room for its id, its time and its end.
	timedLen = 17
	// workloadEnd is the last byte of every workload, so that a cut or shifted workload is noticed.
	workloadEnd = '.'
)

// A job's unique name is JobPrefix and twelve hexadecimal digits.
const (
	JobPrefix  = "job-"
	JobDigits  = 12
	JobNameLen = len(JobPrefix) + JobDigits
)

// PutJobName writes the name of job id over the first JobNameLen bytes of name.
func PutJobName(name []byte, id uint64) {
	copy(name, JobPrefix)
	PutHex(name[len(JobPrefix):JobNameLen], id)
}

// PutKeyedName is PutJobName for jobs of a number of keys, which neighbouring jobs have in turn: a key of eight
// hexadecimal digits, a colon, and the job.
func PutKeyedName(name []byte, id, keys uint64) {
	PutHex(name[:8], id%keys)
	name[8], name[9] = ':', 'j'
	PutHex(name[10:JobNameLen], id/keys)
}

// Workload returns the workload of job 0, sent at 0: big-endian words of id and time, then filler. The size is above 8.
func Workload(size int) []byte {
	workload := bytes.Repeat([]byte("x"), size)
	workload[size-1] = workloadEnd
	PutWorkload(workload, 0, 0)
	return workload
}

// PutWorkload writes id and time into a workload that already has its filler; one that is too short for both goes
// without the time.
func PutWorkload(workload []byte, id uint64, sent int64) {
	binary.BigEndian.PutUint64(workload, id)
	if len(workload) >= timedLen {
		binary.BigEndian.PutUint64(workload[8:], uint64(sent))
	}
}

// Sized returns the reverse of PutWorkload for workloads of one size. A time of 0 means that the workload has none.
func Sized(size int) func(workload []byte) (id uint64, sent int64, ok bool) {
	return func(workload []byte) (id uint64, sent int64, ok bool) {
		if len(workload) != size || workload[size-1] != workloadEnd {
			return 0, 0, false
		}
		if size >= timedLen {
			sent = int64(binary.BigEndian.Uint64(workload[8:]))
		}
		return binary.BigEndian.Uint64(workload), sent, true
	}
}

// The variable parts of a workload that is JSON: its id, which has the digits of the job's name, and its time.
const (
	textHead = `{"id":"`
	textSent = `","sent":"`
	textRest = `","text":"`
	textTail = `"}`

	TextIDAt   = len(textHead)
	textSentAt = TextIDAt + JobDigits + len(textSent)
	textRestAt = textSentAt + 16
)

var textFiller = TextWorkload()

// TextWorkload returns the JSON workload of job 0, sent at 0: {"id":"...","sent":"...","text":"xxx"}.
func TextWorkload() []byte {
	workload := fmt.Appendf(nil, textHead+"%0*d"+textSent+"%016d"+textRest, JobDigits, 0, 0)
	return append(append(workload, strings.Repeat("x", WorkloadLen-len(textTail)-len(workload))...), textTail...)
}

// PutText writes id and time into a JSON workload that already has its filler.
func PutText(workload []byte, id uint64, sent int64) {
	PutHex(workload[TextIDAt:TextIDAt+JobDigits], id)
	PutHex(workload[textSentAt:textRestAt], uint64(sent))
}

// ParseText is the reverse of PutText.
func ParseText(workload []byte) (id uint64, sent int64, ok bool) {
	if len(workload) != WorkloadLen || string(workload[:TextIDAt]) != textHead ||
		string(workload[TextIDAt+JobDigits:textSentAt]) != textSent ||
		string(workload[textRestAt:]) != string(textFiller[textRestAt:]) {
		return 0, 0, false
	}
	id, fine := ParseHex(workload[TextIDAt : TextIDAt+JobDigits])
	at, ok := ParseHex(workload[textSentAt:textRestAt])
	return id, int64(at), ok && fine
}

// PutHex writes the last digits of a number over all of dst, an even number of at most 16.
func PutHex(dst []byte, number uint64) {
	var whole [8]byte
	binary.BigEndian.PutUint64(whole[:], number)
	hex.Encode(dst, whole[8-len(dst)/2:])
}

// ParseHex reads a number of at most 16 hexadecimal digits.
func ParseHex(digits []byte) (number uint64, ok bool) {
	number, err := strconv.ParseUint(string(digits), 16, 64)
	return number, err == nil
}
