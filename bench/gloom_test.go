package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// malformedGloom gives the parser forms that the document does not have.
func malformedGloom(f func(p protocol, in string)) {
	for _, payload := range []string{
		`{"error":"id_exists","reason":"job-000102030405"}`,
		`{"ok":yes!}`,
		`{"ok":true,"id":"job-00010203040X"}`,
		`{"ok":true,"id":"jab-000102030405"}`,
		`{"id":"job-000102030405","body":"job-000102030406"}`, // the answer to another job
		`{"action":"job","id":"job-000102030406","type":"bench","body":` + someText + "}", // the body of another job
		`{"action":"job","id":"job-000102030405","type":"bunch","body":` + someText + "}",
		`{"action":"job","id":"job-000102030405","type":"bench","body":` + someText + "]",
	} {
		f(newGloom(), string(appendGloom(nil, payload)))
	}
	f(newGloom(), "\x00RES")
	f(newGloom(), "\x80\x00\x00\x00")
}

// TestTextWorkload checks the round trip, that it is JSON, and that a damaged workload is not accepted.
func TestTextWorkload(t *testing.T) {
	workload := bytes.Clone(textFiller[:])
	putTextWorkload(workload, someID, someTime)
	if string(workload) != someText || !json.Valid(workload) || len(workload) != workloadLen {
		t.Fatalf("got %s", workload)
	}
	if id, sent, ok := parseTextWorkload(workload); id != someID || sent != someTime || !ok {
		t.Errorf("got id %d, time %d, %v", id, sent, ok)
	}
	for at := range workload {
		damaged := bytes.Clone(workload)
		damaged[at] = 'G'
		if _, _, ok := parseTextWorkload(damaged); ok {
			t.Errorf("%s was accepted", damaged)
		}
	}
	if _, _, ok := parseTextWorkload(workload[1:]); ok {
		t.Error("a cut workload was accepted")
	}
}

// The ways in which the fake Gloom server can be told to misbehave, at its tenth job.
const (
	doublesAnswer = "doubles an answer"
	dropsAnswer   = "drops an answer"
	doublesAck    = "doubles an acknowledgement"
	dropsAck      = "drops an acknowledgement"
	answersFirst  = "answers before it acknowledges"
	doublesJob    = "doubles a job"
	hurries       = "pushes before it acknowledges"
	dropsDone     = "drops the acknowledgement of a response"
)

// fakeGloom is as little of a Gloom server as the load generator needs: one master, one type, one lock.
type fakeGloom struct {
	flaw string

	mu     sync.Mutex
	count  int // submits
	master net.Conn
	queue  []string            // `"id":...,"type":...,"body":...}` of jobs that wait
	idle   []net.Conn          // slaves without a job
	jobs   map[net.Conn]string // running, by slave
}

func (f *fakeGloom) serve(t *testing.T, talk func(conn net.Conn, payload string)) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			go f.converse(conn, talk)
		}
	}()
	return listener.Addr().String()
}

func (f *fakeGloom) converse(conn net.Conn, talk func(conn net.Conn, payload string)) {
	defer f.leave(conn)
	r := bufio.NewReader(conn)
	for {
		var size [gloomHeaderLen]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(r, payload); err != nil {
			return
		}
		f.mu.Lock()
		talk(conn, string(payload))
		f.push()
		f.mu.Unlock()
	}
}

// leave puts the job of a slave that went back into the queue.
func (f *fakeGloom) leave(conn net.Conn) {
	conn.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = slices.DeleteFunc(f.idle, func(c net.Conn) bool { return c == conn })
	if job, ok := f.jobs[conn]; ok {
		delete(f.jobs, conn)
		f.queue = append(f.queue, job)
		f.push()
	}
}

func (f *fakeGloom) send(conn net.Conn, payload string) { _, _ = conn.Write(appendGloom(nil, payload)) }

// submit takes `{"action":"submit","id":ID,...`.
func (f *fakeGloom) submit(conn net.Conn, payload string) {
	_, job, _ := strings.Cut(payload, `submit",`)
	id := job[len(`"id":`):][:jobNameLen+2]
	f.master, f.count = conn, f.count+1
	tenth := f.count == 10
	if tenth && f.flaw == answersFirst {
		f.send(conn, fmt.Sprintf(`{"id":%s,"body":%s}`, id, id))
	}
	if !tenth || f.flaw != dropsAck {
		f.send(conn, fmt.Sprintf(`{"ok":true,"id":%s}`, id))
	}
	if tenth && f.flaw == doublesAck {
		f.send(conn, fmt.Sprintf(`{"ok":true,"id":%s}`, id))
	}
	f.queue = append(f.queue, job)
	if tenth && f.flaw == doublesJob {
		f.queue = append(f.queue, job)
	}
}

// slave takes a join, or `{"action":"respond","body":BODY}`.
func (f *fakeGloom) slave(conn net.Conn, payload string) {
	job := f.jobs[conn]
	id, _, _ := strings.Cut(strings.TrimPrefix(job, `"id":`), ",")
	tenth := id == `"job-000000000009"`
	if tenth && f.flaw == hurries {
		f.send(conn, `{"action":"job",`+job)
	}
	if !tenth || f.flaw != dropsDone {
		f.send(conn, gloomOK)
	}
	if _, body, ok := strings.Cut(payload, `respond",`); ok && (!tenth || f.flaw != dropsAnswer) {
		f.send(f.master, fmt.Sprintf(`{"id":%s,%s`, id, body))
		if tenth && f.flaw == doublesAnswer {
			f.send(f.master, fmt.Sprintf(`{"id":%s,%s`, id, body))
		}
	}
	delete(f.jobs, conn)
	f.idle = append(f.idle, conn)
}

func (f *fakeGloom) push() {
	for len(f.queue) > 0 && len(f.idle) > 0 {
		f.send(f.idle[0], `{"action":"job",`+f.queue[0])
		f.jobs[f.idle[0]] = f.queue[0]
		f.idle, f.queue = f.idle[1:], f.queue[1:]
	}
}

// nothingLeft is asked for the jobs left.
type nothingLeft struct{ protocol }

func (nothingLeft) pending(net.Conn) (int, error) { return 0, nil }

// fakeGloomContender is a Gloom server in this process.
func fakeGloomContender(t *testing.T, flaw string) (contender, *server) {
	f := &fakeGloom{flaw: flaw, jobs: map[net.Conn]string{}}
	s := &server{pid: os.Getpid(), network: "tcp", stop: func() {}, said: func() string { return "" }}
	s.masters, s.slaves = f.serve(t, f.submit), f.serve(t, f.slave)
	s.address = s.masters
	c := contender{name: "treadle", protocol: nothingLeft{newPeriodicText()}, ours: true, gloom: true}
	return c, s
}

func someGloomRows() []row {
	return []row{
		{name: "flow", section: gloomSection, load: load{connections: 1, workers: 3, depth: 7}, fixed: 500},
		{name: "short", section: gloomSection, kind: drain, load: gloomDrain, fixed: 200, passes: 3},
		{name: "long", section: gloomSection, kind: drain, load: gloomDrain, fixed: 800, against: "short"},
	}
}

// TestGloomRun takes a small run of each kind of Gloom row.
func TestGloomRun(t *testing.T) {
	t.Parallel()
	var field []contender
	c, s := fakeGloomContender(t, flawless)
	c.start = startedAs(s)
	field = append(field, c)
	settings := settings{Rounds: 2, Scale: 1, Rows: regexp.MustCompile(""), Peers: regexp.MustCompile("")}
	settings.Out = filepath.Join(t.TempDir(), "latest.json")
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), settings, someGloomRows(), field, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	text, err := os.ReadFile(settings.Out)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil || len(r.Medians) != 3 {
		t.Fatalf("%v, %d medians", err, len(r.Medians))
	}
	flow, short := r.Medians[0], r.Medians[1]
	if flow.Section != gloomSection || flow.Answer.P50 < flow.ToWorker.P50 || flow.ToWorker.P50 == 0 || flow.Submit.P999 == 0 {
		t.Errorf("got %+v", flow)
	}
	if short.Jobs != 3*200 || short.JobsPerSecond == 0 || short.ServerCPU == 0 {
		t.Errorf("got %+v", short)
	}
	for _, want := range []string{"Gloom\n\nrow ", "answer p50", "\nlong  short "} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

// TestGloomFlaws sees to it that each way of losing or doubling something is noticed.
func TestGloomFlaws(t *testing.T) {
	f := func(flaw, want string) {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			c, s := fakeGloomContender(t, flaw)
			r := someGloomRows()[0]
			l := r.load
			l.jobs = 100
			trial := newTrial(t.Context(), r.sides(c, s), l)
			defer trial.close()
			if err := errors.Join(trial.hireWorkers(), trial.hireProducers()); err != nil {
				t.Fatal(err)
			}
			_, err := trial.produceAndWork()
			if err == nil {
				err = trial.settle()
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
	f(doublesAnswer, "answers: job 9 arrived a second time")
	f(dropsAnswer, "answers: 1 of 100 jobs never arrived; the first is job 9")
	f(doublesAck, "acknowledgements: job 9 arrived a second time")
	f(dropsAck, "job 9 was answered before it was acknowledged")
	f(answersFirst, "job 9 was answered before it was acknowledged")
	f(doublesJob, "job 9 arrived a second time")
	f(hurries, "a job came before the acknowledgement that unlocks it")
	f(dropsDone, "a job came before the acknowledgement that unlocks it")
}

// TestMasterKeepsItsBound fills to the bound, and goes on by one for each answer.
func TestMasterKeepsItsBound(t *testing.T) {
	m := newMaster(newGloom(), load{jobs: 10, depth: 3}, answered)
	m.open(10, nil)
	f := func(payload string, next int) {
		t.Helper()
		if _, _, err := m.turn(20, appendGloom(nil, payload), nil); err != nil || m.next != next {
			t.Fatalf("%s: %d submits, %v; want %d", payload, m.next, err, next)
		}
	}
	f(`{"ok":true,"id":"job-000000000000"}`, 3)
	f(`{"id":"job-000000000000","body":"job-000000000000"}`, 4)
	if _, _, err := m.turn(30, appendGloom(nil, `{"ok":true,"id":"job-000000000004"}`), nil); err == nil {
		t.Error("a job was acknowledged that was not submitted")
	}
	if _, _, err := m.turn(30, appendGloom(nil, gloomOK), nil); !errors.Is(err, errMalformed) {
		t.Errorf("a master was told %s: %v", gloomOK, err)
	}
}
