package beanstalk

import "strconv"

// The replies that are one word.
const (
	OutOfMemory    = "OUT_OF_MEMORY\r\n"
	Draining       = "DRAINING\r\n"
	BadFormat      = "BAD_FORMAT\r\n"
	UnknownCommand = "UNKNOWN_COMMAND\r\n"
	ExpectedCRLF   = "EXPECTED_CRLF\r\n"
	JobTooBig      = "JOB_TOO_BIG\r\n"
	NotFound       = "NOT_FOUND\r\n"
	NotIgnored     = "NOT_IGNORED\r\n"
	DeadlineSoon   = "DEADLINE_SOON\r\n"
	TimedOut       = "TIMED_OUT\r\n"
	Deleted        = "DELETED\r\n"
	Released       = "RELEASED\r\n"
	Buried         = "BURIED\r\n"
	Touched        = "TOUCHED\r\n"
	Kicked         = "KICKED\r\n"
	Paused         = "PAUSED\r\n"
)

// The words of AppendJob and AppendCount.
const (
	Reserved  = "RESERVED "
	Found     = "FOUND "
	Inserted  = "INSERTED "
	KickedOf  = "KICKED "
	Watching  = "WATCHING "
	wordUsing = "USING "
	wordOK    = "OK "
)

// AppendJob appends a job: Reserved or Found, the id, the size and the body.
func AppendJob(dst []byte, word string, id uint64, body []byte) []byte {
	dst = strconv.AppendUint(append(dst, word...), id, 10)
	dst = strconv.AppendInt(append(dst, ' '), int64(len(body)), 10)
	dst = append(append(dst, crlf...), body...)
	return append(dst, crlf...)
}

// AppendCount appends a word and a number: Inserted and an id, KickedOf or Watching and a count.
func AppendCount(dst []byte, word string, n uint64) []byte {
	return append(strconv.AppendUint(append(dst, word...), n, 10), crlf...)
}

// AppendUsing appends the reply to use and list-tube-used.
func AppendUsing(dst []byte, tube string) []byte {
	return append(append(append(dst, wordUsing...), tube...), crlf...)
}

// AppendData appends the reply to stats and lists.
func AppendData(dst, data []byte) []byte {
	dst = strconv.AppendInt(append(dst, wordOK...), int64(len(data)), 10)
	dst = append(append(dst, crlf...), data...)
	return append(dst, crlf...)
}
