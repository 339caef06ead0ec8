package loop

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"treadle/codec/dwork/dworkpb"
	"treadle/codec/periodic"
	"treadle/loop/dwork"
)

// hub is the server's of dwork.
func (s *Server) hub() *dwork.Protocol {
	for h := range protocolsWith[*dwork.Protocol](s) {
		return h
	}
	panic("the server does not speak dwork")
}

// askDwork asks a hub, in protobuf's text form, and returns the reply in it.
func askDwork(t *testing.T, hub *dwork.Protocol, request string) string {
	t.Helper()
	var m dworkpb.QueryMsg
	if err := prototext.Unmarshal([]byte(request), &m); err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	payload, err := proto.MarshalOptions{AllowPartial: true}.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	replied := false
	hub.Ask(payload, func(reply []byte) {
		replied = true
		if err := proto.Unmarshal(reply, &m); err != nil {
			t.Fatalf("%s: the reply %x: %v", request, reply, err)
		}
	})
	for until := time.Now().Add(patience); !replied; runtime.Gosched() { // it waits for the journal
		if !hub.Turn() && time.Now().After(until) {
			t.Fatalf("%s is not answered", request)
		}
	}
	// The text form has spaces here and there, at random on purpose.
	return strings.TrimSpace(blanks.ReplaceAllString(prototext.MarshalOptions{}.Format(&m), " "))
}

var blanks = regexp.MustCompile(` +`)

// dwork asks the server's hub and lets the reactors run.
func (w *memServer) dwork(request string) string {
	w.t.Helper()
	reply := askDwork(w.t, w.hub(), request)
	w.settle()
	return reply
}

// taskNames are the tasks of a Transfer.
func taskNames(t *testing.T, reply string) string {
	t.Helper()
	var m dworkpb.QueryMsg
	if err := prototext.Unmarshal([]byte(reply), &m); err != nil {
		t.Fatal(err)
	}
	names := []string{m.GetType().String()}
	for _, task := range m.GetTask() {
		names = append(names, task.GetName())
	}
	return strings.Join(names, " ")
}

// lookupLocation is where a task is.
func (w *memServer) lookupLocation(name string) string {
	w.t.Helper()
	var m dworkpb.QueryMsg
	text := w.dwork(fmt.Sprintf(`type: Lookup name: %q`, name))
	if err := prototext.Unmarshal([]byte(text), &m); err != nil {
		w.t.Fatal(err)
	}
	return m.GetLocation()
}

// gotJob is an assignment in either framing.
type gotJob struct {
	handle           []byte // its name for the server
	name, workload   string
	schedAt, timeout int64
}

// assignment takes the only JOB_ASSIGN that a worker has read.
func (c *memConn) assignment(crc bool) (got gotJob) {
	c.w.t.Helper()
	all := c.frames
	if crc {
		all = c.crcFrames
	}
	for _, f := range all() {
		if len(f.Body) == 0 || f.Body[0] != byte(periodic.JobAssign) {
			continue
		}
		record := f.Body[1:]
		if !crc {
			var h []byte
			h, record, _ = periodic.Str8(record)
			got.handle = periodic.AppendStr8(nil, h)
		}
		var j periodic.Job
		if _, err := periodic.ParseJob(record, &j); err != nil {
			c.w.t.Fatal(err)
		}
		if crc {
			got.handle = jobName(string(j.Func), string(j.Name))
		}
		got.name, got.workload, got.schedAt, got.timeout = string(j.Name), string(j.Workload), j.SchedAt, int64(j.Timeout)
	}
	if got.handle == nil {
		c.w.t.Fatal("no job was assigned")
	}
	return got
}

func requestIn(crc bool, id uint32, cmd periodic.Command, args ...[]byte) []byte {
	if crc {
		return crcRequest(id, cmd, args...)
	}
	return request(id, cmd, args...)
}

// putOff is the arguments of SCHED_LATER behind the job.
func putOff(seconds int64) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(nil, uint64(seconds)), 0)
}

const (
	createAB  = `type: Create task { name: "a" origin: "o\"1" } task { name: "b" origin: "o" pred { name: "a" } }`
	askStatus = `type: OK`
)

// TestTaskAtPeriodicWorker: queue dwork, name = task name, workload {"name","origin"}; done =
// Complete, WORK_FAIL = back to ready first, SCHED_LATER = delayed; location periodic:ID.
func TestTaskAtPeriodicWorker(t *testing.T) {
	t.Parallel()
	for _, crc := range []bool{false, true} {
		w := newMemServer(t, Options{Loops: 2})
		join := w.join
		if crc {
			join = w.joinCRC
		}
		worker := join(1, periodic.Worker)
		worker.send(requestIn(crc, 1, periodic.CanDo, str8("dwork")), requestIn(crc, 2, periodic.GrabJob))
		worker.read = nil // the acknowledgements of CRC
		if got := w.dwork(createAB); got != "type:OK" {
			t.Fatal(got)
		}
		j := worker.assignment(crc)
		if j.name != "a" || j.workload != `{"name":"a","origin":"o\"1"}` || j.schedAt != 0 || j.timeout != 0 {
			t.Errorf("assigned %+v", j)
		}
		if at := w.lookupLocation("a"); at != fmt.Sprintf("periodic:%d", uint64(worker.s.ID)) {
			t.Errorf("a is at %q", at)
		}
		if got := w.dwork(`type: Complete task { name: "a" origin: "" } location: "w"`); !strings.HasPrefix(got, "type:NotFound") {
			t.Errorf("another completes it: %s", got)
		}
		// A failed task goes first, before one that was there.
		w.dwork(`type: Create task { name: "c" origin: "o" }`)
		worker.send(requestIn(crc, 3, periodic.WorkFail, j.handle))
		if got := taskNames(t, w.dwork(`type: Steal n: 9 location: "w"`)); got != "Transfer a c" {
			t.Errorf("after the failure: %s", got)
		}
		w.dwork(`type: Transfer task { name: "a" origin: "" } task { name: "c" origin: "" } location: "w"`)
		worker.read = nil
		worker.send(requestIn(crc, 4, periodic.GrabJob))
		j = worker.assignment(crc)
		worker.send(requestIn(crc, 5, periodic.SchedLater, j.handle, putOff(5)))
		if got := taskNames(t, w.dwork(`type: Steal n: 9 location: "w"`)); got != "Transfer c" {
			t.Errorf("a is put off: %s", got)
		}
		w.advance(5001)
		worker.read = nil
		worker.send(requestIn(crc, 6, periodic.GrabJob))
		j = worker.assignment(crc)
		worker.send(requestIn(crc, 7, periodic.WorkDone, j.handle, []byte("ignored")))
		if got := taskNames(t, w.dwork(`type: Steal n: 9 location: "w"`)); got != "Transfer b" {
			t.Errorf("a is done: %s", got)
		}
		// A worker that leaves releases its jobs.
		w.dwork(`type: Transfer task { name: "b" origin: "" } location: "w"`)
		worker.read = nil
		worker.send(requestIn(crc, 8, periodic.GrabJob))
		if j = worker.assignment(crc); j.name != "b" {
			t.Errorf("assigned %+v", j)
		}
		worker.close()
		if got := taskNames(t, w.dwork(`type: Steal n: 9 location: "w"`)); got != "Transfer b" {
			t.Errorf("the worker has left: %s", got)
		}
		w.dwork(`type: Exit location: "w"`)
	}
}

// TestTaskAtGloomSlave: a task is a job of type "dwork" whose body is the JSON object; the
// response completes it; a slave's death makes it ready again, first; location gloom:ID.
func TestTaskAtGloomSlave(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{Loops: 2})
	slave := w.slave(1, `"dwork"`)
	w.dwork(createAB)
	slave.hears("a", `{"action":"job","id":"a","type":"dwork","body":{"name":"a","origin":"o\"1"}}`)
	if at := w.lookupLocation("a"); at != fmt.Sprintf("gloom:%d", uint64(slave.s.ID)) {
		t.Errorf("a is at %q", at)
	}
	slave.say(`{"action":"respond","body":"anything"}`)
	slave.hears("b", ok, `{"action":"job","id":"b","type":"dwork","body":{"name":"b","origin":"o"}}`)
	w.dwork(`type: Create task { name: "c" origin: "o" }`)
	for range 5 { // more often than a Gloom job may die
		slave.close()
		slave = w.openGloom(0, false)
		slave.say(`{"action":"join","type":"dwork"}`)
		slave.hears("b again", ok, `{"action":"job","id":"b","type":"dwork","body":{"name":"b","origin":"o"}}`)
	}
	slave.say(`{"action":"respond","body":null}`)
	slave.hears("c", ok, `{"action":"job","id":"c","type":"dwork","body":{"name":"c","origin":"o"}}`)
}

// TestStealLeavesOthers: Steal hands out dwork tasks only, from a queue that has others, which
// a worker gets behind the tasks; and the queue cannot be dropped or its tasks removed.
func TestStealLeavesOthers(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, master := w.join(0, periodic.Client), w.openGloom(0, true)
	client.send(request(1, periodic.SubmitJob, job("dwork", "p")))
	master.asks(`"g"`, `"dwork"`, `,"body":1,"priority":-1`)
	w.dwork(createAB)
	if got := w.dwork(askStatus); got != `type:OK name:"dhub: 2 active tasks, 1 ready." n:1` {
		t.Error(got)
	}
	if got := taskNames(t, w.dwork(`type: Steal n: 9 location: "w"`)); got != "Transfer a" {
		t.Error(got)
	}
	w.dwork(`type: Exit location: "w"`)
	client.read = nil
	client.send(request(2, periodic.RemoveJob, jobName("dwork", "a")), request(3, periodic.DropFunc, str8("dwork")))
	if got := w.dwork(askStatus); got != `type:OK name:"dhub: 2 active tasks, 1 ready." n:1` {
		t.Errorf("after REMOVE_JOB and DROP_FUNC: %s", got)
	}
	client.read = nil
	client.send(request(4, periodic.Status))
	if got := string(client.read); !strings.Contains(got, "dwork,0,4,0,") {
		t.Errorf("STATUS says %q", got)
	}
	worker := w.join(0, periodic.Worker)
	worker.send(request(1, periodic.CanDo, str8("dwork")))
	for _, want := range []string{"a", "b", "p", "g"} {
		worker.send(request(2, periodic.GrabJob))
		j := worker.assignment(false)
		if j.name != want {
			t.Errorf("assigned %q, want %q", j.name, want)
		}
		worker.send(request(3, periodic.WorkDone, j.handle))
	}
}
