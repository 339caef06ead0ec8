package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"treadle/codec/kts46"
	"treadle/sched"
)

// kts46Off turns the protocols off in tests of others.
var kts46Off = Kts46Options{Listen: []string{"off"}, JSON: []string{"off"}}

// ktsRig is a hub without sockets, under a clock that the test sets.
type ktsRig struct {
	*ktsHub
	t     testing.TB
	clock sched.Time
}

// ktsStart is when the clock of a ktsRig starts.
var ktsStart = time.Date(2011, 2, 13, 18, 56, 37, 123e6, time.UTC)

func newKtsRig(t testing.TB, o Kts46Options) *ktsRig {
	t.Helper()
	s, err := newServer(Options{Data: NoData, Shards: 4, Loops: 1, Kts46: o})
	if err != nil {
		t.Fatal(err)
	}
	r := &ktsRig{t: t, ktsHub: s.kts46, clock: sched.Time{Wall: ktsStart.UnixMilli(), Micros: ktsStart.UnixMicro()}}
	s.clock = func() sched.Time { return r.clock }
	return r
}

// pass lets time go by.
func (r *ktsRig) pass(d time.Duration) {
	r.clock.Wall += d.Milliseconds()
	r.clock.Mono += d.Milliseconds()
	r.clock.Micros += d.Microseconds()
}

// post sends a body to a version's handler.
func post(answer http.HandlerFunc, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	answer(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

// xml calls a method of version 1.
func (r *ktsRig) xml(method string, args ...any) (any, error) {
	r.t.Helper()
	w := post(r.serveXML, "/RPC2", string(kts46.AppendCall(nil, method, args...)))
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/xml" || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
		r.t.Fatalf("%s: status %d, headers %v", method, w.Code, w.Header())
	}
	return kts46.ReadAnswer(w.Body)
}

// does is xml for a call that must work.
func (r *ktsRig) does(method string, args ...any) any {
	r.t.Helper()
	v, err := r.xml(method, args...)
	if err != nil {
		r.t.Fatalf("%s%q: %v", method, args, err)
	}
	return v
}

// faults checks that a call of version 1 is refused with a text.
func (r *ktsRig) faults(says, method string, args ...any) {
	r.t.Helper()
	v, err := r.xml(method, args...)
	var fault *kts46.Fault
	if !errors.As(err, &fault) || fault.Code != 1 || !strings.Contains(fault.Text, says) {
		r.t.Errorf("%s%q: %v, %v, want a fault that says %q", method, args, v, err, says)
	}
}

// json calls a method of version 2 and returns its result or its error, as JSON.
func (r *ktsRig) json(method string, params ...any) string {
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

// wants checks what version 2 answers.
func (r *ktsRig) wants(want, method string, params ...any) {
	r.t.Helper()
	if got := r.json(method, params...); got != want {
		r.t.Errorf("%s%q: %s, want %s", method, params, got, want)
	}
}

// definition is a job's YAML.
func definition(duration, step float64, batch int) string {
	return fmt.Sprintf("simulationParameters:\n  duration: %v\n  stepDuration: %v\n  batchLength: %d\n", duration, step, batch)
}

// taken is what a worker of version 1 is given.
type taken struct {
	worker, project, job, kind string
	last                       kts46.DateTime
}

// getJob asks for a task as a worker of version 1; nil: there is none.
func (r *ktsRig) getJob(worker string) *taken {
	r.t.Helper()
	s, ok := r.does("getJob", worker).(kts46.Struct)
	if !ok {
		return nil
	}
	t := &taken{worker: worker}
	t.project, _ = s.Get("project").(string)
	t.job, _ = s.Get("job").(string)
	t.kind, _ = s.Get("type").(string)
	t.last, _ = s.Get("lastUpdate").(kts46.DateTime)
	return t
}

// report reports on a task as its worker.
func (r *ktsRig) report(t *taken, state string) {
	r.t.Helper()
	if next, ok := r.does("reportStatus", t.worker, state, t.last).(kts46.DateTime); ok {
		t.last = next
	}
}

// wantJob gets a job for a worker and checks which it is: "" for none.
func (r *ktsRig) wantJob(worker, want string) *taken {
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

// ktsGet reads the status of version 2.
func ktsGet(t *testing.T, answer http.HandlerFunc) (status ktsStatusJSON) {
	t.Helper()
	w := httptest.NewRecorder()
	answer(w, httptest.NewRequest(http.MethodGet, "/whatever", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != 200 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v %q: %v", w.Code, w.Header(), w.Body, err)
	}
	return status
}
