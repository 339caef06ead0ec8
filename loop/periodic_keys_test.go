package loop

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/codec/periodic"
	served "treadle/loop/periodic"
)

// answers returns the reply to a CONFIG_GET of a key.
func answers(value uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{byte(periodic.Config)}, value)
}

// says checks the value of a key.
func (w *testConn) says(key string, value uint32) {
	w.t.Helper()
	w.ask(0xfffffffd, periodic.ConfigGet, str8(key), answers(value)...)
}

// page reads a page of HTTP.
func (r *testServer) page(path string) (status int, text string) {
	r.t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + r.http + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// wantReady checks the text of /readyz.
func (r *testServer) wantReady(status int, text string) {
	r.t.Helper()
	if got, said := r.page("/readyz"); got != status || said != text {
		r.t.Errorf("/readyz: %d %q, want %d %q", got, said, status, text)
	}
}

// TestFullDiskIsNamed: while the disk is full, clients, /readyz and the metrics name the disk, and workers are still
// welcome.
func TestFullDiskIsNamed(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{HTTP: "127.0.0.1:0"})
	c := r.greet(periodic.Client)
	c.says("refusing", 0)
	r.wantReady(200, "ok\n")
	d.free.Store(1)
	r.until("the disk to be full", r.journal.full)
	c.says("refusing", 1)
	c.says("treadle.refused", 0)
	c.ask(1, periodic.SubmitJob, job("f", "n"), byte(periodic.Unknown))
	c.says("treadle.refused", 1)
	r.wantMetric(`treadle_jobs_refused_total{protocol="periodic",reason="disk"}`, 1)
	r.wantReady(200, "degraded: refusing new jobs: the disk of --data has less free space than --min-free\n")
	d.free.Store(1 << 40)
	r.until("space to be back", func() bool { return !r.journal.full() })
	c.says("refusing", 0)
	r.wantReady(200, "ok\n")
}

// TestReadyEnds: /readyz fails when the server stops or its journal has failed.
func TestReadyEnds(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Drain: time.Hour})
	client, worker := r.greet(periodic.Client), r.greet(periodic.Worker)
	client.send(request(1, periodic.RunJob, job("f", "n")))
	worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob))
	handle, _ := assigned(t, worker.next())
	r.wantReady(200, "ok\n")
	r.end()
	r.refused()
	r.wantReady(503, "stopping\n")
	worker.send(request(3, periodic.WorkDone, handle))
	r.wait()

	s, err := newServer(Options{Data: NoData})
	if err != nil {
		t.Fatal(err)
	}
	s.failure.Store(&journalError{io.ErrShortWrite})
	if ok, text := s.ready(); ok || !strings.HasPrefix(text, "failed: the journal failed") {
		t.Errorf("with a journal that failed: %v %q", ok, text)
	}
}

// TestOutcomes: a client may ask for outcomes that the replies to its requests do not show.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{MaxFrame: 1 << 20})
	c, w := r.greet(periodic.Client), r.greet(periodic.Worker)
	c.says("treadle", 1)
	c.says("no such key", 0)
	c.says("max-frame", 1<<20)

	c.ask(1, periodic.RemoveJob, jobName("f", "n"), byte(periodic.Success))
	c.says("treadle.removed", 0)
	c.ask(1, periodic.SubmitJob, job("f", "n"), byte(periodic.Success))
	c.ask(1, periodic.RemoveJob, jobName("f", "n"), byte(periodic.Success))
	c.says("treadle.removed", 1)
	c.ask(1, periodic.DropFunc, str8("nothing"), byte(periodic.Success))
	c.says("treadle.removed", 0)
	c.ask(1, periodic.DropFunc, str8("f"), byte(periodic.Success))
	c.says("treadle.removed", 1)

	c.ask(1, periodic.ConfigSet, str8("cut"), byte(periodic.Unknown))
	c.says("treadle.refused", uint32(periodic.ReasonMalformed))
	c.ask(1, periodic.CanDo, str8("f"), byte(periodic.Unknown))
	c.says("treadle.refused", uint32(periodic.ReasonRole))

	c.ask(1, periodic.Load, slices.Concat(count(2), job("f", "a"), job("f", "b")), byte(periodic.Success))
	c.says("treadle.loaded", 2)
	c.ask(1, periodic.Load, slices.Concat(count(2), job("f", "c"), job("f", "d")[:3]), byte(periodic.Unknown))
	c.says("treadle.loaded", 1)
	c.says("treadle.refused", uint32(periodic.ReasonMalformed))

	c.send(request(7, periodic.RunJob, job("g", "n")))
	w.send(request(1, periodic.CanDo, str8("g")), request(2, periodic.GrabJob))
	assigned(t, w.next())
	c.says("treadle.gone", 0)
	c.send(request(8, periodic.RemoveJob, jobName("g", "n")))
	c.want(7)
	c.want(8, byte(periodic.Success))
	c.says("treadle.gone", 7)
}

// TestRunFailed: a job that failed is told from a result that reads "failed".
func TestRunFailed(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	c, worker := w.joinCRC(0, periodic.Client), w.workerCRC(0, "f")
	asks := func(want uint32) {
		t.Helper()
		c.crcBodies()
		c.send(crcRequest(9, periodic.ConfigGet, str8("treadle.failed")))
		if got := c.crcBodies(); len(got) != 1 || got[0] != "9:"+fmt.Sprintf("%x", answers(want)) {
			t.Errorf("asked for its last failure, it is told %q, want %d", got, want)
		}
	}
	worker.crcBodies()
	c.send(crcRequest(5, periodic.RunJob, job("f", "n")))
	worker.send(crcRequest(1, periodic.GrabJob), crcRequest(2, periodic.WorkDone, jobName("f", "n"), []byte("failed")))
	asks(0)
	c.send(crcRequest(6, periodic.RunJob, job("f", "n")))
	worker.send(crcRequest(1, periodic.GrabJob), crcRequest(2, periodic.WorkFail, jobName("f", "n")))
	asks(6)
}

// TestDumpLeavesOut: a client may ask how much its dump does not hold.
func TestDumpLeavesOut(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	c := w.join(0, periodic.Client)
	asks := func(key string, want uint32) {
		t.Helper()
		c.send(request(9, periodic.ConfigGet, str8(key)))
		if got := c.bodies(9); len(got) != 1 || got[0] != fmt.Sprintf("%x", answers(want)) {
			t.Errorf("%s: %q, want %d", key, got, want)
		}
	}
	asks("treadle.left.tasks", 0)
	c.send(request(1, periodic.SubmitJob, job("f", "n")), request(2, periodic.ConfigSet, configValue("poll-interval", 7)))
	w.dwork(`type: Create task { name: "a" origin: "o" } task { name: "b" origin: "o" }`)
	w.openGloom(0, true).say(`{"action":"submit","id":1,"type":"t","body":1}`)
	ktsCaller{w.Server, t}.does("createProject", "p")
	c.send(request(3, periodic.Dump))
	w.settle()
	c.frames()
	asks("treadle.left.tasks", 2)
	asks("treadle.left.jobs", 1)
	asks("treadle.left.projects", 1)
	asks("treadle.left.settings", 1)
}

// TestStatusDetails: delayed and waiting jobs are told apart on request; STATUS itself stays as it is.
func TestStatusDetails(t *testing.T) {
	t.Parallel()
	for _, crowd := range []int{0, served.LongStatus + 1} {
		w := newMemServer(t, Options{})
		c := w.join(0, periodic.Client)
		c.send(request(1, periodic.SubmitJob, job("f", "ready")), request(1, periodic.SubmitJob, later("f", "delayed", 1<<40)))
		for i := range crowd {
			c.send(request(1, periodic.SubmitJob, job(fmt.Sprint("crowd", i), "n")))
		}
		w.dwork(`type: Create task { name: "a" origin: "o" } task { name: "b" origin: "o" pred { name: "a" } }`)
		w.settle()
		c.frames()
		c.send(request(2, periodic.ConfigGet, str8("treadle.status")))
		w.settle()
		frames := c.frames()
		if len(frames) != 1 || frames[0].Body[0] != byte(periodic.Config) {
			t.Fatalf("answered with %d frames", len(frames))
		}
		lines := strings.Split(string(frames[0].Body[1:]), "\n")
		for _, want := range []string{"f,0,2,0,0,1,0,", "dwork,0,2,0,0,0,1,"} {
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
				t.Errorf("of %d lines none is %s: %.200q", len(lines), want, lines)
			}
		}
		if len(lines) != crowd+2 {
			t.Errorf("%d lines, want %d", len(lines), crowd+2)
		}
	}
}
