//go:build invariants

package fuzz

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
	"treadle/loop"
)

// Crowds: very much of something comes and goes within one step, since each step checks all that is there. The play
// checks at once what the server says of it.

const (
	// manyJobs are more than the scheduler ends at once when their master leaves.
	manyJobs = 300
	// manyFunctions are more than a STATUS tells of without a stream.
	manyFunctions = 1001
	// mostOwed are so few requests that their answers may wait for the disk.
	mostOwed = 200
)

// lines is what STATUS says of each function, by its name.
func (s *sim) lines() map[string]string {
	v := s.visit(s.server)
	defer v.peer.Close()
	return statusLines(s.report(v.framing, s.era, v.ask(periodic.Status, nil)))
}

func statusLines(body []byte) map[string]string {
	lines := map[string]string{}
	for line := range strings.SplitSeq(string(body), "\n") {
		name, rest, _ := strings.Cut(line, ",")
		lines[name] = rest
	}
	return lines
}

// queued is how many jobs STATUS says that the queue without workers has.
func (s *sim) queued() (jobs int) {
	if line := s.lines()[s.queues[worked]]; line != "" {
		if _, err := fmt.Sscanf(line, "0,%d,", &jobs); err != nil {
			s.fail("the status of %s is %q", s.queues[worked], line)
		}
	}
	return jobs
}

// exodus: a master with many jobs that nobody does leaves, comes back at once and submits some again, and then
// the others. No id of its own keeps it from that.
func (s *sim) exodus() {
	s.settle()
	before := s.queued()
	has := func(n int) {
		if jobs := s.queued() - before; jobs != n {
			s.fail("a master has %d jobs, and STATUS counts %d", n, jobs)
		}
	}
	m := s.server.Connect("gloom-masters")
	s.submitsMany(m, 0, manyJobs)
	has(manyJobs)
	m.Close()
	m = s.server.Connect("gloom-masters")
	again := s.rng.IntN(manyJobs + 1)
	s.submitsMany(m, 0, again)
	s.pass(time.Second)
	has(again)
	s.submitsMany(m, again, manyJobs)
	has(manyJobs)
	m.Close()
	s.pass(time.Second)
	has(0)
	s.say("a master has left %d jobs, and come back for %d of them", manyJobs, again)
}

// submitsMany has a master submit jobs of the queue that nobody does, each of which must be taken.
func (s *sim) submitsMany(m *loop.OfflinePeer, from, to int) {
	var frames []byte
	id := func(i int) []byte { return fmt.Appendf(nil, `"many%d"`, i) }
	for i := from; i < to; i++ {
		frames = gloom.AppendSubmit(frames, id(i), fmt.Appendf(nil, "%q", s.queues[worked]), 0, []byte("0"))
	}
	m.Send(frames)
	heard := m.Read()
	for i := from; i < to; i++ {
		payload, n, _ := gloom.Next(heard, 1<<20)
		var r gloom.Reply
		if gloom.ParseReply(payload, &r) != nil || !r.OK || !slices.Equal(r.ID, id(i)) {
			s.fail("a master submits %s, and is sent %q", id(i), payload)
		}
		heard = heard[n:]
	}
	if len(heard) > 0 {
		s.fail("a master has submitted jobs %d to %d, and is sent %q", from, to, heard)
	}
}

// crowd: a worker offers many functions, and leaves. While it is there somebody asks for STATUS, and everything
// is looked at.
func (s *sim) crowd() {
	s.settle()
	each := func(kind int, cmd periodic.Command, from int) *loop.OfflinePeer {
		frames := slices.Clone(periodicHellos()[kind])
		for i := from; i < manyFunctions && (kind == plainWorker || i < from+mostOwed); i++ {
			f := periodic.Frame{MsgID: uint32(i + 1), Cmd: cmd}
			frames = append(frames, periodicRequest(&f, periodic.Plain, periodic.AppendStr8String(nil, function(i)))...)
		}
		p := s.server.Connect("periodic")
		p.Send(frames)
		return p
	}
	w := each(plainWorker, periodic.CanDo, 0)
	if c := s.any(); c.client() && !c.fin && !c.garbled {
		c.ask(&simRequest{cmd: periodic.Status, crowded: true}, nil)
		s.deliver(c, len(c.outgoing))
		s.settle()
	}
	s.isCrowded(s.lines())
	s.audit()
	w.Close()
	for from := 0; from < manyFunctions; from += mostOwed {
		each(plainClient, periodic.DropFunc, from).Close()
	}
	for name, line := range s.lines() {
		if strings.HasPrefix(name, "f") {
			s.fail("%s is dropped, and its status is %q", name, line)
		}
	}
	s.settle()
	s.say("a crowd has left")
}

// function is one of the many.
func function(i int) string { return fmt.Sprintf("f%04d", i) }

// isCrowded checks a STATUS that has all functions of the worker that offers so many.
func (s *sim) isCrowded(lines map[string]string) {
	for i := range manyFunctions {
		if line := lines[function(i)]; !strings.HasPrefix(line, "1,0,0,") {
			s.fail("one worker does %s, and its status is %q", function(i), line)
		}
	}
}
