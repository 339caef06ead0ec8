package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"treadle/bench/load"
	"treadle/bench/peer"
)

// gloomOK is the acknowledgement without an id.
const gloomOK = `{"ok":true}`

// appendGloom appends one frame.
func appendGloom(dst []byte, payload string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(payload))), payload...)
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
		var size [4]byte
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
	id := job[len(`"id":`):][:load.JobNameLen+2]
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
type nothingLeft struct{ load.Protocol }

func (nothingLeft) Greet(net.Conn, load.Role) error { return nil }
func (nothingLeft) Pending(net.Conn) (int, error)   { return 0, nil }

// fakeGloomPeer is a Gloom server in this process.
func fakeGloomPeer(t *testing.T, flaw string) (peer.Contender, *peer.Server) {
	f := &fakeGloom{flaw: flaw, jobs: map[net.Conn]string{}}
	s := &peer.Server{PID: os.Getpid(), Network: "tcp", Stop: func() {}, LastOutput: func() string { return "" }}
	s.Masters, s.Slaves = f.serve(t, f.submit), f.serve(t, f.slave)
	s.Address = s.Masters
	c := peer.Contender{Name: "treadle", Protocol: nothingLeft{peer.NewPeriodic(peer.PeriodicOptions{Text: true})}}
	return c, s
}

func someGloomRows() []row {
	return []row{
		{Name: "flow", Section: gloomSection, Load: load.Load{Connections: 1, Workers: 3, Depth: 7}, Jobs: alone(500)},
		{Name: "short", Section: gloomSection, Load: load.Load{Connections: 1, Workers: 8, Depth: 512}, Jobs: alone(200), Against: "flow"},
	}
}

// TestGloomRun takes a small run of each kind of Gloom row.
func TestGloomRun(t *testing.T) {
	t.Parallel()
	c, s := fakeGloomPeer(t, flawless)
	c.Start = func(context.Context) (*peer.Server, error) { return s, nil }
	r, stdout, _ := runSmall(t, someGloomRows(), []peer.Contender{c})
	if len(r.Medians) != 2 {
		t.Fatalf("%d medians", len(r.Medians))
	}
	flow, short := r.Medians[0], r.Medians[1]
	f := flow.Figures
	if flow.Section != gloomSection || f["answer p50"] < f["to worker p50"] || f["to worker p50"] == 0 || f["submit p99.9"] == 0 {
		t.Errorf("got %+v", flow)
	}
	if short.Jobs != 200 || short.Figures["jobs/s"] == 0 || short.Figures["CPU"] == 0 {
		t.Errorf("got %+v", short)
	}
	for _, want := range []string{"Gloom\n\nrow ", "answer p50", "\nshort  flow "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
}

// TestGloomFlaws sees to it that each way of losing or doubling something is noticed.
func TestGloomFlaws(t *testing.T) {
	f := func(flaw, want string) {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			c, s := fakeGloomPeer(t, flaw)
			r := someGloomRows()[0]
			l := r.Load
			l.Jobs, l.Stall = 100, 2*time.Second
			trial := load.New(t.Context(), r.endpoints(c, s), l)
			defer trial.Close()
			if err := trial.Connect(); err != nil {
				t.Fatal(err)
			}
			_, err := trial.ProduceAndWork()
			if err == nil {
				err = trial.Settle()
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
