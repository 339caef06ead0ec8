package kts46

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	codec "treadle/codec/kts46"
	"treadle/loop/setting"
	"treadle/sched"
)

// patience is the longest wait for an expected event.
const patience = 20 * time.Second

// testHub is the protocol without sockets and with a clock that the test sets.
type testHub struct {
	*Protocol
	server *testHost
	t      testing.TB
	clock  sched.Time
}

// start is the first time of a testHub's clock.
var start = time.Date(2011, 2, 13, 18, 56, 37, 123e6, time.UTC)

func newTestHub(t testing.TB, o Options) *testHub {
	t.Helper()
	return newTestHubOn(t, o, false)
}

func newTestHubOn(t testing.TB, o Options, journaled bool) *testHub {
	t.Helper()
	r := &testHub{t: t, clock: sched.Time{Wall: start.UnixMilli(), WallMicros: start.UnixMicro()}}
	r.server = newHost(func() sched.Time { return r.clock }, journaled)
	setting.Fill(&o)
	o.FillAddresses("127.0.0.1")
	r.Protocol = New(r.server, o)
	return r
}

// advance moves the clock forward.
func (r *testHub) advance(d time.Duration) {
	r.clock.Wall += d.Milliseconds()
	r.clock.Mono += d.Milliseconds()
	r.clock.WallMicros += d.Microseconds()
}

// post sends a body to a version's handler.
func post(answer http.HandlerFunc, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	answer(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

// xml calls a method of version 1.
func (r *testHub) xml(method string, args ...any) (any, error) {
	r.t.Helper()
	w := post(r.serveXML, "/RPC2", string(codec.AppendCall(nil, method, args...)))
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/xml" || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
		r.t.Fatalf("%s: status %d, headers %v", method, w.Code, w.Header())
	}
	return codec.ReadAnswer(w.Body)
}

// does makes a call of version 1 that must succeed.
func (r *testHub) does(method string, args ...any) any {
	r.t.Helper()
	v, err := r.xml(method, args...)
	if err != nil {
		r.t.Fatalf("%s%q: %v", method, args, err)
	}
	return v
}

// faults checks that a call of version 1 fails with a text.
func (r *testHub) faults(says, method string, args ...any) {
	r.t.Helper()
	v, err := r.xml(method, args...)
	var fault *codec.Fault
	if !errors.As(err, &fault) || fault.Code != 1 || !strings.Contains(fault.Text, says) {
		r.t.Errorf("%s%q: %v, %v, want a fault that says %q", method, args, v, err, says)
	}
}

// json calls a method of version 2 and returns its result or its error, as JSON.
func (r *testHub) json(method string, params ...any) string {
	r.t.Helper()
	if params == nil {
		params = []any{}
	}
	body, err := json.Marshal(map[string]any{"method": method, "params": params, "id": 1})
	if err != nil {
		r.t.Fatal(err)
	}
	w := post(r.serveJSON, "/jsonrpc", string(body))
	var reply struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil {
		r.t.Fatalf("%s: %d %q: %v", method, w.Code, w.Body, err)
	}
	if (w.Code == 200) != (string(reply.Error) == "null") {
		r.t.Fatalf("%s: %d %q", method, w.Code, w.Body)
	}
	if w.Code == 200 {
		return string(reply.Result)
	}
	return string(reply.Error)
}

// wants checks an answer of version 2.
func (r *testHub) wants(want, method string, params ...any) {
	r.t.Helper()
	if got := r.json(method, params...); got != want {
		r.t.Errorf("%s%q: %s, want %s", method, params, got, want)
	}
}

// definition returns a job's YAML.
func definition(duration, step float64, batch int) string {
	return fmt.Sprintf("simulationParameters:\n  duration: %v\n  stepDuration: %v\n  batchLength: %d\n", duration, step, batch)
}

// taken is a task that a worker of version 1 got.
type taken struct {
	worker, project, job, kind string
	last                       codec.DateTime
}

// getJob gets a task for a worker of version 1, nil without one.
func (r *testHub) getJob(worker string) *taken {
	r.t.Helper()
	s, ok := r.does("getJob", worker).(codec.Struct)
	if !ok {
		return nil
	}
	t := &taken{worker: worker}
	t.project, _ = s.Get("project").(string)
	t.job, _ = s.Get("job").(string)
	t.kind, _ = s.Get("type").(string)
	t.last, _ = s.Get("lastUpdate").(codec.DateTime)
	return t
}

// report reports on a task for its worker.
func (r *testHub) report(t *taken, state string) {
	r.t.Helper()
	if next, ok := r.does("reportStatus", t.worker, state, t.last).(codec.DateTime); ok {
		t.last = next
	}
}

// wantJob gets a job for a worker and compares it with want, "" for none.
func (r *testHub) wantJob(worker, want string) *taken {
	r.t.Helper()
	got, t := "", r.getJob(worker)
	if t != nil {
		got = t.job + " " + t.kind
	}
	if got != want {
		r.t.Errorf("%s is given %q, want %q", worker, got, want)
	}
	return t
}

// get reads the status of version 2.
func get(t *testing.T, answer http.HandlerFunc) (status statusJSON) {
	t.Helper()
	w := httptest.NewRecorder()
	answer(w, httptest.NewRequest(http.MethodGet, "/whatever", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v %q: %v", w.Code, w.Header(), w.Body, err)
	}
	return status
}
