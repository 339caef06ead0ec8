package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/bench/load"
	"treadle/bench/peer"
)

// fakes are a Treadle with some of its variants, and what goes for redis, with so many jobs each.
func fakes(jobs int, variants ...string) map[string]int {
	all := map[string]int{"treadle": jobs, "redis": jobs}
	for _, v := range variants {
		all[v] = jobs
	}
	return all
}

// alone gives jobs to Treadle alone.
func alone(jobs int) map[string]int { return map[string]int{"treadle": jobs} }

// rowsOf returns the rows of one section.
func rowsOf(of section) []row {
	return slices.DeleteFunc(rows(), func(r row) bool { return r.Section != of })
}

// someRows has a row of each kind, small.
func someRows() []row {
	return []row{
		{Name: "sync", Load: load.Load{Connections: 3, Depth: 1}, Jobs: fakes(500, "treadle unix", "treadle crc")},
		{Name: "pipe", Load: load.Load{Connections: 2, Depth: 16}, Jobs: fakes(5000)},
		{Name: "paced", Load: load.Load{Connections: 3, Depth: 1, Rate: 5000}, Jobs: fakes(500)},
		{Name: "drain", Kind: kindDrain, Load: load.Load{Connections: 2, Depth: 16}, Jobs: fakes(2000), Rounds: 1},
		{Name: "queued", Kind: kindMemory, Load: load.Load{Connections: 2, Depth: 16}, Jobs: fakes(20000), Rounds: 1, Rest: 1},
		{Name: "idle", Kind: kindIdle, Jobs: fakes(200), Rounds: 1},
		{Name: "behind", Section: "alone", Load: load.Load{Connections: 2, Depth: 16, Ready: 300}, Jobs: alone(3000), Rounds: 1},
		{Name: "crowd", Section: "alone", Load: load.Load{Connections: 2, Depth: 1}, Idle: 20, Jobs: alone(300), Rounds: 1},
		{Name: "large", Section: "payload", Load: load.Load{Connections: 2, Depth: 2}, Payload: 200 << 10, Jobs: alone(200), Rounds: 1},
	}
}

// runSmall takes two rounds of the rows, and returns the saved report and the output.
func runSmall(t *testing.T, list []row, servers []peer.Contender) (r *report, stdout, stderr string) {
	t.Helper()
	s := settings{Rounds: 2, Scale: 1, Rows: regexp.MustCompile(""), Out: filepath.Join(t.TempDir(), "latest.json")}
	var out, progress bytes.Buffer
	if err := run(t.Context(), s, list, servers, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	r, err := readReport(s.Out)
	if err != nil {
		t.Fatal(err)
	}
	return r, out.String(), progress.String()
}

// TestRun takes a whole small run with two fake servers as child processes: every kind of row, both kinds of socket,
// tables and file.
func TestRun(t *testing.T) {
	crc := fakePeer(t, "treadle crc", flawless, "")
	crc.Protocol = peer.NewPeriodic(peer.PeriodicOptions{CRC: true})
	servers := []peer.Contender{
		fakePeer(t, "treadle", flawless, ""), fakePeer(t, "treadle unix", flawless, "fake.sock"), crc,
		fakePeer(t, "redis", flawless, ""),
	}
	r, stdout, stderr := runSmall(t, someRows(), servers)
	if len(r.Samples) != 2*(4+2+2)+3*2+3 || len(r.Medians) != 4+5*2+3 {
		t.Errorf("got %d samples and %d medians", len(r.Samples), len(r.Medians))
	}
	for _, m := range r.Medians {
		f := m.Figures
		timed := f["jobs/s"] > 0 && f["load CPU"] > 0
		answered := f["submit p50"] > 0 && f["to worker p99.9"] >= f["to worker p50"]
		switch m.Row {
		case "queued":
			if f["MB/1M"] < load.WorkloadLen/4 {
				t.Errorf("%+v: less memory than the jobs have", m)
			}
		case "idle", "drain":
		default:
			if !timed || !answered {
				t.Errorf("%+v: something was not measured", m)
			}
		}
	}
	for _, ratio := range []string{"treadle unix / redis", "treadle crc / treadle "} {
		if !strings.Contains(stdout, ratio) {
			t.Errorf("nothing about %s in\n%s", ratio, stdout)
		}
	}
	if strings.Contains(stdout, "treadle crc / redis") || !strings.Contains(stderr, "[22/25] idle, redis") {
		t.Errorf("stdout:\n%s\nstderr:\n%s", stdout, stderr)
	}
}

// TestFlaws sees to it that each way of losing or doubling a job fails the run, and says why.
func TestFlaws(t *testing.T) {
	f := func(flaw, want string) {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			c := fakePeer(t, "treadle", flaw, "")
			s := settings{Rounds: 1, Scale: 1, Rows: regexp.MustCompile("sync")}
			s.Out = filepath.Join(t.TempDir(), "latest.json")
			err := run(t.Context(), s, someRows(), []peer.Contender{c}, &bytes.Buffer{}, &bytes.Buffer{})
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
			running, err := fakePeer(t, "treadle", flaw, "").Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer running.Stop()
			l := load.Load{Connections: 2, Depth: 4, Jobs: 100, Stall: 2 * time.Second}
			speak := load.Endpoint{Protocol: peer.NewPeriodic(peer.PeriodicOptions{}), Network: running.Network, Address: running.Address}
			if flaw == withholds {
				speak.Protocol = peer.NewPeriodic(peer.PeriodicOptions{CRC: true})
			}
			trial := load.New(t.Context(), load.Endpoints{Produce: speak, Work: speak, Ask: speak}, l)
			defer trial.Close()
			if err := trial.Connect(); err != nil {
				t.Fatal(err)
			}
			_, err = trial.ProduceAndWork()
			if err == nil {
				err = trial.Settle()
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
	greeted := 0
	for _, p := range peer.All("treadle") {
		if p.Protocol == nil {
			continue
		}
		greeted++
		to := load.Endpoint{Protocol: p.Protocol, Network: "tcp", Address: listener.Addr().String()}
		if _, err := to.Dial(load.Working); !errors.Is(err, load.ErrMalformed) {
			t.Errorf("%s: got %v, want ErrMalformed", p.Name, err)
		}
	}
	if greeted < 7 {
		t.Errorf("%d were greeted", greeted)
	}
}

// TestInterrupt ends a run in the middle: the error says so, and the server is gone.
func TestInterrupt(t *testing.T) {
	c := fakePeer(t, "treadle", flawless, "")
	ctx, cancel := context.WithCancel(t.Context())
	var started *peer.Server
	begin := c.Start
	c.Start = func(ctx context.Context) (s *peer.Server, err error) {
		started, err = begin(ctx)
		cancel()
		return started, err
	}
	_, err := measure(ctx, someRows()[1], c, 1e9)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if spent, err := peer.CPUTime(started.PID); err == nil {
		t.Errorf("the server's process is there, and has used %v", spent)
	}
}
