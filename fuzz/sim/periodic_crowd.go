//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
	"treadle/fuzz/sim/wire"
	"treadle/loop"
)

// Very many jobs or functions come and go within one step, because each step checks everything that is there. The play
// checks them at once, by STATUS.

const (
	// manyJobs is more jobs than the scheduler ends at once when their master leaves.
	manyJobs = 300
	// manyFunctions is more functions than a STATUS lists without a stream.
	manyFunctions = 1001
	// maxOwed is a number of requests whose answers may all wait for the disk.
	maxOwed = 200
)

// askStatus returns what STATUS says of each function, by name.
func (s *Simulator) askStatus() map[string]string {
	v := s.probe(s.server)
	defer v.peer.Close()
	return statusLines(s.ledger.answerBody(v.framing, s.ledger.setup.periodicVersion, v.ask(periodic.Status, nil)))
}

func statusLines(body []byte) map[string]string {
	lines := map[string]string{}
	for line := range strings.SplitSeq(string(body), "\n") {
		name, rest, _ := strings.Cut(line, ",")
		lines[name] = rest
	}
	return lines
}

// queued is the number of jobs that STATUS counts in the queue without workers.
func (s *Simulator) queued() (jobs int) {
	if line := s.askStatus()[s.ledger.queues[spareQueue]]; line != "" {
		if _, err := fmt.Sscanf(line, "0,%d,", &jobs); err != nil {
			s.trace.Failf("the status of %s: got %q, want no worker", s.ledger.queues[spareQueue], line)
		}
	}
	return jobs
}

// disconnectMany lets a master with many jobs leave, come back at once, and submit some again and then the others. Its
// own ids must be free. An operator who empties that queue would remove some of them too.
func (s *Simulator) disconnectMany() {
	s.settle()
	if o := s.ledger.operation; o != nil && o.queue == spareQueue {
		return
	}
	before := s.queued()
	has := func(n int) {
		if jobs := s.queued() - before; jobs != n {
			s.trace.Failf("jobs of a master in STATUS: want %d, got %d", n, jobs)
		}
	}
	m := s.server.Connect("gloom-masters")
	s.submitMany(m, 0, manyJobs)
	has(manyJobs)
	m.Close()
	m = s.server.Connect("gloom-masters")
	again := s.rng.IntN(manyJobs + 1)
	s.submitMany(m, 0, again)
	s.pass(time.Second)
	has(again)
	s.submitMany(m, again, manyJobs)
	has(manyJobs)
	m.Close()
	s.pass(time.Second)
	has(0)
	s.trace.Logf("a master has left %d jobs, and come back for %d of them", manyJobs, again)
}

// submitMany submits jobs from one master to the queue without workers; each must be taken.
func (s *Simulator) submitMany(m *loop.OfflinePeer, from, to int) {
	var frames []byte
	id := func(i int) []byte { return fmt.Appendf(nil, `"many%d"`, i) }
	for i := from; i < to; i++ {
		frames = gloom.AppendSubmit(frames, id(i), fmt.Appendf(nil, "%q", s.ledger.queues[spareQueue]), 0, []byte("0"))
	}
	m.Send(frames)
	received := m.Read()
	for i := from; i < to; i++ {
		payload, n, _ := gloom.Next(received, 1<<20)
		var r gloom.Reply
		if gloom.ParseReply(payload, &r) != nil || !r.OK || !slices.Equal(r.ID, id(i)) {
			s.trace.Failf("a master submits %s: got %q, want its acknowledgement", id(i), payload)
		}
		received = received[n:]
	}
	if len(received) > 0 {
		s.trace.Failf("a master submits jobs %d to %d: got %q behind the acknowledgements, want nothing", from, to, received)
	}
}

// offerMany lets a worker offer many functions and leave. Meanwhile a client asks for STATUS, and everything is
// audited.
func (s *Simulator) offerMany() {
	s.settle()
	each := func(kind peerKind, cmd periodic.Command, from int) *loop.OfflinePeer {
		frames := kind.hello()
		for i := from; i < manyFunctions && (kind == plainWorker || i < from+maxOwed); i++ {
			frames = append(frames, wire.PeriodicFrame(periodic.Plain, uint32(i+1), cmd, periodic.AppendStr8String(nil, functionName(i)))...)
		}
		p := s.server.Connect("periodic")
		p.Send(frames)
		return p
	}
	w := each(plainWorker, periodic.CanDo, 0)
	if c := s.anyConn(); c.client() && !c.halfClosing && !c.garbled {
		c.ask(&Request{cmd: periodic.Status, crowded: true}, nil)
		s.deliver(c, len(c.outgoing))
		s.settle()
	}
	s.ledger.checkMany(s.askStatus())
	s.audit()
	w.Close()
	for from := 0; from < manyFunctions; from += maxOwed {
		each(plainClient, periodic.DropFunc, from).Close()
	}
	for name, line := range s.askStatus() {
		if strings.HasPrefix(name, "f") {
			s.trace.Failf("the status of %s: got %q, want none: it is dropped", name, line)
		}
	}
	s.settle()
	s.trace.Logf("a crowd has left")
}

// functionName is the name of one of the many functions.
func functionName(i int) string { return fmt.Sprintf("f%04d", i) }

// checkMany checks a STATUS with all functions of the worker of many functions.
func (l *Ledger) checkMany(lines map[string]string) {
	for i := range manyFunctions {
		if line := lines[functionName(i)]; !strings.HasPrefix(line, "1,0,0,") {
			l.trace.Failf("the status of %s: got %q, want one worker and no job", functionName(i), line)
		}
	}
}
