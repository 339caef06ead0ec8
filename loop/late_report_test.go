package loop

import (
	"fmt"
	"slices"
	"testing"

	"treadle/codec/periodic"
)

// TestLateResult: the late result of a job's run that was taken from its worker is the answer to no RUN_JOB but its
// own: not to one of a later job of that name, and the later job is not ended by it. In the 2018 framing the handle
// says which run is meant; in the CRC framing a worker is not given a job of that name before it has reported the old
// run.
func TestLateResult(t *testing.T) {
	t.Parallel()
	type fixture struct {
		*memServer
		client, worker *memConn
		ask            func(id uint32, cmd periodic.Command, args ...[]byte) []byte
		frames         func(*memConn) []periodic.Response
		key            func(t *testing.T, r periodic.Response) []byte // the name of the job of a JOB_ASSIGN for its worker
	}
	f := func(name string, crc bool, again func(r *fixture)) {
		t.Run(fmt.Sprintf("%s, CRC %v", name, crc), func(t *testing.T) {
			r := &fixture{memServer: newMemServer(t, Options{})}
			if crc {
				r.client, r.worker = r.joinCRC(0, periodic.Client), r.workerCRC(0, "f")
				r.ask, r.frames = crcRequest, (*memConn).crcFrames
				r.key = func(*testing.T, periodic.Response) []byte { return keyOf("f", "n") }
			} else {
				r.client, r.worker = r.join(0, periodic.Client), r.memServer.worker(0, "f")
				r.ask, r.frames = request, (*memConn).frames
				r.key = func(t *testing.T, a periodic.Response) []byte {
					handle, _ := assigned(t, a)
					return handle
				}
			}
			grab := func(w *memConn) { w.send(r.ask(7, periodic.GrabJob)) }
			given := func(w *memConn) (keys [][]byte) {
				for _, a := range r.frames(w) {
					if a.MsgID == 7 && a.Body[0] == byte(periodic.JobAssign) {
						keys = append(keys, r.key(t, a))
					}
				}
				return keys
			}
			r.client.send(r.ask(1, periodic.SubmitJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("f"), Name: []byte("n"), Timeout: 2})))
			grab(r.worker)
			old := given(r.worker)
			if len(old) != 1 {
				t.Fatalf("the worker is given %d jobs", len(old))
			}
			again(r)
			r.frames(r.client)
			r.client.send(r.ask(2, periodic.RunJob, job("f", "n", 'B')))
			grab(r.worker)
			r.worker.send(r.ask(8, periodic.WorkDone, old[0], []byte("of A")))
			r.client.send(r.ask(3, periodic.Ping))
			heard := r.frames(r.client)
			if last := heard[len(heard)-1]; last.MsgID != 3 || slices.ContainsFunc(heard, func(f periodic.Response) bool { return f.MsgID == 2 }) {
				t.Fatalf("the late result of A is there, and the client of B hears %+v", heard)
			}
			b := given(r.worker)
			if len(b) != 1 {
				t.Fatalf("the worker has B %d times when it has reported A", len(b))
			}
			r.worker.send(r.ask(9, periodic.WorkDone, b[0], []byte("of B")))
			heard = r.frames(r.client)
			if len(heard) != 1 || heard[0].MsgID != 2 || string(heard[0].Body[len(heard[0].Body)-4:]) != "of B" {
				t.Errorf("B is done, and its client hears %+v", heard)
			}
		})
	}
	for _, crc := range []bool{false, true} {
		f("timed out", crc, func(r *fixture) { r.advance(3200) })
		f("removed", crc, func(r *fixture) { r.client.send(r.ask(4, periodic.RemoveJob, str8("f"), str8("n"))) })
	}
}

// TestRespondOfARemovedJob: a slave has one job at a time, and its respond names none. One whose job was removed stays
// busy: the respond is about that job, is acknowledged, and ends no later one of its name. TestLateRespond has the
// same for a time-out.
func TestRespondOfARemovedJob(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, slave := w.join(0, periodic.Client), w.slave(0, `"f"`)
	client.send(request(1, periodic.SubmitJob, job("f", "n", 'A')), request(2, periodic.RemoveJob, str8("f"), str8("n")))
	slave.hears("A", `{"action":"job","id":"n","type":"f","body":"A"}`)
	client.frames()
	client.send(request(3, periodic.RunJob, job("f", "n", 'B')))
	slave.hears("B, as long as it is busy")
	slave.say(`{"action":"respond","body":"of A"}`)
	slave.hears("its respond", ok, `{"action":"job","id":"n","type":"f","body":"B"}`)
	if heard := client.frames(); len(heard) != 0 {
		t.Fatalf("A is done, late, and the client of B hears %+v", heard)
	}
	slave.say(`{"action":"respond","body":"of B"}`)
	if heard := client.frames(); len(heard) != 1 || string(heard[0].Body) != "of B" {
		t.Errorf("B is done, and its client hears %+v", heard)
	}
}
