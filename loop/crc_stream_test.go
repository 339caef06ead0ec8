package loop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"treadle/codec/periodic"
	"treadle/sched"
)

// crcHello is the first packet of a client in the CRC framing.
var crcHello = periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.CRC, Role: periodic.Client})

// TestCRCBadInput: bytes that are no request of the CRC framing close the connection and are counted under their
// reason. Earlier requests are answered, and no other peer is disturbed.
func TestCRCBadInput(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Loops: 2, MaxFrame: 1 << 16})
	bystander := r.greet(periodic.Client)
	before := map[string]int{}
	f := func(reason, what string, in []byte, replies int) {
		t.Helper()
		for _, network := range []string{"unix", "tcp"} {
			w := r.dial(network)
			w.send(in)
			got := w.wantClosed()
			if n := bytes.Count(got, []byte("\x00RES")); n != replies {
				t.Errorf("%s: %d replies before the end, want %d", what, n, replies)
			}
			before[reason]++
			r.wantMetric(closedMetric(reason), before[reason])
		}
		bystander.ping()
	}
	ping := crcRequest(1, periodic.Ping)
	good := append(bytes.Clone(crcHello), ping...)
	behind := func(front []byte, rest ...[]byte) []byte { return bytes.Join(append([][]byte{front}, rest...), nil) }
	flipped := func(frame []byte, at int) []byte {
		b := bytes.Clone(frame)
		b[at] ^= 0x10
		return b
	}
	empty := periodic.BeginRequest(nil, periodic.CRC)
	periodic.End(empty, 0, periodic.CRC)
	f("bad_checksum", "a flipped bit in the payload", behind(good, flipped(ping, len(ping)-1)), 2)
	f("bad_checksum", "a flipped bit in the checksum", behind(good, flipped(ping, 9)), 2)
	f("bad_checksum", "a handshake with a wrong checksum", flipped(crcHello, 10), 0)
	f("too_short", "a checksum over nothing", behind(good, empty), 2)
	f("too_short", "a wrong checksum over nothing", behind(good, flipped(empty, 8)), 2)
	f("bad_magic", "a response for a request", behind(good, []byte("\x00RES"), ping[4:]), 2)
	f("too_large", "a request of 4 GiB", behind(good, []byte("\x00REQ\xff\xff\xff\xff")), 2)
	f("too_large", "a handshake of 4 GiB", []byte("\x00REQ\xff\xff\xff\xff\xa5\x05\xdf\x1b"), 0)
	// A stream that goes over to the other framing: the plain header's payload is read as
	// a checksum, and the checksum as a message.
	f("bad_checksum", "plain in the middle of CRC", behind(good, pings(2)), 2)
	f("bad_magic", "CRC in the middle of plain", behind(hello, pings(1), ping, ping), 3)
	named := periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.CRC, Role: periodic.AuthWorker, Name: []byte("me"), Token: []byte("secret")})
	const nameLength = 12 + 1
	for _, lie := range []uint64{3, 1, 1 << 40, 1<<64 - 1, 1 << 63} {
		b := bytes.Clone(named)
		binary.BigEndian.PutUint64(b[nameLength:], lie)
		f("bad_handshake", fmt.Sprintf("a name of %d bytes", lie), b, 0)
		b = bytes.Clone(named)
		binary.BigEndian.PutUint64(b[nameLength+8+2:], lie)
		f("bad_handshake", fmt.Sprintf("a token of %d bytes", lie), b, 0)
	}
	if n := r.metric("treadle_connections"); n != 1 {
		t.Errorf("%d connections are open, want the bystander's", n)
	}
}

// TestFramingsShareJobs: jobs cross freely between the framings, with their results, and
// each side keeps its own way to name them.
func TestFramingsShareJobs(t *testing.T) {
	t.Parallel()
	for _, loops := range []int{1, 2} {
		w := newMemServer(t, Options{Loops: loops})
		w.rng = rand.New(rand.NewPCG(uint64(loops), 2))
		oldClient, newClient := w.join(0, periodic.Client), w.joinCRC(loops-1, periodic.Client)
		oldWorker, newWorker := w.worker(loops-1, "old"), w.workerCRC(0, "new")
		for i := range 20 {
			name := fmt.Sprint(i)
			oldClient.send(request(uint32(i), periodic.RunJob, job("new", name, 'o')))
			newClient.send(crcRequest(uint32(i), periodic.RunJob, job("old", name, 'n')))
			oldWorker.grabs(uint32(i), 1)
			newWorker.send(crcRequest(uint32(i), periodic.GrabJob))
			handle, j := assigned(t, oldWorker.frames()[0])
			if string(j.Name) != name || string(j.Workload) != "n" {
				t.Errorf("the old worker got %s with %s", j.Name, j.Workload)
			}
			oldWorker.send(request(99, periodic.WorkDone, handle, []byte("by old")))
			got := newWorker.crcFrames()
			var k periodic.Job
			if len(got) != 1 || got[0].Body[0] != byte(periodic.JobAssign) {
				t.Fatalf("the new worker got %v", got)
			}
			if _, err := periodic.ParseJob(got[0].Body[1:], &k); err != nil || string(k.Name) != name || string(k.Workload) != "o" {
				t.Errorf("the new worker got %s with %s: %v", k.Name, k.Workload, err)
			}
			newWorker.send(crcRequest(99, periodic.WorkDone, keyOf("new", name), []byte("by new")))
			newWorker.crcFrames()
			if got := oldClient.bodies(uint32(i)); len(got) != 1 || got[0] != fmt.Sprintf("%x", "by new") {
				t.Errorf("the old client got %q", got)
			}
			if got := newClient.crcBodies(); len(got) != 1 || got[0] != fmt.Sprintf("%d:1e%x", i, "by old") {
				t.Errorf("the new client got %q", got)
			}
		}
	}
}

// streaming makes a server with a worker that streams to one listener that does not read.
func streaming(t *testing.T, loops int) (w *memServer, worker, listener *memConn) {
	t.Helper()
	w = newMemServer(t, Options{Loops: loops})
	worker, listener = w.workerCRC(0, "f"), w.joinCRC(loops-1, periodic.Client)
	listener.send(crcRequest(1, periodic.SubmitJob, job("f", "n")), crcRequest(2, periodic.RecvData, job("f", "n")))
	worker.send(crcRequest(1, periodic.GrabJob))
	if got := listener.crcBodies(); len(got) != 2 || got[1] != "2:10" || len(worker.crcFrames()) != 1 {
		t.Fatalf("the listener got %q", got)
	}
	listener.room = 0
	return w, worker, listener
}

// publishUntilHeld sends WORK_DATAs until one is not answered, and returns its message id.
func (c *memConn) publishUntilHeld(most int) uint32 {
	c.w.t.Helper()
	part := make([]byte, 16<<10)
	for i := range uint32(most) {
		c.send(crcRequest(100+i, periodic.WorkData, keyOf("f", "n"), part))
		switch got := c.crcBodies(); {
		case len(got) == 0:
			return 100 + i
		case len(got) != 1 || got[0] != fmt.Sprintf("%d:10", 100+i):
			c.w.t.Fatalf("WORK_DATA %d is answered %q", 100+i, got)
		}
	}
	c.w.t.Fatalf("%d WORK_DATAs are answered although nobody reads them", most)
	return 0
}

// TestWorkDataWaitsForItsReader: SUCCESS to WORK_DATA stays away once the listener's window
// is full, comes when it reads, and comes when it goes; nothing of the data is lost.
func TestWorkDataWaitsForItsReader(t *testing.T) {
	t.Parallel()
	for _, loops := range []int{1, 2} {
		w, worker, listener := streaming(t, loops)
		most := sched.DefaultWindow/(16<<10) + 2
		for range 3 {
			held := worker.publishUntilHeld(most)
			w.runTimers()
			if got := worker.crcBodies(); len(got) != 0 {
				t.Fatalf("answered %q before anything is read", got)
			}
			listener.take(1 << 20)
			w.runTimers()
			if got := worker.crcBodies(); len(got) != 1 || got[0] != fmt.Sprintf("%d:10", held) {
				t.Fatalf("%d loops: after the listener has read the worker gets %q, want SUCCESS to %d", loops, got, held)
			}
			if n := len(listener.crcFrames()); n != int(held)-99 {
				t.Errorf("the listener got %d of %d parts", n, held-99)
			}
			listener.room = 0
		}
		held := worker.publishUntilHeld(most)
		listener.close()
		if got := worker.crcBodies(); len(got) != 1 || got[0] != fmt.Sprintf("%d:10", held) {
			t.Errorf("%d loops: after the listener has gone the worker gets %q, want SUCCESS to %d", loops, got, held)
		}
		worker.send(crcRequest(5, periodic.WorkData, keyOf("f", "n"), []byte("x")))
		if got := worker.crcBodies(); len(got) != 1 || got[0] != "5:10" {
			t.Errorf("without listeners WORK_DATA is answered %q", got)
		}
	}
}

// TestWorkDataWaitsForOneOfTwo: one listener that does not read holds the worker, gets one
// SUCCESS out of it only, and the other listener gets everything.
func TestWorkDataWaitsForOneOfTwo(t *testing.T) {
	t.Parallel()
	w, worker, stalled := streaming(t, 1)
	other := w.joinCRC(0, periodic.Client)
	other.send(crcRequest(7, periodic.RecvData, job("f", "n")))
	other.crcFrames()
	held := worker.publishUntilHeld(sched.DefaultWindow/(16<<10) + 2)
	if n := len(other.crcFrames()); n != int(held)-99 {
		t.Errorf("the other listener got %d of %d parts", n, held-99)
	}
	stalled.close()
	if got := worker.crcBodies(); len(got) != 1 {
		t.Errorf("answered %q, want one SUCCESS", got)
	}
	worker.send(crcRequest(5, periodic.WorkDone, keyOf("f", "n")))
	if got := other.crcBodies(); len(got) != 1 || got[0] != fmt.Sprintf("7:1e%x", "EOF") {
		t.Errorf("at the end the other listener got %q", got)
	}
}
