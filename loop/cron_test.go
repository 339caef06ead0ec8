//go:build invariants

package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	codec "treadle/codec/admin"
	"treadle/sched"
)

// cronServer is a server with cron entries, on a disk that survives it.
type cronServer struct {
	*Offline
	t    *testing.T
	file []CronEntry
	mem  *vfs.MemFS
	rng  *rand.Rand
}

// startCronServer starts a server at 22:13:20 in UTC.
func startCronServer(t *testing.T, file ...CronEntry) *cronServer {
	s := &cronServer{t: t, file: file, mem: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(1, 2))}
	s.start(sched.Time{Wall: 1_700_000_000_000, Mono: 1000})
	t.Cleanup(func() { s.Abandon() })
	return s
}

func (s *cronServer) start(now sched.Time) {
	s.t.Helper()
	o, err := NewOfflineIn(Options{Admin: AdminOptions{Cron: s.file}, Loops: 1}, Environment{Disk: s.mem, Now: now})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Offline = o
}

// kill ends the server and starts another one, on what the disk has then.
func (s *cronServer) kill() {
	s.t.Helper()
	after := s.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100 * s.rng.IntN(2), RNG: s.rng})
	now := s.Now()
	s.Abandon()
	s.mem = after
	s.start(now)
}

// call makes a call of the HTTP API, which the journal has when it returns.
func (s *cronServer) call(method, path string, ask, answer any, want int) {
	s.t.Helper()
	body, err := json.Marshal(ask)
	if err != nil {
		s.t.Fatal(err)
	}
	status, reply := 0, []byte(nil)
	s.Admin(httptest.NewRequest(method, path, bytes.NewReader(body)), func(code int, body []byte) { status, reply = code, body })
	if status == 0 {
		s.Commit()
	}
	if status != want {
		s.t.Fatalf("%s %s: %d %s", method, path, status, reply)
	}
	if answer != nil {
		if err := json.Unmarshal(reply, answer); err != nil {
			s.t.Fatal(err)
		}
	}
}

// entry returns an entry in a few words.
func (s *cronServer) entry(name string) string {
	s.t.Helper()
	var all codec.CronEntries
	s.call(http.MethodGet, "/api/v1/cron", nil, &all, http.StatusOK)
	for _, e := range all.Entries {
		if e.Name == name {
			return fmt.Sprintf("%s %s %s paused:%v", e.Schedule, e.Queue, e.Source, e.Paused)
		}
	}
	return ""
}

// jobs returns the names of all jobs.
func (s *cronServer) jobs() string {
	var names []string
	for c, done := (sched.Cursor{}), false; !done; {
		c, done = s.server.sched.Walk(c, sched.WalkBatch, func(j *sched.Job) { names = append(names, j.Queue+"/"+string(j.Name)) })
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestCronOverKills kills a server at any moment of many and checks that each time of an entry has had one job in the
// end: none is lost, and none comes twice, also when the first was done.
func TestCronOverKills(t *testing.T) {
	t.Parallel()
	s := startCronServer(t, CronEntry{Name: "file", Queue: "f", Schedule: "* * * * *", Zone: "UTC", Overlap: "queue"})
	s.call(http.MethodPost, "/api/v1/cron", &codec.CronAdd{CronEntry: CronEntry{Name: "run", Queue: "r", Schedule: "*/2 * * * *", Zone: "UTC", Overlap: "queue"}}, nil, http.StatusOK)
	began := time.UnixMilli(s.Now().Wall).UTC()
	var got, want []string
	done := func() {
		got = append(got, strings.Fields(s.jobs())...)
		for _, queue := range []string{"f", "r"} {
			s.server.sched.Drop([]byte(queue))
		}
		s.Advance(0)
		s.Commit()
	}
	for range 60 {
		s.Advance(0)
		s.Commit() // a kill undoes less than a minute: of times that were missed an entry would run once
		for range 2 {
			s.Advance(time.Duration(s.rng.IntN(29_000)) * time.Millisecond)
			if s.rng.IntN(2) == 0 {
				s.Commit()
			}
		}
		if s.rng.IntN(2) == 0 {
			s.Commit()
			done()
		}
		s.kill()
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	}
	s.Advance(0)
	for at := began.Truncate(time.Minute).Add(time.Minute); at.UnixMilli() <= s.Now().Wall; at = at.Add(time.Minute) {
		want = append(want, "f/file@"+at.Format(time.RFC3339))
		if at.Minute()%2 == 0 {
			want = append(want, "r/run@"+at.Format(time.RFC3339))
		}
	}
	done()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCronSources checks that an entry of the run time takes the place of the file's, that a pause holds for both over
// a restart, and that what is taken out of the file is gone.
func TestCronSources(t *testing.T) {
	t.Parallel()
	s := startCronServer(t, CronEntry{Name: "a", Queue: "f", Schedule: "@hourly"})
	want := func(name, want string) {
		t.Helper()
		for range 2 {
			if got := s.entry(name); got != want {
				t.Fatalf("%s: got %q, want %q", name, got, want)
			}
			s.Commit()
			s.kill()
		}
	}
	want("a", "@hourly f file paused:false")
	one := &codec.CronChange{Entry: "a", RequestedBy: codec.RequestedBy{By: "ada"}}
	s.call(http.MethodPost, "/api/v1/cron/pause", one, nil, http.StatusOK)
	want("a", "@hourly f file paused:true")
	s.call(http.MethodPost, "/api/v1/cron/resume", one, nil, http.StatusOK)
	want("a", "@hourly f file paused:false")

	add := &codec.CronAdd{CronEntry: CronEntry{Name: "a", Queue: "r", Schedule: "@daily"}}
	s.call(http.MethodPost, "/api/v1/cron", add, nil, http.StatusBadRequest)
	add.Replace = true
	s.call(http.MethodPost, "/api/v1/cron", add, nil, http.StatusOK)
	want("a", "@daily r run time paused:false")
	s.call(http.MethodPost, "/api/v1/cron/pause", one, nil, http.StatusOK)
	s.call(http.MethodPost, "/api/v1/cron/remove", one, nil, http.StatusOK)
	want("a", "@hourly f file paused:true")
	s.call(http.MethodPost, "/api/v1/cron", add, nil, http.StatusOK)
	want("a", "@daily r run time paused:true")
	s.call(http.MethodPost, "/api/v1/cron/resume", one, nil, http.StatusOK)
	s.call(http.MethodPost, "/api/v1/cron/remove", one, nil, http.StatusOK)
	want("a", "@hourly f file paused:false")
	s.call(http.MethodPost, "/api/v1/cron/remove", one, nil, http.StatusBadRequest)
	add.Queue = "f"
	s.call(http.MethodPost, "/api/v1/cron", add, nil, http.StatusOK)
	want("a", "@daily f run time paused:false")
	s.call(http.MethodPost, "/api/v1/cron/remove", one, nil, http.StatusOK)
	want("a", "@hourly f file paused:false")

	s.file = nil
	s.kill()
	want("a", "")
	s.call(http.MethodPost, "/api/v1/cron/run", one, nil, http.StatusNotFound)
	s.call(http.MethodGet, "/api/v1/cron?entry=a", nil, nil, http.StatusNotFound)
	s.call(http.MethodGet, "/api/v1/cron?entry=a&next=0", nil, nil, http.StatusBadRequest)
}

// TestOperatorsBesideCommit: while a change waits for the disk, other requests of operators are answered, and other
// changes are made.
func TestOperatorsBesideCommit(t *testing.T) {
	t.Parallel()
	s := startCronServer(t, CronEntry{Name: "c", Queue: "f", Schedule: "@daily"})
	ask := func(method, path, body string) *int {
		status := new(int)
		s.Admin(httptest.NewRequest(method, path, strings.NewReader(body)), func(code int, _ []byte) { *status = code })
		return status
	}
	changes := []*int{
		ask(http.MethodPatch, "/api/v1/policies", `{"pattern":"f","values":{"retries":"3"}}`),
		ask(http.MethodPost, "/api/v1/cron", `{"name":"d","queue":"f","schedule":"@daily"}`),
		ask(http.MethodPost, "/api/v1/cron/pause", `{"entry":"c"}`),
		ask(http.MethodPatch, "/api/v1/policies", `{"pattern":"g","values":{"retries":"3"}}`),
	}
	for _, path := range []string{"/api/v1/policies", "/api/v1/policies?queue=f", "/api/v1/cron", "/api/v1/queues", "/api/v1/jobs"} {
		if status := *ask(http.MethodGet, path, ""); status != http.StatusOK {
			t.Errorf("GET %s beside a commit: %d", path, status)
		}
	}
	for n, status := range changes {
		if *status != 0 {
			t.Errorf("change %d is answered before its commit: %d", n, *status)
		}
	}
	s.Commit()
	for n, status := range changes {
		if *status != http.StatusOK {
			t.Errorf("change %d is answered %d", n, *status)
		}
	}
}
