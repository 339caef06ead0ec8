// Package web serves what people and their monitors look at over HTTP: metrics in
// Prometheus' form at /metrics, /healthz, /readyz and, on request, Go's profiles under /debug/pprof.
//
// What the peers of an HTTP server may take is bounded here for every port: the time and the connections by a [Server],
// the bytes of large requests and answers by a [Budget], and the pages that a browser may send them from by a [Guard].
package web

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Counter is the sample of a metric that only grows.
func Counter(name, help string, v uint64) Sample {
	return Sample{Name: name, Help: help, Counter: true, Value: float64(v)}
}

// Gauge is the sample of a metric that goes up and down.
func Gauge[N int | int64 | uint64 | float64](name, help string, v N) Sample {
	return Sample{Name: name, Help: help, Value: float64(v)}
}

// Sample is one metric's value at one moment.
type Sample struct {
	Name, Help        string
	Counter           bool   // else a gauge
	Label, LabelValue string // optional
	Value             float64
	// Buckets makes it a histogram: how many observations were not above each bound.
	// Value is then their sum, Count their number.
	Buckets map[float64]uint64
	Count   uint64
}

// Bounds of what peers may take.
const (
	// requestTimeout is for a request to arrive: it is a line or two.
	requestTimeout = 5 * time.Second
	// answerTimeout is for a page to be read, writeTimeout for a profile, which may take a
	// minute or two itself.
	answerTimeout = 10 * time.Second
	writeTimeout  = 3 * time.Minute
	// idleTimeout is how long a connection waits for its next request: monitors come every
	// minute, or more often.
	idleTimeout = 2 * time.Minute
	maxHeader   = 16 << 10
	// maxBody is of a list of addresses, the one thing that anybody sends: pprof's symbol has several times its length in
	// memory, and no bound of its own.
	maxBody = 64 << 10
	// maxConnections are plenty for monitors and those who look. They come out of the
	// descriptors that the server keeps for itself, so that they never wait for room.
	maxConnections = 32
)

// collection are Go's own metrics of what garbage collection costs: its cycles, the pauses, and the processor time of it
// and of those that were made to help.
var collection = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/(gc/cycles|sched/pauses/total/gc|cpu/classes/gc)[/:]`)}

// contended serves a profile of waits, which Go takes at a cost and therefore only when
// told to: for as long as a request with ?seconds=N lasts. There is one such request of a
// profile at a time, in the process: the end of one would end the taking of another, or leave
// it on for ever.
func contended(taking *sync.Mutex, profile http.Handler, begin func() (end func())) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("seconds") != "" {
			if !taking.TryLock() {
				http.Error(w, "this profile is being taken for another request: try again when that is over", http.StatusServiceUnavailable)
				return
			}
			defer taking.Unlock()
			defer begin()()
		}
		profile.ServeHTTP(w, r)
	}
}

// takingMutex and takingBlock are held while Go takes the profile: its rate is the process's.
var takingMutex, takingBlock sync.Mutex

// Page is something else to serve: a pattern of net/http and what answers it.
type Page struct {
	Pattern string
	Handler http.HandlerFunc
	Probe   bool // a monitor asks for it, under any name of the host
}

// Profiles are Go's own. They show the program's memory and can keep it busy: they are for addresses that its
// administrator alone reaches.
func Profiles() []Page {
	return []Page{
		{Pattern: "/debug/pprof/", Handler: pprof.Index},
		{Pattern: "/debug/pprof/cmdline", Handler: pprof.Cmdline},
		{Pattern: "/debug/pprof/profile", Handler: pprof.Profile},
		{Pattern: "/debug/pprof/symbol", Handler: pprof.Symbol},
		{Pattern: "/debug/pprof/trace", Handler: pprof.Trace},
		{Pattern: "/debug/pprof/mutex", Handler: contended(&takingMutex, pprof.Handler("mutex"), func() func() {
			before := runtime.SetMutexProfileFraction(1)
			return func() { runtime.SetMutexProfileFraction(before) }
		})},
		{Pattern: "/debug/pprof/block", Handler: contended(&takingBlock, pprof.Handler("block"), func() func() {
			runtime.SetBlockProfileRate(1)
			return func() { runtime.SetBlockProfileRate(0) }
		})},
	}
}

// Ready serves what an orchestrator asks before it sends anybody here: 200, or 503 when state says that nobody is to
// come, with a line of text.
func Ready(state func() (ok bool, text string)) Page {
	return Page{Pattern: "GET /readyz", Probe: true, Handler: func(w http.ResponseWriter, _ *http.Request) {
		ok, text := state()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintln(w, text)
	}}
}

// New returns a server on l that reads the metrics by calling samples, once per
// scrape, and serves the pages. guard is asked about requests, but not about those of monitors,
// for /metrics and the probes: they may call the host what they like, and tell no page anything.
func New(l net.Listener, guard *Guard, samples func() []Sample, pages ...Page) *Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collection)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector(func() []Sample { return append(samples(), guard.samples()...) }))
	open, guarded := http.NewServeMux(), http.NewServeMux()
	open.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	open.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	for _, p := range pages {
		mux := guarded
		if p.Probe {
			mux = open
		}
		mux.HandleFunc(p.Pattern, p.Handler)
	}
	return NewServer(l, Config{
		Handler: guarded, Guard: guard, Log: guard.log,
		Around: func(guarded http.Handler) http.Handler {
			open.Handle("/", guarded)
			return hasty(open)
		},
		Request: requestTimeout, Answer: writeTimeout, Idle: idleTimeout, MaxHeader: maxHeader, MaxBody: maxBody, Places: maxConnections, Grace: time.Second,
	})
}

// hasty gives those who want a page, and no profile, little time to read it.
func hasty(pages http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/debug/pprof/") {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // else they have writeTimeout
		}
		pages.ServeHTTP(w, r)
	}
}

// collector turns samples into metrics; which there are is known at the scrape.
type collector func() []Sample

// Describe implements prometheus.Collector: an unchecked one describes nothing.
func (c collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c() {
		kind := prometheus.GaugeValue
		if s.Counter {
			kind = prometheus.CounterValue
		}
		var names, values []string
		if s.Label != "" {
			names, values = []string{s.Label}, []string{s.LabelValue}
		}
		desc := prometheus.NewDesc(s.Name, s.Help, names, nil)
		if s.Buckets != nil {
			out <- prometheus.MustNewConstHistogram(desc, s.Count, s.Value, s.Buckets, values...)
			continue
		}
		out <- prometheus.MustNewConstMetric(desc, kind, s.Value, values...)
	}
}
