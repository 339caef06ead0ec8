package loop

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"treadle/codec/periodic"
	"treadle/sched"
)

// TestQueueMetrics: the first queues have lines of their own. All others, and those whose names are no labels, are
// summed as _other.
func TestQueueMetrics(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", MetricsMaxQueues: 2})
	c := r.greet(periodic.Client)
	for i, queue := range []string{"_other", "\xff\xfe", "a \"quoted\"\nname", "b", "c", "d"} {
		c.ask(uint32(i), periodic.SubmitJob, job(queue, "n"), byte(periodic.Success))
	}
	r.wantMetric(`treadle_queue_jobs{queue="b",state="ready"}`, 1)
	r.wantMetric(`treadle_queue_jobs{queue="a \"quoted\"\nname",state="ready"}`, 1)
	r.wantMetric(`treadle_queue_jobs{queue="_other",state="ready"}`, 4)
	r.wantMetric(`treadle_jobs_submitted_total{protocol="periodic",queue="_other"}`, 4)
	r.wantMetric(`treadle_metrics_queues_folded`, 4)
	r.wantMetric(`treadle_jobs{state="ready"}`, 6)

	w := r.greet(periodic.Worker)
	w.send(request(1, periodic.CanDo, str8("b")), request(2, periodic.GrabJob))
	handle, _ := assigned(t, w.next())
	r.wantMetric(`treadle_queue_workers{queue="b",state="busy"}`, 1)
	r.wantMetric(`treadle_queue_workers{queue="b",state="idle"}`, 0)
	w.send(request(3, periodic.WorkDone, handle))
	r.wantMetric(`treadle_jobs_finished_total{outcome="done",queue="b"}`, 1)
	r.wantMetric(`treadle_job_run_seconds_count`, 1)
	r.wantMetric(`treadle_job_wait_seconds_count`, 1)
	r.wantMetric(`treadle_connections{protocol="periodic",role="worker"}`, 1)
	r.wantMetric(`treadle_connections{protocol="periodic",role="client"}`, 1)
	r.wantMetric(`treadle_frames_total{protocol="periodic"}`, 6+3)
	w.Close()
	r.wantMetric(`treadle_connections{protocol="periodic",role="worker"}`, 0)
	r.wantMetric(closedMetric("peer"), 1)
	for _, direction := range []string{"in", "out"} {
		if n := r.metric(`treadle_bytes_total{direction="` + direction + `",protocol="periodic"}`); n < 100 {
			t.Errorf("%d bytes %s", n, direction)
		}
	}
}

// TestMixedGloomMetrics: both name spaces of Gloom jobs count for one protocol, once.
func TestMixedGloomMetrics(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	sink := host{w.Server}.NewSink()
	for i, space := range []sched.Space{2, 3, 3} {
		owner := w.sched.NewPeer(1)
		if err := w.sched.Submit(w.now(), &sched.Submission{Space: space, Queue: []byte("q"), Name: fmt.Append(nil, i), Await: owner}, sink); err != nil {
			t.Fatal(err)
		}
	}
	rows := 0
	for _, s := range w.samples() {
		if s.Name == "treadle_jobs_submitted_total" {
			if rows++; s.LabelValue != "q" || s.Second != [2]string{"protocol", "gloom"} || s.Value != 3 {
				t.Errorf("%+v", s)
			}
		}
	}
	if rows != 1 {
		t.Errorf("%d rows, want 1", rows)
	}
}

// TestDelays: a delay is in the bucket of the first bound that is not below it.
func TestDelays(t *testing.T) {
	t.Parallel()
	var a, b delays
	for _, micros := range []int64{-5, 0, 100, 101, 4_999_999, 60_000_000} {
		a.observe(micros)
	}
	b.observe(1000)
	s := delaySample("x", "", &a, &b)
	if s.Count != 7 || s.Value != 65.0012 || s.Buckets[0.0001] != 3 || s.Buckets[0.0005] != 4 || s.Buckets[0.001] != 5 || s.Buckets[1] != 5 || s.Buckets[5] != 6 {
		t.Errorf("%+v", s)
	}
}

// TestLive: /livez names the loop, or the timer, that has not run for 5 seconds. During the start and the stop it does
// not fail.
func TestLive(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{Loops: 2})
	now := sched.Time{Mono: 1000}
	w.clock = func() sched.Time { return now }
	f := func(want bool, text string) {
		t.Helper()
		if ok, said := w.live(); ok != want || said != text {
			t.Errorf("%v %q, want %v %q", ok, said, want, text)
		}
	}
	swept := func(timer, first, second int64) {
		w.swept.Store(timer)
		w.reactors[0].Load().swept.Store(first)
		w.reactors[1].Load().swept.Store(second)
	}
	swept(1000, 1000, 1000)
	now.Mono = 6001
	f(true, "ok") // it does not serve yet
	w.serving.Store(true)
	f(false, "the timer is stuck: it has not run for 5.001s")
	swept(6000, 1001, 1001)
	f(true, "ok")
	swept(6000, 6000, 1000)
	f(false, "event loop 1 is stuck: it has not turned for 5.001s")
	w.stopping.Store(true)
	f(true, "ok")
}

// TestProbesAtTheStart: while the journal is read /livez answers 200, /readyz and /healthz say how far the start is,
// and the metrics that the server is not ready.
func TestProbesAtTheStart(t *testing.T) {
	t.Parallel()
	s, err := newServer(Options{Data: NoData, HTTP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.openHTTP(); err != nil {
		t.Fatal(err)
	}
	defer s.closeHTTP()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	page := func(path string) string {
		t.Helper()
		answer, err := client.Get(s.httpAddress + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(answer.StatusCode, " ", string(text))
	}
	want := func(path, text string) {
		t.Helper()
		if got := page(path); got != text+"\n" {
			t.Errorf("%s: %q, want %q", path, got, text)
		}
	}
	want("/livez", "200 ok")
	want("/readyz", "503 starting")
	s.setProgress("starting: 3 of 9 records of the journal are read")
	want("/healthz", "503 starting: 3 of 9 records of the journal are read")
	want("/dwork/graph", "503 starting: 3 of 9 records of the journal are read")
	want("/api/v1/queues", `503 {"error":"starting: 3 of 9 records of the journal are read"}`)
	if got := page("/metrics"); !strings.Contains(got, "\ntreadle_ready 0\n") || !strings.Contains(got, "\ntreadle_start_time_seconds ") || strings.Contains(got, "treadle_queues") {
		t.Errorf("/metrics: %.2000s", got)
	}
	s.swept.Store(s.now().Mono)
	s.serving.Store(true)
	want("/readyz", "200 ok")
	if got := page("/metrics"); !strings.Contains(got, "\ntreadle_ready 1\n") || !strings.Contains(got, `treadle_http_requests_total{code="503",route="/readyz"} 1`) || !strings.Contains(got, "treadle_queues") {
		t.Errorf("/metrics: %.2000s", got)
	}
	if got := page("/nothing"); !strings.HasPrefix(got, "404 ") {
		t.Error(got)
	}
	if got := page("/metrics"); !strings.Contains(got, `treadle_http_requests_total{code="404",route="other"} 1`) {
		t.Errorf("/metrics: %.2000s", got)
	}
}

// BenchmarkScrape reads /metrics of a server with 10,000 queues; 500 have lines of their own.
func BenchmarkScrape(b *testing.B) {
	s, err := newServer(Options{Data: NoData, HTTP: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	sink := host{s}.NewSink()
	for i := range 10_000 {
		if err := s.sched.Submit(s.now(), &sched.Submission{Space: 1, Queue: fmt.Appendf(nil, "queue.number.%d", i), Name: []byte("n")}, sink); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.openHTTP(); err != nil {
		b.Fatal(err)
	}
	defer s.closeHTTP()
	s.serving.Store(true)
	client, bytes := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableCompression: true}}, int64(0)
	defer client.CloseIdleConnections()
	for b.Loop() {
		answer, err := client.Get(s.httpAddress + "/metrics")
		if err != nil || answer.StatusCode != http.StatusOK {
			b.Fatal(answer, err)
		}
		bytes, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(bytes), "B/scrape")
}
