package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
)

// redis speaks the Redis protocol to one list: RPUSH adds a job, BLPOP takes it. A list does less than a job server:
// it has no names, and it forgets a job when it hands it out, so there is nothing to complete and nothing is
// redelivered.
//
// A worker with many requests in flight pipelines that many BLPOP. While the list has elements each is answered at
// once; on an empty list the first one blocks the connection and the others wait behind it, so no worker polls.
type redis struct {
	submit []byte
	push   int    // where the element begins in it
	job    string // the beginning of the reply to BLPOP: the list's name, then the element
	size   int    // bytes of a workload
}

const (
	redisPush = "*3\r\n$5\r\nRPUSH\r\n$5\r\n" + queueName + "\r\n$%d\r\n"
	redisPop  = "*3\r\n$5\r\nBLPOP\r\n$5\r\n" + queueName + "\r\n$1\r\n0\r\n"
	redisJob  = "*2\r\n$5\r\n" + queueName + "\r\n$%d\r\n"
)

func newRedis() *redis { return newRedisOf(workloadLen) }

// newRedisOf submits workloads of the given size.
func newRedisOf(size int) *redis {
	push := fmt.Sprintf(redisPush, size)
	submit := append([]byte(push), workloadOf(size)...)
	return &redis{submit: append(submit, "\r\n"...), push: len(push), job: fmt.Sprintf(redisJob, size), size: size}
}

func (r *redis) traits() traits { return traits{size: r.size} }

func (r *redis) greet(conn net.Conn, _ role) error {
	if _, err := io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return err
	}
	want := []byte("+PONG\r\n")
	return readReply(conn, make([]byte, len(want)), want, "redis")
}

func (r *redis) appendSubmit(dst []byte, _ uint32, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, r.submit...)
	putSizedWorkload(dst[start+r.push:start+r.push+r.size], id, sent)
	return dst
}

func (r *redis) appendGrab(dst []byte, _ uint32) []byte { return append(dst, redisPop...) }

func (r *redis) appendSleep(dst []byte) []byte { return dst }

func (r *redis) appendDone(dst []byte, _ *event) []byte { return dst }

func (r *redis) next(in []byte, e *event) (int, error) {
	if len(in) == 0 {
		return 0, nil
	}
	if in[0] == ':' {
		end := bytes.IndexByte(in, '\n') + 1
		e.kind = submitted
		return end, nil
	}
	head := min(len(in), len(r.job))
	if string(in[:head]) != r.job[:head] {
		return 0, unexpected("redis", in)
	}
	end := len(r.job) + r.size + 2
	if len(in) < end {
		return 0, nil
	}
	e.kind, e.workload = assigned, in[len(r.job):end-2]
	return end, nil
}

func (r *redis) pending(conn net.Conn) (int, error) {
	if _, err := io.WriteString(conn, "*2\r\n$4\r\nLLEN\r\n$5\r\n"+queueName+"\r\n"); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(conn).ReadBytes('\n')
	if err != nil {
		return 0, err
	}
	n, ok := parseDecimal(bytes.TrimSpace(bytes.TrimPrefix(line, []byte(":"))))
	if !ok {
		return 0, unexpected("redis", line)
	}
	return n, nil
}
