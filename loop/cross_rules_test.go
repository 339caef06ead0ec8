package loop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"treadle/codec/periodic"
)

// TestNameClashesNeverHeldTogether: where function and name are the handle, one connection never holds two jobs that
// have both in common. It gets the second after the first, and other workers get it at once.
func TestNameClashesNeverHeldTogether(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, master, crc := w.join(0, periodic.Client), w.openGloom(0, true), w.workerCRC(0, "f")
	client.send(request(1, periodic.SubmitJob, job("f", "n", 'p')))
	master.asks(`"n"`, `"f"`, `,"body":"g"`)
	master.asks(`"m"`, `"f"`, `,"body":"g"`)
	for i := range uint32(3) {
		crc.send(crcRequest(10+i, periodic.GrabJob))
	}
	if got := crc.crcFrames(); len(got) != 2 {
		t.Fatalf("the CRC worker holds %d jobs, want one of the two jobs of one name and another", len(got))
	}
	crc.send(crcRequest(20, periodic.WorkDone, keyOf("f", "n"), []byte("1")))
	master.hears("the Periodic job is done")
	if got := crc.crcFrames(); len(got) != 2 || got[0].Body[0]+got[1].Body[0] != byte(periodic.Success)+byte(periodic.JobAssign) {
		t.Errorf("after the first job the CRC worker got %v, want SUCCESS and the second", got)
	}
	crc.send(crcRequest(21, periodic.WorkDone, keyOf("f", "n"), []byte("2")))
	master.hears("the Gloom job is done", `{"id":"n","body":2}`)

	client.send(request(1, periodic.SubmitJob, job("f", "t", 'p')))
	master.asks(`"t"`, `"f"`, `,"body":"g"`)
	old := w.worker(0, "f")
	old.grabs(1, 2)
	if got := names(t, old.frames()); !slices.Equal(got, []string{"t", "t"}) {
		t.Errorf("a worker of 2018, who has handles, got %q, want both", got)
	}
}

// TestTypesThatAreNoStrings: they meet no Periodic function, not even one whose name is
// that of their queue, and STATUS does not show them.
func TestTypesThatAreNoStrings(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	master, crc := w.openGloom(0, true), w.workerCRC(0, "7", "null", "\xffj7", "j7", "{}")
	crc.send(crcRequest(1, periodic.GrabJob))
	for i, typ := range []string{`7`, `null`, `{}`, `[7]`, `true`} {
		master.asks(fmt.Sprint(i), typ, `,"body":1`)
	}
	if got := crc.crcFrames(); len(got) != 0 {
		t.Errorf("a Periodic worker got %v", got)
	}
	crc.send(crcRequest(2, periodic.Status))
	text := string(crc.crcFrames()[0].Body)
	for line := range strings.SplitSeq(text[1:], "\n") {
		if !strings.Contains(line, ",1,0,0,0,") {
			t.Errorf("STATUS shows %q", line)
		}
	}
	w.slave(0, `7`)
	crc.send(crcRequest(3, periodic.RunJob, job("true", "n")))
	if got := crc.crcBodies(); len(got) != 1 || got[0] != "3:1d" {
		t.Errorf("RUN_JOB is answered %q, want NO_WORKER", got)
	}
	master.asks(`"s"`, `"7"`, `,"body":1`)
	if got := crc.crcFrames(); len(got) != 1 {
		t.Error("the string \"7\" is not the function 7")
	}
}

// TestPeriodicCommandsLeaveGloomJobs: SUBMIT_JOB, REMOVE_JOB, DUMP and LOAD of a name never
// touch the Gloom job of that name, and BROADCAST hands one to a single worker.
func TestPeriodicCommandsLeaveGloomJobs(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, master := w.join(0, periodic.Client), w.openGloom(0, true)
	master.asks(`"n"`, `"f"`, `,"body":"g"`)
	client.send(request(1, periodic.RemoveJob, keyOf("f", "n")), request(2, periodic.Dump))
	got := client.frames()
	if len(got) != 2 || len(records(t, got[1])) != 0 {
		t.Errorf("a DUMP has a Gloom job")
	}
	client.send(request(3, periodic.SubmitJob, job("f", "n", 'p')), request(4, periodic.Load, count(1), job("f", "n", 'q')))
	if st := statusOf(w.Server); len(st) != 1 || st[0].Jobs != 2 {
		t.Errorf("there are %+v, want one job of each protocol", st)
	}
	client.send(request(5, periodic.RemoveJob, keyOf("f", "n")))
	a, b := w.join(0, periodic.Worker), w.join(0, periodic.Worker)
	for _, c := range []*memConn{a, b} {
		c.send(request(1, periodic.Broadcast, str8("f")))
		c.grabs(2, 1)
	}
	first, second := a.frames(), b.frames()
	if len(first) != 1 || len(second) != 0 {
		t.Fatalf("the broadcasting workers got %d and %d Gloom jobs, want one in all", len(first), len(second))
	}
	handle, _ := assigned(t, first[0])
	a.send(request(3, periodic.WorkDone, handle, []byte("1")))
	master.hears("a job of a broadcast function", `{"id":"n","body":1}`)
	slave := w.slave(0, `"f"`)
	client.send(request(6, periodic.SubmitJob, job("f", "all", '5')))
	slave.hears("a broadcast", `{"action":"job","id":"all","type":"f","body":5}`)
	if got := names(t, b.frames()); !slices.Equal(got, []string{"all"}) {
		t.Errorf("the other worker got %q", got)
	}
	slave.say(`{"action":"respond","body":1}`)
	slave.hears("its respond", ok)
}

// TestDropFuncAndGloom: with a worker of any protocol it does nothing; without, Gloom masters
// get job_failed and the ids are free, RUN_JOB waiters get an empty result, or `removed`.
func TestDropFuncAndGloom(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, crc, master := w.join(0, periodic.Client), w.joinCRC(0, periodic.Client), w.openGloom(0, true)
	slave := w.slave(0, `"f"`)
	master.asks(`0`, `"f"`, `,"body":1`)
	slave.heard()
	crc.send(crcRequest(1, periodic.RunJob, job("f", "crc")))
	client.send(request(2, periodic.RunJob, job("f", "old")))
	master.asks(`1`, `"f"`, `,"body":1`)
	master.asks(`[2]`, `"f"`, `,"body":1`)
	client.send(request(3, periodic.DropFunc, str8("f")))
	w.advance(1)
	master.hears("DROP_FUNC beside a slave")
	slave.say(`{"action":"join","type":"g"}`)
	client.send(request(3, periodic.DropFunc, str8("f")))
	w.advance(1)
	master.hears("DROP_FUNC while a job runs")
	slave.say(`{"action":"respond","body":1}`)
	client.frames()
	master.heard()
	client.send(request(4, periodic.DropFunc, str8("f")))
	w.advance(1)
	got := master.heard()
	slices.Sort(got)
	if want := []string{`{"error":"job_failed","reason":1}`, `{"error":"job_failed","reason":[2]}`}; !slices.Equal(got, want) {
		t.Errorf("the master got %q, want %q", got, want)
	}
	if got := crc.crcBodies(); len(got) != 1 || got[0] != fmt.Sprintf("1:1e%x", "removed") {
		t.Errorf("the CRC waiter got %q", got)
	}
	if got := client.frames(); len(got) != 2 || got[1].MsgID != 2 || len(got[1].Body) != 0 {
		t.Errorf("the waiter of 2018 got %v", got)
	}
	master.asks(`1`, `"f"`, `,"body":1`)
	slave.heard()
	slave.say(`{"action":"join","type":"f"}`)
	slave.hears("the id used again", ok, `{"action":"job","id":1,"type":"f","body":1}`)
}

// TestStatusCountsAll: workers and jobs of all protocols, and NO_WORKER asks for none of them.
func TestStatusCountsAll(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, master, crc := w.join(0, periodic.Client), w.openGloom(0, true), w.joinCRC(0, periodic.Client)
	crc.send(crcRequest(1, periodic.RunJob, job("f", "n")))
	slave := w.slave(0, `"f"`)
	crc.send(crcRequest(2, periodic.RunJob, job("f", "n")))
	if got := crc.crcBodies(); !slices.Equal(got, []string{"1:1d"}) {
		t.Errorf("without and with a slave RUN_JOB got %q, want NO_WORKER and nothing", got)
	}
	slave.hears("RUN_JOB", `{"action":"job","id":"n","type":"f","body":""}`)
	w.worker(0, "f")
	master.asks(`1`, `"f"`, `,"body":1`)
	client.send(request(3, periodic.SubmitJob, job("f", "m")), request(4, periodic.Status))
	got := client.frames()
	if text := string(got[1].Body); text != "f,2,3,1,1795239475" {
		t.Errorf("STATUS is %q", text)
	}
	slave.close()
	crc.send(crcRequest(5, periodic.RecvData, job("f", "m")))
	if got := crc.crcBodies(); !slices.Equal(got, []string{"5:10"}) {
		t.Errorf("the end of its slave and RECV_DATA are answered %q", got)
	}
}

// TestOrderInAMixedQueue: the order is priority, due second, then the time of becoming ready. A Periodic job has
// priority 0.
func TestOrderInAMixedQueue(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	client, master := w.join(0, periodic.Client), w.openGloom(0, true)
	at := func(name string, schedAt int64) {
		client.send(request(1, periodic.SubmitJob, periodic.AppendJob(nil, &periodic.Job{Func: []byte("f"), Name: []byte(name), SchedAt: schedAt})))
	}
	now := w.now().Wall / 1000
	master.asks(`"below"`, `"f"`, `,"priority":-1,"body":1`)
	master.asks(`"first"`, `"f"`, `,"body":1`)
	at("second", 0)
	master.asks(`"third"`, `"f"`, `,"body":1`)
	at("overdue", now-10)
	at("future", now+1)
	master.asks(`"above"`, `"f"`, `,"priority":1,"body":1`)
	w.advance(2000)
	master.asks(`"last"`, `"f"`, `,"body":1`)
	want := []string{"above", "overdue", "first", "second", "third", "future", "last", "below"}
	worker := w.worker(0, "f")
	worker.grabs(1, len(want))
	if got := names(t, worker.frames()); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRefusalsAreNoErrors: a job that a policy refuses is counted as refused, and a wrong or duplicate one as an error
// of the protocol. Neither is counted twice.
func TestRefusalsAreNoErrors(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "f")
	r := startGloom(t, Options{HTTP: "127.0.0.1:0", Faktory: FaktoryOptions{Listen: []string{"unix://" + socket}},
		Admin: AdminOptions{Rules: []PolicyRule{{Pattern: "shut", Values: map[string]string{"paused": "submits"}}}}})
	const shut, wrong = `{"jid":"refused1","jobtype":"T","args":[],"queue":"shut"}`, `{"jid":"wrong-01"}`
	const first, second = `{"jid":"unique-1","jobtype":"T","args":[],"custom":{"unique_for":600}}`, `{"jid":"unique-2","jobtype":"T","args":[],"custom":{"unique_for":600}}`
	c := dialFaktory(t, socket)
	c.asks("PUSH "+shut, "ERR")
	c.asks("PUSHB ["+shut+","+wrong+"]", "{")
	c.asks("PUSH "+wrong, "ERR")
	c.asks("PUSH "+first, "OK")
	c.asks("PUSH "+second, "NOTUNIQUE")
	master := r.dialGloom(true)
	for _, exchange := range [][]string{
		{`{"action":"submit","id":1,"type":"shut","body":1}`, `{"ok":true,"id":1}`, `{"error":"job_failed","reason":1}`},
		{`{"action":"submit","id":2,"type":"open","body":1}`, `{"ok":true,"id":2}`},
		{`{"action":"submit","id":2,"type":"open","body":1}`, `{"ok":true,"id":2}`, `{"error":"id_exists","reason":2}`},
	} {
		master.send(gloomFrame(exchange[0]))
		for _, want := range exchange[1:] {
			if got := master.nextGloom("", ""); got != " < "+want {
				t.Errorf("%s: got %s, want %s", exchange[0], got, want)
			}
		}
	}
	for protocol, n := range map[string]struct{ refused, wrong int }{"faktory": {2, 3}, "gloom": {1, 1}} {
		r.wantMetric(`treadle_jobs_refused_total{protocol="`+protocol+`",reason="policy"}`, n.refused)
		r.wantMetric(`treadle_protocol_errors_total{kind="answered_error",protocol="`+protocol+`"}`, n.wrong)
	}
}
