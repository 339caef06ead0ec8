package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// scheduler is a built server that speaks both versions of kts46.
type scheduler struct {
	*process
	xml, json string // addresses

	killAt int // the request of version 2 beside which the server is killed, 0: none
	after  time.Duration
}

func startScheduler(t *testing.T, dir string, args ...string) *scheduler {
	t.Helper()
	s := &scheduler{process: start(t, false, append([]string{"serve", "--periodic", "unix://" + filepath.Join(dir, "p"), "--gloom-masters", "off", "--gloom-slaves", "off",
		"--dwork", "off", "--kts46", "tcp://127.0.0.1:0", "--kts46-json", "tcp://127.0.0.1:0", "--http", "off", "--data", filepath.Join(dir, "data")}, args...)...)}
	_, s.xml, _ = strings.Cut(s.until("protocol=kts46 "), "address=tcp://")
	_, s.json, _ = strings.Cut(s.until("protocol=kts46-json "), "address=tcp://")
	s.drain()
	return s
}

// says runs a client command and wants its output and exit code; in want * is any text.
func (s *scheduler) says(want string, code int, args ...string) {
	s.t.Helper()
	out, errs, got := treadle(s.t, "", append([]string{"kts46", "-s", s.xml}, args...)...)
	if !like(out+errs, want) || got != code {
		s.t.Errorf("%q: exit code %d\n%s%s\nwant exit code %d\n%s", args, got, out, errs, code, want)
	}
}

// ask sends a request of version 2 and returns the reply; err when none came.
func (s *scheduler) ask(format string, args ...any) (string, error) {
	if s.killAt--; s.killAt == 0 {
		time.AfterFunc(s.after, func() { _ = s.Process.Signal(syscall.SIGKILL) })
	}
	answer, err := http.Post("http://"+s.json+"/jsonrpc", "application/x-www-form-urlencoded", strings.NewReader(fmt.Sprintf(format, args...)))
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(bytes.TrimSpace(text)), err
}

// TestKts46Commands uses every command of treadle kts46 as a user does.
func TestKts46Commands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startScheduler(t, dir)
	s.says("PROJECT  JOB  DONE  TOTAL\n", 0, "status")
	s.says("", 0, "status", "--json")
	s.says("", 0, "add-project", "traffic")
	s.says("treadle: Couldn't create project because it already exists. Project name: traffic.\n", 1, "add-project", "traffic")
	s.says("PROJECT  JOB  DONE  TOTAL\ntraffic  -    -     -\n", 0, "status")
	file := filepath.Join(dir, "north.yaml")
	if err := os.WriteFile(file, []byte("simulationParameters: {duration: 10, stepDuration: 1, batchLength: 4}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.says("", 0, "add-job", "traffic", "north", "@"+file)
	s.says("", 0, "add-job", "traffic", "south", "simulationParameters: {duration: 1, stepDuration: 1, batchLength: 1}")
	s.says("treadle: the definition needs simulationParameters*\n", 1, "add-job", "traffic", "x", "nothing: here")
	s.says("treadle: Couldn't get job 'west' from project 'traffic' because it doesn't exists.\n", 1, "run", "traffic", "west")
	s.says("", 0, "run", "traffic", "north", "south")
	s.says("WORKER  PROJECT  JOB  LAST UPDATE\n", 0, "tasks")
	for _, worker := range []string{"w1", "w2"} {
		if reply, err := s.ask(`{"method":"getTask","params":["%s",["simulation"]],"id":1}`, worker); err != nil || !strings.Contains(reply, `"sig"`) {
			t.Fatal(reply, err)
		}
	}
	s.says("WORKER  PROJECT  JOB    LAST UPDATE\nw1      traffic  north  20*Z\nw2      traffic  south  20*Z\n", 0, "tasks")
	s.says("{\"worker\":\"w1\",*}\n{*}\n", 0, "tasks", "--json")
	s.says("", 0, "restart", "--older", "1h")
	s.says("w1 traffic north\ntreadle: worker \"nobody\" has no task to restart\n", 1, "restart", "w1", "nobody")
	s.says("treadle: name workers, or an age with --older\n", 2, "restart")
	s.says("PROJECT  JOB    DONE  TOTAL\ntraffic  north  0     10\ntraffic  south  0     1\n", 0, "status", "traffic")
	s.says("treadle: Couldn't get project 'x'*\n", 1, "status", "x")
	s.says("treadle: cannot talk to tcp://"+s.json+": it is no XML-RPC of the scheduler, it answered 404 Not Found: Unknown path! (is it another protocol's? By default port 46210 is that of kts46's XML-RPC; -H or TREADLE_KTS46 names the server)\n", 3, "-s", s.json, "status")
	s.stop()
	s.says("treadle: cannot connect to tcp://"+s.xml+": connection refused (is `treadle serve` running? -H or TREADLE_KTS46 names the server)\n", 3, "status")
}

// simulate does batches as a worker of version 2 until all are done or the server is gone.
// done is how many it has asked to be counted, sure of how many that was acknowledged.
func (s *scheduler) simulate(steps int, done, sure *int) {
	s.t.Helper()
	reply, err := s.ask(`{"method":"getCurrentTasks","id":1}`)
	if err != nil {
		return
	}
	var held struct{ Result json.RawMessage }
	if err := json.Unmarshal([]byte(reply), &held); err != nil {
		s.t.Fatalf("%s: %v", reply, err)
	}
	if _, err := s.ask(`{"method":"restartTasks","params":[%s],"id":1}`, held.Result); err != nil { // the last life's
		return
	}
	for {
		reply, err := s.ask(`{"method":"getTask","params":["w",["simulation"]],"id":1}`)
		if err != nil {
			return
		}
		var task struct {
			Result struct {
				Empty      bool
				StartState int
				Sig        string
			}
		}
		if err := json.Unmarshal([]byte(reply), &task); err != nil {
			s.t.Fatalf("%s: %v", reply, err)
		}
		start := task.Result.StartState
		switch {
		case task.Result.Empty && *done < steps:
			s.t.Fatalf("%d steps are done, and no task is left", *done)
		case task.Result.Empty:
			*sure = *done
			return
		case start != *sure && start != *done:
			s.t.Fatalf("step %d is next, %d are done, %d for sure", start, *done, *sure)
		}
		*done, *sure = start, start
		if reply, err = s.ask(`{"method":"acceptTask","params":["w","%s"],"id":1}`, task.Result.Sig); err != nil {
			return
		}
		if err := json.Unmarshal([]byte(reply), &task); err != nil {
			s.t.Fatalf("%s: %v", reply, err)
		}
		*done++
		if reply, err = s.ask(`{"method":"taskFinished","params":["w","%s"],"id":1}`, task.Result.Sig); err != nil {
			return
		}
		if !strings.Contains(reply, "success") {
			s.t.Fatal(reply)
		}
		*sure = *done
	}
}

// TestKts46Kill does a job with a server that is killed again and again: no step is done
// twice after its end was acknowledged, none is left out, and the statistics are last.
func TestKts46Kill(t *testing.T) {
	t.Parallel()
	const steps, least = 300, 4
	random := rand.New(rand.NewPCG(46, 0))
	dir := t.TempDir()
	done, sure, kills := 0, 0, 0
	for ; sure < steps; kills++ {
		s := startScheduler(t, dir)
		if kills == 0 {
			s.says("", 0, "add-project", "p")
			s.says("", 0, "add-job", "p", "j", fmt.Sprintf("simulationParameters: {duration: %d, stepDuration: 1, batchLength: 1}", steps))
			if reply, err := s.ask(`{"method":"addTask","params":["p","j"],"id":1}`); err != nil || !strings.Contains(reply, "success") {
				t.Fatal(reply, err)
			}
		}
		if kills < least || random.IntN(3) > 0 {
			s.killAt, s.after = 1+random.IntN(3*steps/least/2), time.Duration(random.IntN(1000))*time.Microsecond
		}
		s.simulate(steps, &done, &sure)
		_ = s.Process.Signal(syscall.SIGKILL)
		_ = s.Wait()
	}
	s := startScheduler(t, dir)
	s.says(fmt.Sprintf("PROJECT  JOB  DONE  TOTAL\np        j    %d   %d\n", steps, steps), 0, "status")
	for _, kind := range []string{"throughput", "idleTimes", "basicStatistics"} {
		if reply, err := s.ask(`{"method":"getTask","params":["%s",["%s"]],"id":1}`, kind, kind); err != nil || !strings.Contains(reply, `"type":"`+kind+`"`) {
			t.Error(reply, err)
		}
	}
	s.stop()
	t.Logf("%d kills", kills)
	if kills < least {
		t.Errorf("%d kills prove little", kills)
	}
}
