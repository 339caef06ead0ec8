package main

// Where a workload that is JSON holds what differs from job to job.
const (
	textHead = `{"id":"`
	textSent = `","sent":"`
	textRest = `","text":"`
	textTail = `"}`

	textIDAt   = len(textHead)
	textSentAt = textIDAt + jobDigits + len(textSent)
	textRestAt = textSentAt + 16
	textTailAt = workloadLen - len(textTail)
)

// textFiller is the workload of job 0, sent at 0: {"id":"...","sent":"...","text":"xxx"}.
var textFiller = func() (filler [workloadLen]byte) {
	for i := range filler {
		filler[i] = 'x'
	}
	copy(filler[:], textHead)
	copy(filler[textSentAt-len(textSent):], textSent)
	copy(filler[textRestAt:], textRest)
	copy(filler[textTailAt:], textTail)
	putTextWorkload(filler[:], 0, 0)
	return filler
}()

// putTextWorkload writes id and time into a workload that already has its filler.
func putTextWorkload(workload []byte, id uint64, sent int64) {
	putHex(workload[textIDAt:textIDAt+jobDigits], id)
	putHex(workload[textSentAt:textRestAt], uint64(sent))
}

// parseTextWorkload takes apart what putTextWorkload wrote.
func parseTextWorkload(workload []byte) (id uint64, sent int64, ok bool) {
	if len(workload) != workloadLen || string(workload[:textIDAt]) != textHead ||
		string(workload[textIDAt+jobDigits:textSentAt]) != textSent ||
		string(workload[textRestAt:]) != string(textFiller[textRestAt:]) {
		return 0, 0, false
	}
	id, fine := parseHex(workload[textIDAt : textIDAt+jobDigits])
	at, ok := parseHex(workload[textSentAt:textRestAt])
	return id, int64(at), ok && fine
}

// hexValues is the reverse of hexPairs for one digit; 16 marks what is none.
var hexValues = func() (values [256]byte) {
	for i := range values {
		values[i] = 16
	}
	for i := range 16 {
		values[hexPairs[i][1]] = byte(i)
	}
	return values
}()

// putHex writes the last digits of a number over all of dst, whose length is even.
func putHex(dst []byte, number uint64) {
	for i := len(dst) - 2; i >= 0; i -= 2 {
		pair := hexPairs[byte(number)]
		dst[i], dst[i+1] = pair[0], pair[1]
		number >>= 8
	}
}

// parseHex reads a number made of lower-case hexadecimal digits alone.
func parseHex(digits []byte) (number uint64, ok bool) {
	var seen byte
	for _, digit := range digits {
		value := hexValues[digit]
		seen |= value
		number = number<<4 | uint64(value&15)
	}
	return number, seen < 16
}
