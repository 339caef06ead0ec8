package faktory

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	codec "treadle/codec/faktory"
	"treadle/codec/jsontext"
	"treadle/loop/protocol"
	"treadle/sched"
)

// timestamp returns a moment as the protocol writes it.
func timestamp(micros int64) string {
	return time.UnixMicro(micros).UTC().Format(time.RFC3339Nano)
}

// jobSubmitter submits jobs, on an event loop or off it.
type jobSubmitter struct {
	p       *Protocol
	now     sched.Time
	sink    sched.Sink
	scratch []byte // for one job
	nowText string // now, once it was needed
}

// submit submits the job of a text. After an error only the JID of the job counts; it may be empty.
func (u *jobSubmitter) submit(text []byte) (j codec.Job, err error) {
	var scratch [codec.MaxJID + codec.MaxQueue]byte
	err = codec.ParseJob(text, scratch[:0], &j)
	if err == codec.ErrJSON {
		if valid := toUTF8(text); valid != nil {
			err = codec.ParseJob(valid, nil, &j)
		}
	}
	if err == nil {
		err = u.p.host.CheckCapacity()
	}
	if err != nil {
		return j, err
	}
	s := u.submission(&j)
	lock := lockOf(&j, s.Queue, s.Name, max(j.At, u.now.Wall))
	if lock != nil {
		if err = u.p.unique.take(lock, u.now.Wall); err != nil {
			return j, err
		}
	}
	if j.Custom.Tracked { // before Submit, which may hand the job out
		u.p.tracks.change(string(j.JID), u.now, true, func(k *track) {
			k.enter(stateEnqueued)
			k.Percent, k.Description = 0, ""
		})
	}
	err = u.p.sched.Submit(u.now, s, u.sink)
	for err == sched.ErrDuplicate { // a jid may come several times, as with Faktory
		s.Name = freshName(j.JID)
		if lock != nil {
			u.p.unique.rename(lock, string(s.Name))
		}
		err = u.p.sched.Submit(u.now, s, u.sink)
	}
	if err != nil && lock != nil {
		u.p.unique.release(lock)
	}
	if err != nil && j.Custom.Tracked {
		u.p.tracks.set(string(j.JID), stateUnknown, u.now)
	}
	return j, err
}

// submission returns a job as the scheduler takes it. Its workload is a view into room.
func (u *jobSubmitter) submission(j *codec.Job) *sched.Submission {
	if u.nowText == "" {
		u.nowText = timestamp(u.now.WallMicros)
	}
	s := &sched.Submission{
		Space: Space, Queue: protocol.Queue(j.Queue), Name: j.JID, OnlyNew: true,
		Priority: int64(j.Priority) - codec.MiddlePriority, Count: sched.AnyRetries, Timeout: j.ReserveFor,
		History: historyOf(j.Failure, u.now),
	}
	if j.OwnRetry {
		s.Count = j.Retry
	}
	enqueued := u.nowText
	if j.At > u.now.Wall {
		s.SchedAt, enqueued = (j.At+999)/1000, ""
	}
	u.scratch = j.AppendStored(u.scratch[:0], u.nowText, enqueued)
	s.Workload = u.scratch
	return s
}

// freshName returns a unique name for another job with the same jid.
func freshName(jid []byte) []byte {
	var chance [8]byte
	_, _ = rand.Read(chance[:]) // never fails
	return hex.AppendEncode(append(bytes.Clone(jid), 0), chance[:])
}

// toUTF8 returns a text with U+FFFD for each byte that is not UTF-8, nil when there is none.
func toUTF8(text []byte) []byte {
	runes := bytes.Runes(text)
	if valid := []byte(string(runes)); len(valid) != len(text) {
		return valid
	}
	return nil
}

// explain returns what a client is told of an error of submit: a code and a text. It counts a job that is wrong in
// itself among the errors, and any other one as refused.
func (p *Protocol) explain(err error) (code, text string) {
	switch {
	case err == errNotUnique:
		p.errors.Add(1)
		return codeNotUnique, err.Error()
	case errors.As(err, new(codec.JobError)):
		p.errors.Add(1)
		return codeError, err.Error()
	case errors.Is(err, protocol.ErrDisk), errors.Is(err, protocol.ErrMaxMemory),
		errors.Is(err, sched.ErrPolicy), errors.Is(err, sched.ErrQueues), err == errUniqueRoom:
	default:
		err = errNoRoom
	}
	p.host.CountRefusal(name, protocol.ReasonOf(err))
	return codeError, err.Error()
}

// codeError is the code of all errors that clients need not tell apart.
const codeError = "ERR"

var errNoRoom = errors.New("the server has no room for more jobs")

// push handles a PUSH.
func (c *conversation) push(text []byte) {
	loop := c.s.Loop
	u := jobSubmitter{p: c.p, now: loop.Now, sink: loop.Sink, scratch: loop.Scratch}
	j, err := u.submit(text)
	loop.Scratch = u.scratch
	if err != nil {
		c.refuse(err)
		return
	}
	c.acknowledge(j.Queue, replyOK)
}

// push handles a large PUSH, off the event loop.
func (p *Protocol) push(text []byte, sink protocol.Sink) []byte {
	u := jobSubmitter{p: p, now: p.host.Now(), sink: sink}
	if _, err := u.submit(text); err != nil {
		return p.refusal(err)
	}
	return replyOK
}

// pushBulk handles a PUSHB.
func (c *conversation) pushBulk(text []byte) {
	loop := c.s.Loop
	u := jobSubmitter{p: c.p, now: loop.Now, sink: loop.Sink, scratch: loop.Scratch}
	reply := u.submitAll(text)
	loop.Scratch = u.scratch
	c.acknowledgeAll(reply)
}

// pushBulk handles a large PUSHB, off the event loop.
func (p *Protocol) pushBulk(text []byte, sink protocol.Sink) []byte {
	u := jobSubmitter{p: p, now: p.host.Now(), sink: sink}
	return u.submitAll(text)
}

// submitAll submits the jobs of an array. It returns the reply: the errors by jid.
func (u *jobSubmitter) submitAll(text []byte) (reply []byte) {
	if valid := toUTF8(text); valid != nil {
		text = valid
	}
	if !jsontext.Valid(text) {
		return u.p.errorReply("invalid JSON: PUSHB needs an array of jobs")
	}
	var all jsontext.Array
	if !all.Open(text) {
		return u.p.errorReply("PUSHB needs an array of jobs")
	}
	failed := make(map[string]string)
	for all.Next() {
		if j, err := u.submit(all.Value); err != nil {
			code, why := u.p.explain(err)
			if code != codeError {
				why = code + " " + why
			}
			failed[string(j.JID)] = why
		}
	}
	answer, _ := json.Marshal(failed) // strings can be marshalled
	return codec.AppendBulk(nil, answer)
}
