package peer

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"treadle/bench/load"
)

// redis speaks the Redis protocol to one list: RPUSH adds a job, BLPOP takes it. A list does less than a job server: it
// has no names, no completions and no redelivery, since BLPOP removes the job.
//
// A worker with many requests in flight pipelines that many BLPOP. While the list has elements each is answered at
// once. On an empty list the first one blocks the connection and the rest wait behind it, so no worker polls.
type redis struct {
	submit []byte
	push   int    // where the element begins in it
	job    string // the beginning of the reply to BLPOP: the list's name, then the element
	size   int    // bytes of a workload
}

const (
	redisPush = "*3\r\n$5\r\nRPUSH\r\n$5\r\n" + load.QueueName + "\r\n$%d\r\n"
	redisPop  = "*3\r\n$5\r\nBLPOP\r\n$5\r\n" + load.QueueName + "\r\n$1\r\n0\r\n"
	redisJob  = "*2\r\n$5\r\n" + load.QueueName + "\r\n$%d\r\n"
)

// NewRedis returns the protocol with workloads of the given size.
func NewRedis(size int) load.Protocol {
	push := fmt.Sprintf(redisPush, size)
	submit := append([]byte(push), load.Workload(size)...)
	return &redis{submit: append(submit, "\r\n"...), push: len(push), job: fmt.Sprintf(redisJob, size), size: size}
}

func (r *redis) Traits() load.Traits {
	return load.Traits{Parse: load.Sized(r.size)}
}

func (r *redis) Greet(conn net.Conn, _ load.Role) error {
	return load.Ask(conn, "redis", "*1\r\n$4\r\nPING\r\n", "+PONG\r\n")
}

func (r *redis) AppendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, r.submit...)
	load.PutWorkload(dst[start+r.push:start+r.push+r.size], id, sent)
	return dst
}

func (r *redis) AppendGrab(dst []byte, _ uint32) []byte { return append(dst, redisPop...) }

func (r *redis) AppendDone(dst []byte, _ *load.Event) []byte { return dst }

// Next reads a reply: an integer to a push, or the array of BLPOP with the list and the job.
func (r *redis) Next(in []byte, e *load.Event) (int, error) {
	if len(in) == 0 {
		return 0, nil
	}
	if in[0] == ':' {
		e.Kind = load.Submitted
		return bytes.IndexByte(in, '\n') + 1, nil
	}
	head := min(len(in), len(r.job))
	if string(in[:head]) != r.job[:head] {
		return 0, load.Unexpected("redis", in)
	}
	end := len(r.job) + r.size + 2
	if len(in) < end {
		return 0, nil
	}
	e.Kind, e.Workload = load.Assigned, in[len(r.job):end-2]
	return end, nil
}

func (r *redis) Pending(conn net.Conn) (jobs int, err error) {
	err = askLines(conn, "*2\r\n$4\r\nLLEN\r\n$5\r\n"+load.QueueName+"\r\n", func(line string) (more bool, err error) {
		jobs, err = strconv.Atoi(strings.TrimPrefix(line, ":"))
		return false, err
	})
	return jobs, err
}

// redisReplica waits for one replica behind each push: the job is submitted when both have been answered. A push that
// the replica has not got counts as none.
type redisReplica struct{ redis }

const redisWait = "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n"

func newRedisReplica() load.Protocol {
	r := &redisReplica{*NewRedis(load.WorkloadLen).(*redis)}
	r.submit = append(r.submit, redisWait...)
	return r
}

// Next reads a reply as redis does, or those of a push and its WAIT.
func (r *redisReplica) Next(in []byte, e *load.Event) (int, error) {
	n, err := r.redis.Next(in, e)
	if n == 0 || err != nil || e.Kind != load.Submitted {
		return n, err
	}
	const waited = ":1\r\n"
	switch rest := in[n:]; {
	case len(rest) < len(waited):
		return 0, nil
	case string(rest[:len(waited)]) != waited:
		return 0, load.Unexpected("redis", rest)
	}
	return n + len(waited), nil
}

// redisHasReplica returns an error if no replica has everything.
func redisHasReplica(address string) error {
	conn, err := net.DialTimeout("tcp", address, load.DialLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	online := false
	err = askLines(conn, "INFO replication\r\n", func(line string) (more bool, err error) {
		online = online || strings.HasPrefix(line, "slave0:") && strings.Contains(line, "state=online")
		return !strings.HasPrefix(line, "repl_backlog_histlen"), nil
	})
	if err == nil && !online {
		err = errors.New("the replica does not follow")
	}
	return err
}
