package load

import (
	"bytes"
	"encoding/binary"
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

// Workload returns the workload of job 0, sent at 0: big-endian words of id and time, then filler. The size is above 8.
func Workload(size int) []byte {
	workload := bytes.Repeat([]byte("x"), size)
	workload[size-1] = workloadEnd
	PutWorkload(workload, 0, 0)
	return workload
}

// PutWorkload writes id and time into a workload that already has its filler; one that is too short for both goes without
// the time.
func PutWorkload(workload []byte, id uint64, sent int64) {
	binary.BigEndian.PutUint64(workload, id)
	if len(workload) >= timedLen {
		binary.BigEndian.PutUint64(workload[8:], uint64(sent))
	}
}

// ParseWorkload takes apart what PutWorkload wrote into WorkloadLen bytes.
func ParseWorkload(workload []byte) (id uint64, sent int64, ok bool) {
	return ParseSized(workload, WorkloadLen)
}

// ParseSized takes apart what PutWorkload wrote into so many bytes: a time of 0 means that there is none.
func ParseSized(workload []byte, size int) (id uint64, sent int64, ok bool) {
	if len(workload) != size || workload[size-1] != workloadEnd {
		return 0, 0, false
	}
	if size >= timedLen {
		sent = int64(binary.BigEndian.Uint64(workload[8:]))
	}
	return binary.BigEndian.Uint64(workload), sent, true
}

// Where a workload that is JSON holds what differs from job to job. Its id has the digits of the job's name.
const (
	textHead = `{"id":"`
	textSent = `","sent":"`
	textRest = `","text":"`
	textTail = `"}`

	TextIDAt   = len(textHead)
	textSentAt = TextIDAt + JobDigits + len(textSent)
	textRestAt = textSentAt + 16
	textTailAt = WorkloadLen - len(textTail)
)

var textFiller = TextWorkload()

// TextWorkload returns the JSON workload of job 0, sent at 0: {"id":"...","sent":"...","text":"xxx"}.
func TextWorkload() []byte {
	workload := bytes.Repeat([]byte("x"), WorkloadLen)
	copy(workload, textHead)
	copy(workload[textSentAt-len(textSent):], textSent)
	copy(workload[textRestAt:], textRest)
	copy(workload[textTailAt:], textTail)
	PutText(workload, 0, 0)
	return workload
}

// PutText writes id and time into a JSON workload that already has its filler.
func PutText(workload []byte, id uint64, sent int64) {
	PutHex(workload[TextIDAt:TextIDAt+JobDigits], id)
	PutHex(workload[textSentAt:textRestAt], uint64(sent))
}

// ParseText takes apart what PutText wrote.
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

// hexPairs holds the two hexadecimal digits of every byte value: a name costs six table look-ups. hexValues is the reverse
// for one digit; 16 marks what is none.
var hexPairs, hexValues = func() (pairs [256][2]byte, values [256]byte) {
	const digits = "0123456789abcdef"
	for i := range pairs {
		pairs[i], values[i] = [2]byte{digits[i>>4], digits[i&15]}, 16
	}
	for i := range 16 {
		values[digits[i]] = byte(i)
	}
	return pairs, values
}()

// PutHex writes the last digits of a number over all of dst, whose length is even.
func PutHex(dst []byte, number uint64) {
	for i := len(dst) - 2; i >= 0; i -= 2 {
		pair := hexPairs[byte(number)]
		dst[i], dst[i+1] = pair[0], pair[1]
		number >>= 8
	}
}

// ParseHex reads a number made of lower-case hexadecimal digits alone.
func ParseHex(digits []byte) (number uint64, ok bool) {
	var seen byte
	for _, digit := range digits {
		value := hexValues[digit]
		seen |= value
		number = number<<4 | uint64(value&15)
	}
	return number, seen < 16
}
