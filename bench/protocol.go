package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
)

// workloadLen is the size of a job's workload in bytes, except in the payload rows.
const workloadLen = 100

// timedLen is the least size of a workload that has room for its id, its time and its end.
const timedLen = 17

// workloadEnd is the last byte of every workload, so that a cut or shifted workload is noticed.
const workloadEnd = '.'

// queueName is the one queue, function or list that all jobs go through.
const queueName = "bench"

// A job's unique name is "job-" and twelve hexadecimal digits.
const (
	jobPrefix  = "job-"
	jobDigits  = 12
	jobNameLen = len(jobPrefix) + jobDigits
)

// role says which half of a conversation a connection speaks.
type role int

const (
	producing role = iota
	working
	idling // connected and greeted, nothing more
)

// eventKind is what one message of a server means to the load generator.
type eventKind int

const (
	submitted eventKind = iota // a submit was acknowledged
	assigned                   // a job arrived
	empty                      // a grab was answered with "no job"
	woken                      // a sleeping worker is told to grab again
	finished                   // a completion was acknowledged; in protocols that push, a join too
	answered                   // a job's result arrived where it was submitted
	ignored                    // whole and expected, but of no meaning
)

// event is one message of a server. Its slices are views into the bytes it was read from.
type event struct {
	kind     eventKind
	slot     uint32 // submitted, assigned: the request's slot, in protocols with tags
	id       uint64 // submitted, answered: the job, in protocols that answer
	workload []byte // assigned
	handle   []byte // assigned: what a completion must quote
}

// traits is in which ways a protocol differs from "ask, wait, complete".
type traits struct {
	// tagged: a reply names the request it answers. Otherwise replies come in the order of the requests.
	tagged bool
	// polls: an empty queue answers a grab with empty; the worker then says that it sleeps and waits for woken.
	polls bool
	// unfinished is how many jobs of a connection with many requests in flight may still await their completion
	// after the last job arrived, in requests in flight: 0 or 1.
	unfinished int
	// confirms: every completion is acknowledged with finished.
	confirms bool
	// acksGrabs: every grab is acknowledged with submitted, before its job.
	acksGrabs bool
	// pushes: a worker grabs once, which is acknowledged as a completion is, and then gets the next job for each
	// completion, behind its acknowledgement.
	pushes bool
	// answers: whoever submitted a job gets its result.
	answers bool
	// text: workloads are JSON, as putTextWorkload writes them.
	text bool
	// size is the bytes of a workload; 0: workloadLen.
	size int
}

// protocol is one server's wire language, as much of it as a load generator needs. A protocol holds nothing but
// templates that never change, so any number of goroutines may use one.
type protocol interface {
	traits() traits
	// greet does what a fresh connection needs before its first job, and returns when the server has answered.
	greet(conn net.Conn, as role) error
	// appendSubmit appends the request that adds job id, whose workload carries the time sent.
	appendSubmit(dst []byte, slot uint32, id uint64, sent int64) []byte
	// appendGrab appends the request for one job.
	appendGrab(dst []byte, slot uint32) []byte
	// appendSleep appends what a worker says before it waits for woken; only protocols that poll have it.
	appendSleep(dst []byte) []byte
	// appendDone appends the completion of the job that e assigned.
	appendDone(dst []byte, e *event) []byte
	// next decodes the first message of in. n == 0 and no error: more bytes are needed.
	next(in []byte, e *event) (n int, err error)
	// pending asks over a connection of its own how many jobs the server still holds, reserved ones included.
	pending(conn net.Conn) (int, error)
}

// errMalformed reports bytes that the protocol does not allow at this point.
var errMalformed = errors.New("malformed message")

// unexpected wraps errMalformed with what was read, cut to a readable length.
func unexpected(protocol string, in []byte) error {
	return fmt.Errorf("%s: %w: %.60q", protocol, errMalformed, in)
}

// appendWorkload appends the workload of one job: id and time as big-endian words, then filler.
func appendWorkload(dst []byte, id uint64, sent int64) []byte {
	start := len(dst)
	dst = append(dst, workloadFiller[:]...)
	putWorkload(dst[start:], id, sent)
	return dst
}

// putWorkload writes id and time into a workload that already has its filler.
func putWorkload(workload []byte, id uint64, sent int64) {
	binary.BigEndian.PutUint64(workload, id)
	binary.BigEndian.PutUint64(workload[8:], uint64(sent))
}

// putSizedWorkload does the same in a workload of any size; one that is too short for both goes without the time.
func putSizedWorkload(workload []byte, id uint64, sent int64) {
	if len(workload) >= timedLen {
		putWorkload(workload, id, sent)
		return
	}
	binary.BigEndian.PutUint64(workload, id)
}

// parseWorkload takes apart what appendWorkload wrote.
func parseWorkload(workload []byte) (id uint64, sent int64, ok bool) {
	return parseSizedWorkload(workload, workloadLen)
}

// parseSizedWorkload takes apart what putSizedWorkload wrote: a time of 0 means that there is none.
func parseSizedWorkload(workload []byte, size int) (id uint64, sent int64, ok bool) {
	if len(workload) != size || workload[size-1] != workloadEnd {
		return 0, 0, false
	}
	if size >= timedLen {
		sent = int64(binary.BigEndian.Uint64(workload[8:]))
	}
	return binary.BigEndian.Uint64(workload), sent, true
}

// workloadOf returns the filler of a workload of any size above 8.
func workloadOf(size int) []byte {
	filler := bytes.Repeat([]byte("x"), size)
	filler[size-1] = workloadEnd
	return filler
}

var workloadFiller = [workloadLen]byte(workloadOf(workloadLen))

// hexPairs holds the two hexadecimal digits of every byte value: a name costs six table look-ups.
var hexPairs = func() (pairs [256][2]byte) {
	const digits = "0123456789abcdef"
	for i := range pairs {
		pairs[i] = [2]byte{digits[i>>4], digits[i&15]}
	}
	return pairs
}()

// putJobName writes the name of job id over the first jobNameLen bytes of name.
func putJobName(name []byte, id uint64) {
	copy(name, jobPrefix)
	putHex(name[len(jobPrefix):jobNameLen], id)
}
