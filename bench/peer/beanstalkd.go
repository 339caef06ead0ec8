package peer

import (
	"bytes"
	"net"
	"slices"
	"strconv"
	"strings"

	"treadle/bench/load"
)

// beanstalkd speaks the text protocol of beanstalkd. A job has no name, so the server looks for no duplicates: it does
// a little less than the other servers.
//
// A worker sends `delete` of its job and the next `reserve` in one write, as a Periodic worker does with WORK_DONE and
// GRAB_JOB. With many requests in flight a connection has that many `reserve` outstanding. The server reads the next
// command of a connection after the reply to the last one. So the last deletes of a run wait behind a reserve that
// never ends: Traits.Unfinished. No job reaches its time to run of an hour.
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
	return &beanstalkd{submit: slices.Concat([]byte(beanstalkdPut), load.Workload(load.WorkloadLen), []byte("\r\n"))}
}

func (b *beanstalkd) Traits() load.Traits {
	return load.Traits{Unfinished: 1, Parse: load.Sized(load.WorkloadLen)}
}

func (b *beanstalkd) Greet(conn net.Conn, as load.Role) error {
	request, want := "use "+load.QueueName+"\r\n", "USING "+load.QueueName+"\r\n"
	if as == load.Working {
		request, want = "watch "+load.QueueName+"\r\n", "WATCHING 2\r\n"
	}
	return load.Ask(conn, "beanstalkd", request, want)
}

func (b *beanstalkd) AppendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, b.submit...)
	load.PutWorkload(dst[start+len(beanstalkdPut):][:load.WorkloadLen], id, sent)
	return dst
}

func (b *beanstalkd) AppendGrab(dst []byte, _ uint32) []byte {
	return append(dst, beanstalkdReserve...)
}

func (b *beanstalkd) AppendDone(dst []byte, e *load.Event) []byte {
	dst = append(dst, "delete "...)
	dst = append(dst, e.Handle...)
	return append(dst, "\r\n"...)
}

// Next reads a reply line, and the body that follows RESERVED.
func (b *beanstalkd) Next(in []byte, e *load.Event) (int, error) {
	end := bytes.IndexByte(in, '\n') + 1
	if end == 0 {
		if len(in) > beanstalkdMaxLine {
			return 0, load.Unexpected("beanstalkd", in)
		}
		return 0, nil
	}
	line := bytes.TrimSuffix(in[:end], []byte("\r\n"))
	switch {
	case bytes.HasPrefix(line, []byte("INSERTED ")):
		e.Kind = load.Submitted
	case bytes.Equal(line, []byte("DELETED")):
		e.Kind = load.Finished
	case bytes.HasPrefix(line, []byte("RESERVED ")):
		id, count, _ := bytes.Cut(line[len("RESERVED "):], []byte(" "))
		size, err := strconv.ParseUint(string(count), 10, 24)
		if err != nil {
			return 0, load.Unexpected("beanstalkd", line)
		}
		body := end
		if end += int(size) + len("\r\n"); len(in) < end {
			return 0, nil
		}
		e.Kind, e.Handle, e.Workload = load.Assigned, id, in[body:end-len("\r\n")]
	default:
		return 0, load.Unexpected("beanstalkd", line)
	}
	return end, nil
}

// Pending adds the ready and the reserved jobs of `stats`.
func (b *beanstalkd) Pending(conn net.Conn) (jobs int, err error) {
	err = askLines(conn, "stats\r\n", func(line string) (more bool, err error) {
		key, value, _ := strings.Cut(line, ": ")
		if key != "current-jobs-ready" && key != "current-jobs-reserved" {
			return line != "", nil
		}
		n, err := strconv.Atoi(value)
		jobs += n
		return true, err
	})
	return jobs, err
}
