package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// someRows has a row of each kind, small.
func someRows() []row {
	return []row{
		{name: "sync", load: load{connections: 3, depth: 1}, variants: []string{overUnix, inCRC}, fixed: 500},
		{name: "pipe", load: load{connections: 2, depth: 16}, fixed: 5000},
		{name: "paced", load: load{connections: 3, depth: 1, rate: 5000}, fixed: 500},
		{name: "drain", kind: drain, load: load{connections: 2, depth: 16}, fixed: 2000, once: true},
		{name: "queued", kind: memory, load: load{connections: 2, depth: 16}, fixed: 20000, once: true},
		{name: "idle", kind: idle, fixed: 200, once: true},
		{name: "behind", section: aloneSection, load: load{connections: 2, depth: 16, ready: 300}, fixed: 3000, once: true},
		{name: "crowd", section: aloneSection, load: load{connections: 2, depth: 1, idlers: 20}, fixed: 300, once: true},
		{name: "large", section: payloadSection, load: load{connections: 2, depth: 2, payload: 200 << 10}, fixed: 200, once: true},
	}
}

// TestRun takes a whole small run with two fake servers as child processes: every kind of row, both kinds of socket,
// tables and file.
func TestRun(t *testing.T) {
	ours, peer := fakeContender(t, "treadle", flawless, ""), fakeContender(t, "peer", flawless, "")
	peer.ours = false
	crc := fakeContender(t, "treadle crc", flawless, "")
	crc.variant, crc.base, crc.protocol = inCRC, "treadle", newPeriodicCRC()
	field := []contender{ours, fakeContender(t, "treadle unix", flawless, "fake.sock"), crc, peer}
	s := settings{Rounds: 2, Scale: 1, Rows: regexp.MustCompile(""), Peers: regexp.MustCompile("")}
	s.Out = filepath.Join(t.TempDir(), "latest.json")
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), s, someRows(), field, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	text, err := os.ReadFile(s.Out)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Samples) != 2*(4+2+2)+3*2+3 || len(r.Medians) != 4+5*2+3 {
		t.Errorf("got %d samples and %d medians", len(r.Samples), len(r.Medians))
	}
	for _, m := range r.Medians {
		timed := m.JobsPerSecond > 0 && m.DriverCPU > 0
		answered := m.Submit.P50 > 0 && m.ToWorker.P999 >= m.ToWorker.P50
		switch m.Row {
		case "queued":
			if m.QueuedMB < workloadLen/4 {
				t.Errorf("%+v: less memory than the jobs have", m)
			}
		case "idle", "drain":
		default:
			if !timed || !answered {
				t.Errorf("%+v: something was not measured", m)
			}
		}
	}
	for _, ratio := range []string{"treadle unix / peer", "treadle crc / treadle "} {
		if !strings.Contains(stdout.String(), ratio) {
			t.Errorf("nothing about %s in\n%s", ratio, stdout.String())
		}
	}
	if strings.Contains(stdout.String(), "treadle crc / peer") || !strings.Contains(stderr.String(), "[22/25] idle, peer") {
		t.Errorf("stdout:\n%s\nstderr:\n%s", stdout.String(), stderr.String())
	}
}

// TestFlaws sees to it that each way of losing or doubling a job fails the run, and says why.
func TestFlaws(t *testing.T) {
	f := func(flaw, want string) {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			c := fakeContender(t, "treadle", flaw, "")
			s := settings{Rounds: 1, Scale: 1, Rows: regexp.MustCompile("sync"), Peers: regexp.MustCompile("")}
			s.Out = filepath.Join(t.TempDir(), "latest.json")
			err := run(t.Context(), s, someRows(), []contender{c}, &bytes.Buffer{}, &bytes.Buffer{})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if _, err := os.Stat(s.Out); err == nil {
				t.Error("a failed run left results")
			}
		})
	}
	f(duplicates, "arrived a second time")
	f(crashes, "the tenth job was too much")
	f(refuses, "ended at once: this server does not want to")
}

// TestStall gives up soon on a server that lost a job, and on one that never counts a job as done.
func TestStall(t *testing.T) {
	f := func(flaw, want string) {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			running, err := fakeContender(t, "treadle", flaw, "").start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer running.stop()
			l := load{connections: 2, depth: 4, jobs: 100}
			speak := side{protocol: newPeriodic(), network: running.network, address: running.address}
			if flaw == withholds {
				speak.protocol = newPeriodicCRC()
			}
			trial := newTrial(t.Context(), sides{speak, speak, speak}, l)
			defer trial.close()
			if err := errors.Join(trial.hireWorkers(), trial.hireProducers()); err != nil {
				t.Fatal(err)
			}
			_, err = trial.produceAndWork()
			if err == nil {
				err = trial.settle()
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
	f(loses, "1 of 100 jobs never arrived; the first is job")
	f(forgets, "the server still holds 100 jobs")
	f(withholds, "1 completions were not acknowledged: nothing moves")
}

// TestGreetingIsChecked connects to a server that speaks another protocol.
func TestGreetingIsChecked(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		}
	}()
	for _, p := range []protocol{newPeriodic(), newPeriodicCRC(), newBeanstalkd(), newGearman(), newRedis()} {
		speak := side{protocol: p, network: "tcp", address: listener.Addr().String()}
		trial := newTrial(t.Context(), sides{speak, speak, speak}, load{})
		if _, err := trial.dial(working); !errors.Is(err, errMalformed) {
			t.Errorf("%T: got %v, want errMalformed", p, err)
		}
		trial.close()
	}
}

// TestInterrupt ends a run in the middle: the error says so, and the server is gone.
func TestInterrupt(t *testing.T) {
	c := fakeContender(t, "treadle", flawless, "")
	ctx, cancel := context.WithCancel(t.Context())
	var started *server
	begin := c.start
	c.start = func(ctx context.Context) (s *server, err error) {
		started, err = begin(ctx)
		cancel()
		return started, err
	}
	_, err := measure(ctx, someRows()[1], c, 1e9)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if spent, err := cpuTime(started.pid); err == nil {
		t.Errorf("the server's process is there, and has used %v", spent)
	}
}
