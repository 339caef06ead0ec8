package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// beanstalkd speaks the text protocol of beanstalkd. A job has no name of its own there, so nothing looks for
// duplicates: it does a little less than the others.
//
// A worker sends `delete` of the job it has and the next `reserve` in one write, as a Periodic worker does with
// WORK_DONE and GRAB_JOB. With many requests in flight a connection has that many `reserve` outstanding. The server
// reads the next command of a connection only when the last one is answered, so the last deletes of a run wait behind
// a reserve that never ends: traits.unfinished. The time to run is an hour, which nothing reaches.
type beanstalkd struct {
	submit []byte
}

const (
	beanstalkdPut     = "put 0 0 3600 100\r\n"
	beanstalkdReserve = "reserve\r\n"
	// beanstalkdMaxLine is above the longest reply line, "RESERVED", two numbers and the line's end.
	beanstalkdMaxLine = 224
)

func newBeanstalkd() *beanstalkd {
	submit := appendWorkload([]byte(beanstalkdPut), 0, 0)
	return &beanstalkd{submit: append(submit, "\r\n"...)}
}

func (b *beanstalkd) traits() traits { return traits{unfinished: 1} }

func (b *beanstalkd) greet(conn net.Conn, as role) error {
	request, want := "use "+queueName+"\r\n", "USING "+queueName+"\r\n"
	if as == working {
		request, want = "watch "+queueName+"\r\n", "WATCHING 2\r\n"
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	return readReply(conn, make([]byte, len(want)), []byte(want), "beanstalkd")
}

func (b *beanstalkd) appendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, b.submit...)
	putWorkload(dst[start+len(beanstalkdPut):], id, sent)
	return dst
}

func (b *beanstalkd) appendGrab(dst []byte, _ uint32) []byte {
	return append(dst, beanstalkdReserve...)
}

func (b *beanstalkd) appendSleep(dst []byte) []byte { return dst }

func (b *beanstalkd) appendDone(dst []byte, e *event) []byte {
	dst = append(dst, "delete "...)
	dst = append(dst, e.handle...)
	return append(dst, "\r\n"...)
}

func (b *beanstalkd) next(in []byte, e *event) (int, error) {
	end := bytes.IndexByte(in, '\n') + 1
	if end == 0 {
		if len(in) > beanstalkdMaxLine {
			return 0, unexpected("beanstalkd", in)
		}
		return 0, nil
	}
	line := bytes.TrimSuffix(in[:end], []byte("\r\n"))
	switch {
	case bytes.HasPrefix(line, []byte("INSERTED ")):
		e.kind = submitted
	case bytes.Equal(line, []byte("DELETED")):
		e.kind = finished
	case bytes.HasPrefix(line, []byte("RESERVED ")):
		id, count, _ := bytes.Cut(line[len("RESERVED "):], []byte(" "))
		size, ok := parseDecimal(count)
		if !ok {
			return 0, unexpected("beanstalkd", line)
		}
		if len(in) < end+size+2 {
			return 0, nil
		}
		e.kind, e.handle, e.workload = assigned, id, in[end:end+size]
		end += size + 2
	default:
		return 0, unexpected("beanstalkd", line)
	}
	return end, nil
}

// pending adds the ready and the reserved jobs of `stats`.
func (b *beanstalkd) pending(conn net.Conn) (int, error) {
	if _, err := io.WriteString(conn, "stats\r\n"); err != nil {
		return 0, err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	var size int
	if _, err := fmt.Sscanf(line, "OK %d\r\n", &size); err != nil {
		return 0, unexpected("beanstalkd", []byte(line))
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, err
	}
	jobs := 0
	for line := range strings.Lines(string(body)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if key == "current-jobs-ready" || key == "current-jobs-reserved" {
			n, err := strconv.Atoi(value)
			if err != nil {
				return 0, unexpected("beanstalkd", []byte(line))
			}
			jobs += n
		}
	}
	return jobs, nil
}

// parseDecimal reads a small number made of digits alone.
func parseDecimal(digits []byte) (n int, ok bool) {
	if len(digits) == 0 || len(digits) > 9 {
		return 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int(d-'0')
	}
	return n, true
}
