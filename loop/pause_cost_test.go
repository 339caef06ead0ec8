package loop

import (
	"fmt"
	"testing"

	"treadle/codec/periodic"
	served "treadle/loop/periodic"
	"treadle/sched"
)

// TestPauseFor: whatever small requests cost much, those of one read are done over many turns.
func TestPauseFor(t *testing.T) {
	t.Parallel()
	const many = 4000
	for _, each := range []struct {
		what    string
		grab    string
		prepare func(w *memServer) (c *memConn, costly []byte)
	}{
		{"STATUS of very many functions", "", func(w *memServer) (*memConn, []byte) {
			_ = w.worker(0, manyListed()...)
			return w.join(0, periodic.Client), request(1, periodic.Status)
		}},
		{"GRAB_JOB behind very many", "", func(w *memServer) (*memConn, []byte) {
			c := w.worker(0, "f")
			c.grabs(10, sched.MaxSlots)
			c.catchUp()
			return c, request(1, periodic.GrabJob)
		}},
		{"CANT_DO, CAN_DO by a worker of very many functions", "", func(w *memServer) (*memConn, []byte) {
			c, _ := manyFunctions(w)
			return c, append(request(1, periodic.CantDo, str8("f9")), request(1, periodic.CanDo, str8("f9"))...)
		}},
		{"CANT_DO by a worker for whom very much is kept", "document", func(w *memServer) (*memConn, []byte) {
			c, client := w.join(0, periodic.Worker), w.join(0, periodic.Client)
			c.send(request(1, periodic.Broadcast, str8("b")))
			for i := range uint32(1500) {
				c.receive(request(i, periodic.Sleep))
			}
			client.send(request(1, periodic.SubmitJob, job("b", "")))
			return c, request(1, periodic.CantDo, str8("f"))
		}},
		{"WORK_DATA for very many who listen", "", func(w *memServer) (*memConn, []byte) {
			c, listener := w.streamer(1)
			for i := range uint32(many) {
				listener.receive(crcRequest(i, periodic.RecvData, job("f", "0")))
			}
			return c, crcRequest(1, periodic.WorkData, keyOf("f", "0"), []byte("data"))
		}},
	} {
		w := newMemServer(t, Options{Periodic: PeriodicOptions{Grab: each.grab}})
		c, costly := each.prepare(w)
		w.settle()
		w.ticks()
		w.settle()
		c.receive(costly) // its cost counts when the next request is there
		w.settle()
		c.catchUp()
		turns := 1
		var all []byte
		for range 160 {
			all = append(all, costly...)
		}
		for c.receive(all); c.s.paused; turns++ {
			c.goOn()
		}
		if c.closed || turns < 3 {
			t.Errorf("160 times %s in %d turns; closed: %v", each.what, turns, c.closed)
		}
	}
}

// manyListed are as many functions as a STATUS may have that is answered at once.
func manyListed() (all []string) {
	for i := range served.LongStatus {
		all = append(all, fmt.Sprint("f", i))
	}
	return all
}

// streamer is a worker in the CRC framing that holds the jobs "0" ... of "f", and a client.
func (w *memServer) streamer(jobs int) (worker, client *memConn) {
	worker, client = w.workerCRC(0, "f"), w.joinCRC(0, periodic.Client)
	for i := range jobs {
		worker.receive(crcRequest(uint32(i), periodic.GrabJob))
		client.receive(crcRequest(1, periodic.SubmitJob, job("f", fmt.Sprint(i))))
	}
	w.settle()
	return worker, client
}
