package peer

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"treadle/bench/load"
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
	return &beanstalkd{submit: append(append([]byte(beanstalkdPut), load.Workload(load.WorkloadLen)...), "\r\n"...)}
}

// beanstalkdPeer keeps its jobs in memory, unless options say otherwise.
func beanstalkdPeer(name string, c Command, options ...string) Peer {
	c.Arguments = func(ports Ports, directory string) []string {
		arguments := []string{"-l", "127.0.0.1", "-p", ports[0]}
		if options != nil {
			arguments = append(append(arguments, "-b", directory), options...)
		}
		return arguments
	}
	return installed(name, "beanstalkd", "-v", newBeanstalkd(), c)
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
		size, ok := parseDecimal(count)
		if !ok {
			return 0, load.Unexpected("beanstalkd", line)
		}
		if len(in) < end+size+2 {
			return 0, nil
		}
		e.Kind, e.Handle, e.Workload = load.Assigned, id, in[end:end+size]
		end += size + 2
	default:
		return 0, load.Unexpected("beanstalkd", line)
	}
	return end, nil
}

// pending adds the ready and the reserved jobs of `stats`.
func (b *beanstalkd) Pending(conn net.Conn) (int, error) {
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
		return 0, load.Unexpected("beanstalkd", []byte(line))
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
				return 0, load.Unexpected("beanstalkd", []byte(line))
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
