package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"treadle/codec/periodic"
	"treadle/loop/client"
	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/store"
)

// disbatchSite is a server that is a node of a Disbatch site, on a fake MongoDB.
type disbatchSite struct {
	*testServer
	fake   *mongotest.Server
	store  *store.Store
	queue  store.Queue
	slaves string
}

// newDisbatchSite starts one with a queue whose tasks are jobs of the function "work".
func newDisbatchSite(t *testing.T, more string) *disbatchSite {
	t.Helper()
	fake, err := mongotest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Stop)
	path := filepath.Join(t.TempDir(), "config.json")
	text := fmt.Sprintf(`{"mongohost": %q, "treadle_plugins": {"P": {"kind": "function", "function": "work"%s}}}`, fake.Address(), more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	site, err := config.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &disbatchSite{fake: fake}
	if s.store, err = store.Open(site.Connection(config.ComponentWeb)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.InsertQueue(t.Context(), "q", "P"); err != nil {
		t.Fatal(err)
	}
	if s.queue, err = s.store.Queue(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	limit := 3
	if _, err := s.store.UpdateQueue(t.Context(), &s.queue, store.QueueChange{Limit: &limit}); err != nil {
		t.Fatal(err)
	}
	s.testServer = startServer(t, Options{
		Disbatch: DisbatchOptions{Config: path, Node: "me"},
		Gloom:    GloomOptions{Slaves: []string{"unix://" + filepath.Join(t.TempDir(), "g")}, Masters: []string{"off"}}, Drain: 5 * time.Second,
	})
	t.Cleanup(s.store.Close) // before the server's end: nothing of it may be left then
	for _, l := range s.listening {
		if l.Setting != "periodic" {
			s.slaves = l.Address
		}
	}
	return s
}

// add makes one task.
func (s *disbatchSite) add() {
	s.t.Helper()
	if _, err := s.store.InsertTasks(s.t.Context(), &s.queue, []any{map[string]any{"user": "a"}}); err != nil {
		s.t.Fatal(err)
	}
}

// wants waits until the only task stands so; stdout and stderr are parts of it.
func (s *disbatchSite) wants(status int, stdout, stderr string) {
	s.t.Helper()
	var last store.Task
	text := func(name string) string {
		v, _ := last.Raw.Lookup(name).StringValueOK()
		return v
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(patience); ; <-ticker.C {
		tasks, err := s.store.Search(context.Background(), map[string]any{}, store.SearchOptions{})
		if err == nil && len(tasks) == 1 {
			if last = tasks[0]; last.Status == status && text("stdout") == stdout && strings.Contains(text("stderr"), stderr) {
				return
			}
		}
		if time.Now().After(end) {
			s.t.Fatalf("the task is %s, %v; want status %d, stdout %q, stderr %q", last.Raw, err, status, stdout, stderr)
		}
	}
}

func (s *disbatchSite) worker() *client.Worker {
	s.t.Helper()
	w, err := client.DialWorker(s.t.Context(), "unix://"+s.unix, client.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Close)
	if err := w.CanDo(s.t.Context(), "work"); err != nil {
		s.t.Fatal(err)
	}
	return w
}

func grab(t *testing.T, w *client.Worker) *client.Assignment {
	t.Helper()
	a, err := w.Grab(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestDisbatchTaskAtPeriodicWorker: a task of a function is done by a Periodic worker: its name is the id, its
// workload the document, and the report of the worker decides its status.
func TestDisbatchTaskAtPeriodicWorker(t *testing.T) {
	t.Parallel()
	f := func(answer func(*client.Worker, *client.Assignment) error, status int, stdout, stderr string) {
		t.Helper()
		t.Run("", func(t *testing.T) { // a server each, and its end before the next
			s := newDisbatchSite(t, "")
			s.add()
			w := s.worker()
			a := grab(t, w)
			var doc struct {
				ID struct {
					OID string `json:"$oid"`
				} `json:"_id"`
				Params map[string]string
			}
			if err := json.Unmarshal(a.Job.Workload, &doc); err != nil || doc.ID.OID != a.Job.Name || doc.Params["user"] != "a" {
				t.Errorf("the job is %q with %s, %v", a.Job.Name, a.Job.Workload, err)
			}
			s.wants(0, "", "")
			if err := answer(w, a); err != nil {
				t.Error(err)
			}
			s.wants(status, stdout, stderr)
		})
	}
	done := func(result string) func(*client.Worker, *client.Assignment) error {
		return func(w *client.Worker, a *client.Assignment) error { return w.Done(t.Context(), a, []byte(result)) }
	}
	f(done(`{"status": 7, "stdout": "out", "stderr": "err"}`), 7, "out", "err")
	f(done(`{"status": -1, "stdout": {"a":1}}`), 2, `{"a":1}`, "")
	f(done("plain \xff text"), 1, "plain \uFFFD text", "")
	f(done(""), 1, "", "")
	f(func(w *client.Worker, a *client.Assignment) error { return w.Fail(t.Context(), a) }, 2, "", "failed the job")
	f(func(w *client.Worker, a *client.Assignment) error { w.Close(); return nil }, 2, "", "failed the job or left")
}

func TestDisbatchTaskAtGloomSlave(t *testing.T) {
	t.Parallel()
	s := newDisbatchSite(t, "")
	s.add()
	slave, err := client.DialSlave(t.Context(), s.slaves)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	if err := slave.Join(t.Context(), client.GloomText("work")); err != nil {
		t.Fatal(err)
	}
	job, err := slave.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(client.GloomCharacters(job.ID)) != 24 || !strings.Contains(string(job.Body), `"params":{"user":"a"}`) {
		t.Errorf("the job is %s: %s", job.ID, job.Body)
	}
	if err := slave.Respond(t.Context(), []byte(`{"status":1,"stdout":"done"}`)); err != nil {
		t.Fatal(err)
	}
	s.wants(1, "done", "")
}

// TestDisbatchQueueCannotBeDropped: DROP_FUNC and REMOVE_JOB leave tasks of Disbatch alone.
func TestDisbatchQueueCannotBeDropped(t *testing.T) {
	t.Parallel()
	s := newDisbatchSite(t, "")
	s.add()
	s.wants(0, "", "")
	c := s.greet(periodic.Client)
	c.send(request(1, periodic.DropFunc, str8("work")))
	c.next()
	w := s.worker()
	a := grab(t, w)
	if err := w.Done(t.Context(), a, []byte("x")); err != nil {
		t.Fatal(err)
	}
	s.wants(1, "x", "")
}

// TestDisbatchTaskIsOverTime: a worker that takes longer than the plugin's time-out has the task failed; what it says
// later is dropped.
func TestDisbatchTaskIsOverTime(t *testing.T) {
	t.Parallel()
	s := newDisbatchSite(t, `, "timeout": 0.1`)
	w := s.greet(periodic.Worker)
	w.send(request(1, periodic.CanDo, str8("work")), request(2, periodic.GrabJob))
	w.ping() // it waits for the task before that is there: else the time may be over first
	s.add()
	handle, _ := assigned(t, w.next())
	s.wants(2, "Unable to complete", "time-out")
	w.send(request(3, periodic.WorkDone, handle, []byte("late")))
	w.ping()
	s.wants(2, "Unable to complete", "time-out")
}

// TestDisbatchTasksOfAStoppingServer: a server that stops gives back the tasks that no worker has, and waits for the
// others.
func TestDisbatchTasksOfAStoppingServer(t *testing.T) {
	t.Parallel()
	s := newDisbatchSite(t, "")
	s.add()
	s.wants(0, "", "")
	s.stop()
	s.wants(-2, "", "")

	s = newDisbatchSite(t, "")
	s.add()
	w := s.worker()
	a := grab(t, w)
	s.end()
	if err := w.Done(t.Context(), a, []byte("in time")); err != nil {
		t.Fatal(err)
	}
	s.wait()
	s.wants(1, "in time", "")
}
