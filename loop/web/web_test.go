package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fromHere returns the request as one of this machine.
func fromHere(r *http.Request) *http.Request {
	r.RemoteAddr = "127.0.0.1:4000"
	return r
}

// TestContended: a profile of contention is recorded only during a request with a time.
func TestContended(t *testing.T) {
	server := New(nil, newGuard(t, GuardOptions{}), func() []Sample { return nil }, nil, Profiles()...)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/debug/pprof/mutex?seconds=60", nil)
		server.http.Handler.ServeHTTP(httptest.NewRecorder(), fromHere(r))
	}()
	fraction := func() int { return runtime.SetMutexProfileFraction(-1) }
	for deadline := time.Now().Add(10 * time.Second); fraction() == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the profile is not taken")
		}
	}
	second := httptest.NewRecorder()
	server.http.Handler.ServeHTTP(second, fromHere(httptest.NewRequest(http.MethodGet, "http://localhost/debug/pprof/mutex?seconds=1", nil)))
	if second.Code != http.StatusServiceUnavailable || fraction() == 0 {
		t.Errorf("a second request meanwhile is answered %d, one in %d is taken", second.Code, fraction())
	}
	cancel()
	<-ended
	if fraction() != 0 {
		t.Error("the profile is still recorded after the request")
	}
	reply := httptest.NewRecorder()
	server.http.Handler.ServeHTTP(reply, fromHere(httptest.NewRequest(http.MethodGet, "http://localhost/debug/pprof/mutex", nil)))
	if reply.Code != http.StatusOK || fraction() != 0 {
		t.Errorf("without a time: %d, one in %d is taken", reply.Code, fraction())
	}
}

// TestProfilesAreAskedFor: the metrics port serves Go's profiles only on request.
func TestProfilesAreAskedFor(t *testing.T) {
	for _, pages := range [][]Route{nil, Profiles()} {
		reply := httptest.NewRecorder()
		New(nil, newGuard(t, GuardOptions{}), func() []Sample { return nil }, nil, pages...).http.Handler.ServeHTTP(reply, fromHere(httptest.NewRequest(http.MethodGet, "http://localhost/debug/pprof/cmdline", nil)))
		if found := reply.Code == http.StatusOK; found != (pages != nil) {
			t.Errorf("with %d more pages: %d", len(pages), reply.Code)
		}
	}
}

// TestOnThisMachine: a page that is no monitor's answers requests of this machine alone.
func TestOnThisMachine(t *testing.T) {
	page := onThisMachine(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for from, want := range map[string]int{
		"127.9.9.9:4000": http.StatusOK, "[::1]:4000": http.StatusOK, "[::ffff:127.0.0.1]:4000": http.StatusOK,
		"10.0.0.1:4000": http.StatusForbidden, "[fe80::1%eth0]:4000": http.StatusForbidden, "[::ffff:10.0.0.1]:4000": http.StatusForbidden, "@": http.StatusForbidden, "": http.StatusForbidden,
	} {
		r, w := httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil), httptest.NewRecorder()
		r.RemoteAddr = from
		if page.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%q: %d", from, w.Code)
		}
	}
}

// TestCollectionMetrics names the metrics that the load generator reads.
func TestCollectionMetrics(t *testing.T) {
	server := New(nil, newGuard(t, GuardOptions{}), func() []Sample { return nil }, nil)
	reply := httptest.NewRecorder()
	server.http.Handler.ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, name := range []string{
		"go_gc_cycles_total_gc_cycles_total", "go_cpu_classes_gc_mark_assist_cpu_seconds_total",
		"go_cpu_classes_gc_total_cpu_seconds_total", `go_sched_pauses_total_gc_seconds_bucket{le="+Inf"}`,
	} {
		if !strings.Contains(reply.Body.String(), "\n"+name+" ") {
			t.Errorf("there is no %s", name)
		}
	}
}
