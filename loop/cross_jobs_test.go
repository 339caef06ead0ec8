package loop

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
	served "treadle/loop/periodic"
)

// The tests of this file check what the protocols see of each other's jobs.

// say sends frames of JSON.
func (c *memConn) say(payloads ...string) {
	for _, p := range payloads {
		c.send(gloomFrame(p))
	}
}

// heard takes the JSON of the frames that the peer has read.
func (c *memConn) heard() (all []string) {
	c.w.t.Helper()
	for {
		payload, n, err := gloom.Next(c.read, 1<<30)
		if err != nil {
			c.w.t.Fatalf("the server sent no frame: %v", err)
		}
		if n == 0 {
			return all
		}
		all = append(all, string(payload))
		c.read = c.read[n:]
	}
}

// hears wants exactly these frames.
func (c *memConn) hears(what string, want ...string) {
	c.w.t.Helper()
	if got := c.heard(); !slices.Equal(got, want) {
		c.w.t.Errorf("%s:\ngot  %s\nwant %s", what, strings.Join(got, " "), strings.Join(want, " "))
	}
}

const ok = `{"ok":true}`

// slave connects a Gloom slave of a type, given as JSON.
func (w *memServer) slave(loop int, typ string) *memConn {
	c := w.openGloom(loop, false)
	c.say(`{"action":"join","type":` + typ + `}`)
	if got := c.heard(); len(got) == 0 || got[0] != ok {
		w.t.Fatalf("join is answered %q", got)
	}
	return c
}

// asks submits a job with an id and a type in JSON and takes the ack.
func (c *memConn) asks(id, typ, more string) {
	c.w.t.Helper()
	c.say(`{"action":"submit","id":` + id + `,"type":` + typ + more + `}`)
	if got := c.heard(); len(got) == 0 || got[0] != `{"ok":true,"id":`+id+`}` {
		c.w.t.Fatalf("submit is answered %q", got)
	}
}

// TestPeriodicJobAtGloomSlave: id = the name, body = the workload if it is JSON, else a
// string, else base64; the result is the response's JSON, a string unwrapped when the
// workload had been wrapped.
func TestPeriodicJobAtGloomSlave(t *testing.T) {
	t.Parallel()
	f := func(name, workload, id, body, response, result string) {
		t.Helper()
		for loops := 1; loops <= 2; loops++ {
			w := newMemServer(t, Options{Loops: loops})
			slave := w.slave(loops-1, `"f"`)
			old, crc := w.join(0, periodic.Client), w.joinCRC(0, periodic.Client)
			push := fmt.Sprintf(`{"action":"job","id":%s,"type":"f","body":%s}`, id, body)
			respond := `{"action":"respond","body":` + response + `}`
			old.send(request(1, periodic.RunJob, job("f", name, []byte(workload)...)))
			slave.hears("RUN_JOB", push)
			slave.say(respond)
			slave.hears("respond", ok)
			if got := old.bodies(1); len(got) != 1 || got[0] != fmt.Sprintf("%x", result) {
				t.Errorf("the client of 2018 got %q, want %q", got, result)
			}
			crc.send(crcRequest(2, periodic.RunJob, job("f", name, []byte(workload)...)))
			slave.hears("RUN_JOB in the CRC framing", push)
			slave.say(respond)
			if got := crc.crcBodies(); len(got) != 1 || got[0] != fmt.Sprintf("2:1e%x", result) {
				t.Errorf("the CRC client got %q, want %q", got, result)
			}
			old.send(request(3, periodic.SubmitJob, job("f", name, []byte(workload)...)))
			slave.say(respond)
			slave.hears("SUBMIT_JOB", ok, push, ok)
			if got := old.bodies(3); len(got) != 1 || got[0] != "10" {
				t.Errorf("a plain SUBMIT_JOB got %q, want SUCCESS alone", got)
			}
		}
	}
	f("n", `{"a":1,"a":2}`, `"n"`, `{"a":1,"a":2}`, `"text"`, `"text"`)
	f("n", " [1.0]\n", `"n"`, `[1.0]`, `{"x": 1}`, `{"x": 1}`)
	f("n", "hello \"you\"", `"n"`, `"hello \"you\""`, `"b\u0079e"`, "bye")
	f("n", "01", `"n"`, `"01"`, `{"a":1}`, `{"a":1}`)
	f("n", "é", `"n"`, `"\u00e9"`, `"\ud83d\ude00"`, "😀")
	f("n", "", `"n"`, `""`, `""`, "")
	f("n", "", `"n"`, `""`, `null`, "null")
	f("n", "\xff\x00", `"n"`, `{"base64":"/wA="}`, `"text"`, `"text"`)
	f(`"é`, `"s"`, `"\"\u00e9"`, `"s"`, `5`, `5`)
}

// TestFromResult: workers of every protocol pass a result through its space's FromResult. It changes the table of
// spaces, so no other test may run beside it.
func TestFromResult(t *testing.T) {
	space := &spaces[served.Space]
	space.FromResult = func(dst, data []byte) []byte { return append(append(dst, data...), '!') }
	defer func() { space.FromResult = nil }()
	w := newMemServer(t, Options{})
	client := w.join(0, periodic.Client)
	for _, workload := range []string{"7", "text"} {
		slave := w.slave(0, `"f"`)
		client.send(request(1, periodic.RunJob, job("f", "n", []byte(workload)...)))
		slave.say(`{"action":"respond","body":"done"}`)
		want := map[string]string{"7": `"done"!`, "text": "done!"}[workload]
		if got := client.bodies(1); len(got) != 1 || got[0] != fmt.Sprintf("%x", want) {
			t.Errorf("%s at a Gloom slave: got %q, want %q", workload, got, want)
		}
		slave.close()
	}
	worker := w.workerCRC(0, "f")
	worker.send(crcRequest(1, periodic.GrabJob))
	client.send(request(2, periodic.RunJob, job("f", "n")))
	worker.send(crcRequest(2, periodic.WorkDone, keyOf("f", "n"), []byte("done")))
	if got := client.bodies(2); len(got) != 1 || got[0] != fmt.Sprintf("%x", "done!") {
		t.Errorf("at a Periodic worker: got %q", got)
	}
}

// TestSlaveGone: the Periodic job of a slave that leaves is ready again, however often, with its count unchanged. Its
// waiters wait on, as with a Periodic worker that leaves.
func TestSlaveGone(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, crc := w.join(0, periodic.Client), w.joinCRC(0, periodic.Client)
	client.send(request(1, periodic.RunJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("f"), Name: []byte("n"), Count: 7})))
	for i := range 20 {
		slave := w.slave(0, `"f"`)
		if i == 0 {
			crc.send(crcRequest(1, periodic.RunJob, job("f", "n")))
		}
		slave.close()
	}
	if got := crc.crcBodies(); len(got) != 0 {
		t.Fatalf("the CRC client got %q", got)
	}
	worker := w.worker(0, "f")
	worker.grabs(1, 1)
	handle, j := assigned(t, worker.frames()[0])
	if j.Count != 7 || len(client.frames()) != 0 {
		t.Errorf("the count is %d, want 7", j.Count)
	}
	worker.send(request(2, periodic.WorkDone, handle, []byte("at last")))
	if got := client.bodies(1); len(got) != 1 {
		t.Errorf("the client got %q", got)
	}
	if got := crc.crcBodies(); !slices.Equal(got, []string{fmt.Sprintf("1:1e%x", "at last")}) {
		t.Errorf("the CRC client got %q", got)
	}
}

// TestLateRespond: after the time-out the job is ready again, the slave stays busy, and its
// late respond is acknowledged and dropped.
func TestLateRespond(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, slave := w.join(0, periodic.Client), w.slave(0, `"f"`)
	client.send(request(1, periodic.RunJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("f"), Name: []byte("n"), Timeout: 2})))
	slave.hears("RUN_JOB", `{"action":"job","id":"n","type":"f","body":""}`)
	w.advance(3200)
	client.send(request(2, periodic.SubmitJob, job("f", "m")))
	slave.hears("the time-out and another job")
	other := w.slave(0, `"g"`)
	other.say(`{"action":"join","type":"f"}`)
	other.hears("another slave", ok, `{"action":"job","id":"n","type":"f","body":""}`)
	client.frames()
	slave.say(`{"action":"respond","body":"late"}`)
	slave.hears("the late respond", ok, `{"action":"job","id":"m","type":"f","body":""}`)
	if got := client.frames(); len(got) != 0 {
		t.Errorf("the late respond reached the client: %v", got)
	}
	other.say(`{"action":"respond","body":"in time"}`)
	if got := client.bodies(1); len(got) != 1 || got[0] != fmt.Sprintf("%x", "in time") {
		t.Errorf("the client got %q", got)
	}
}

// TestGloomJobAtPeriodicWorker: name = the id's text, sched_at 0, version 0; WORK_DONE's
// bytes become JSON.
func TestGloomJobAtPeriodicWorker(t *testing.T) {
	t.Parallel()
	f := func(id, body, name, done, response string) {
		t.Helper()
		w := newMemServer(t, Options{Loops: 2})
		master, old, crc := w.openGloom(1, true), w.worker(0, "f"), w.workerCRC(0, "f")
		record := append(append(str8("f"), periodic.AppendStr32(str8(name), []byte(body))...), make([]byte, 9)...)
		old.grabs(1, 1)
		master.asks(id, `"f"`, `,"priority":3,"body":`+body)
		got := old.frames()
		handle, _ := assigned(t, got[0])
		if r := got[0].Body[1+len(handle):]; string(r) != string(record) {
			t.Errorf("the worker of 2018 got the record %q, want %q", r, record)
		}
		old.send(request(2, periodic.WorkDone, handle, []byte(done)))
		master.hears("WORK_DONE", `{"id":`+id+`,"body":`+response+`}`)
		crc.send(crcRequest(1, periodic.GrabJob))
		master.asks(id, `"f"`, `,"body":`+body)
		if got := crc.crcFrames(); len(got) != 1 || string(got[0].Body[1:]) != string(record) {
			t.Errorf("the CRC worker got %v, want %q", got, record)
		}
		crc.send(crcRequest(2, periodic.WorkDone, keyOf("f", name), []byte(done)))
		master.hears("WORK_DONE in the CRC framing", `{"id":`+id+`,"body":`+response+`}`)
	}
	f(`"a\u0062"`, `{"x": 1}`, "ab", `{"y": 2}`, `{"y": 2}`)
	f(`7`, `"s"`, "7", "text", `"text"`)
	f(`{"k":"v"}`, `null`, `{"k":"v"}`, "", `""`)
	f(`"é"`, `1`, "é", "\xff", `{"base64":"/w=="}`)
	f(`[1]`, `1`, "[1]", " 5 ", `5`)
}

// TestLongestFunctions: a job of a function as long as there can be goes to its worker, also
// when its queue's name is a byte longer.
func TestLongestFunctions(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{})
	client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
	for i, first := range []string{"f", "\xff"} {
		function := strings.Repeat(first, periodic.MaxStr8)
		worker.send(request(1, periodic.CanDo, str8(function)), request(2, periodic.GrabJob))
		client.ask(uint32(i), periodic.SubmitJob, later(function, function, 0), byte(periodic.Success))
		if _, j := assigned(t, worker.next()); string(j.Func) != function {
			t.Errorf("the function is %.9q", j.Func)
		}
	}
}

// TestLongNamesStayWithGloom: an id or a type over 255 bytes never goes to a Periodic
// worker, shorter ones behind it do, and STATUS lists no type that fits no str8.
func TestLongNamesStayWithGloom(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	master, worker, crc := w.openGloom(0, true), w.worker(0, "f"), w.workerCRC(0, "f")
	long, fits := `"`+strings.Repeat("i", 256)+`"`, `"`+strings.Repeat("i", 255)+`"`
	worker.grabs(1, 1)
	crc.send(crcRequest(1, periodic.GrabJob))
	master.asks(long, `"f"`, `,"priority":9,"body":1`)
	master.asks(`1`, long, `,"body":1`)
	if len(worker.frames())+len(crc.crcFrames()) != 0 {
		t.Error("a long name went to a Periodic worker")
	}
	master.asks(fits, `"f"`, `,"body":1`)
	master.asks(`"short"`, `"f"`, `,"body":1`)
	if a, b := len(worker.frames()), len(crc.crcFrames()); a != 1 || b != 1 {
		t.Errorf("the workers got %d and %d short names", a, b)
	}
	slave := w.slave(0, `"g"`)
	slave.say(`{"action":"join","type":"f"}`)
	slave.hears("join", ok, `{"action":"job","id":`+long+`,"type":"f","body":1}`)
	crc.send(crcRequest(2, periodic.Status))
	if got := crc.crcBodies(); len(got) != 1 || strings.Contains(got[0], fmt.Sprintf("%x", "iii")) {
		t.Errorf("STATUS lists a type of 256 bytes: %q", got)
	}
}

// TestWorkFailIsADeath: it counts with the deaths of slaves, and the fourth fails the job.
func TestWorkFailIsADeath(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	master, worker := w.openGloom(0, true), w.worker(0, "f")
	master.asks(`1`, `"f"`, `,"body":1`)
	for range 2 {
		worker.grabs(1, 1)
		handle, _ := assigned(t, worker.frames()[0])
		worker.send(request(2, periodic.WorkFail, handle))
	}
	w.slave(0, `"f"`).close()
	master.hears("three deaths")
	worker.grabs(1, 1)
	handle, _ := assigned(t, worker.frames()[0])
	worker.send(request(2, periodic.WorkFail, handle))
	master.hears("the fourth death", `{"error":"job_failed","reason":1}`)
	master.asks(`1`, `"f"`, `,"body":1`)
}

// TestSchedLaterDelaysAGloomJob: and no time-out ends one, and its deaths stay as they were.
func TestSchedLaterDelaysAGloomJob(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	master, worker := w.openGloom(0, true), w.worker(0, "f")
	worker.send(request(1, periodic.CanDo, str8("f")))
	w.join(0, periodic.Client).send(request(1, periodic.ConfigSet, str8("keepalive"), []byte{0, 0, 0, 0}))
	master.asks(`1`, `"f"`, `,"body":1`)
	for range 6 {
		worker.grabs(1, 1)
		handle, _ := assigned(t, worker.frames()[0])
		worker.send(request(2, periodic.SchedLater, handle, []byte{0, 0, 0, 0, 0, 0, 0, 5, 0, 1}))
		worker.grabs(1, 1)
		w.advance(4999)
		if len(worker.frames()) != 0 {
			t.Fatal("the job came before its time")
		}
		w.advance(1)
		got := worker.frames()
		if len(got) != 1 {
			t.Fatal("the job did not come")
		}
		handle, j := assigned(t, got[0])
		if j.SchedAt != 0 || j.Count != 0 || j.Timeout != 0 {
			t.Errorf("the record is %+v, want version 0 and sched_at 0", j)
		}
		worker.send(request(3, periodic.SchedLater, handle, make([]byte, 10)))
	}
	worker.grabs(1, 1)
	handle, _ := assigned(t, worker.frames()[0])
	w.advance(3_600_000)
	worker.send(request(2, periodic.WorkDone, handle, []byte("2")))
	master.hears("after an hour", `{"id":1,"body":2}`)
}

// TestGloomJSON: raw control characters inside strings are delivered as their escapes, to slaves, masters and Periodic
// workers, whichever field they stand in; with strict they are no JSON.
func TestGloomJSON(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	master, slave := w.openGloom(0, true), w.slave(0, `"f"`)
	master.say("{\"action\":\"submit\",\n\"id\":\"i\x01\",\"type\":\"f\",\"body\":[\"a\nb\"]}")
	master.hears("ack", `{"ok":true,"id":"i\u0001"}`)
	slave.hears("job", `{"action":"job","id":"i\u0001","type":"f","body":["a\nb"]}`)
	slave.say("{\"action\":\"respond\",\"body\":\"\t\"}")
	slave.hears("respond", ok)
	master.hears("response", `{"id":"i\u0001","body":"\t"}`)
	slave.close()
	worker := w.worker(0, "f")
	worker.grabs(1, 1)
	master.say("{\"action\":\"submit\",\"id\":\"a\nb\",\"type\":\"f\",\"body\":1}")
	if got := names(t, worker.frames()); !slices.Equal(got, []string{"a\nb"}) {
		t.Errorf("a Periodic worker gets the jobs %q", got)
	}

	w = newMemServer(t, Options{Gloom: GloomOptions{JSON: "strict"}})
	master = w.openGloom(0, true)
	master.say("{\"action\":\"submit\",\"id\":1,\"type\":\"f\",\"body\":\"\n\"}")
	master.hears("strict", `{"error":"invalid_json","reason":"{\"action\":\"submit\",\"id\":1,\"type\":\"f\",\"body\":\"\n\"}"}`)
	if !master.closed {
		t.Error("the connection stays")
	}
}
