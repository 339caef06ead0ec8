// Package web serves HTTP: metrics in Prometheus' format at /metrics, probes, and, on request, Go's profiles under
// /debug/pprof.
//
// It also bounds what the peers of every HTTP port may use. A [Server] bounds time and connections, [Transfers] bound
// the bytes of large requests and answers, and a [Guard] refuses requests from other sites' pages.
package web

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Counter returns the sample of a metric that only grows.
func Counter(name, help string, v uint64) Sample {
	return Sample{Name: name, Help: help, Counter: true, Value: float64(v)}
}

// ProtocolErrors returns the sample of a kind of peers' errors in a protocol. The page metrics.md of
// cmd/treadle/docs explains the kinds.
func ProtocolErrors(protocol, kind string, v uint64) Sample {
	return Counter("treadle_protocol_errors_total", "Errors of peers: requests and messages that were not understood or not allowed, and connections that were closed for them.", v).
		With("protocol", protocol).With("kind", kind)
}

// Gauge returns the sample of a metric that goes up and down.
func Gauge[N int | int64 | uint64 | float64](name, help string, v N) Sample {
	return Sample{Name: name, Help: help, Value: float64(v)}
}

// Sample is the value of one metric at one moment.
type Sample struct {
	Name, Help        string
	Counter           bool      // false: a gauge
	Label, LabelValue string    // optional
	Second            [2]string // a second label and its value, optional
	Value             float64
	// Buckets makes the sample a histogram: the number of observations up to each bound. Value is then their sum and
	// Count their number.
	Buckets map[float64]uint64
	Count   uint64
}

// With returns the sample with one more label, of two at most.
func (s Sample) With(label, value string) Sample {
	if s.Label == "" {
		s.Label, s.LabelValue = label, value
	} else {
		s.Second = [2]string{label, value}
	}
	return s
}

// Limits of the metrics port.
const (
	// requestTimeout is the time to read a request, a line or two.
	requestTimeout = 5 * time.Second
	// answerTimeout is the time to write a page. writeTimeout is the time to write a profile, which may take minutes to
	// record.
	answerTimeout = 10 * time.Second
	writeTimeout  = 3 * time.Minute
	// idleTimeout is the time between two requests of a connection. Monitors ask every minute or more often.
	idleTimeout = 2 * time.Minute
	maxHeader   = 16 << 10
	// maxBody bounds a list of addresses for pprof's symbol, the only body in use. pprof needs several times its length
	// in memory and does not limit it.
	maxBody = 64 << 10
	// maxConnections is plenty for monitors and people. These connections use the descriptors that the server reserves
	// for itself, so --max-connections does not delay them.
	maxConnections = 32
)

// collection selects Go's metrics of garbage collection: cycles, pauses, and the CPU time of the collector and of mark
// assists.
var collection = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/(gc/cycles|sched/pauses/total/gc|cpu/classes/gc)[/:]`)}

// contended serves a profile of contention. Go records such a profile only while it is switched on, at a cost:
// contended does so for a request with ?seconds=N. Only one such request of a profile runs at a time in the process:
// otherwise the end of one would stop the recording of another, or leave it on for ever.
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

// takingMutex and takingBlock are held while Go records the profile: its rate is set for the whole process.
var takingMutex, takingBlock sync.Mutex

// Route is a pattern of net/http to serve, and its handler.
type Route struct {
	Pattern string
	Handler http.HandlerFunc
	Probe   bool // monitors ask for it, under any host name
	// Long requests are an interface's: Admit counts their connections, the handler bounds their bodies and sets the
	// time to read an answer when it has one.
	Long bool
	// Allow, of a Long route, answers a request that it refuses, and returns false; nil: all are allowed. It is asked
	// before the connection is admitted.
	Allow func(w http.ResponseWriter, r *http.Request) bool
}

// Profiles returns Go's profiles. They show the program's memory and can keep it busy: serve them only where the
// administrator alone has access.
func Profiles() []Route {
	return []Route{
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

// Probe returns a probe of an orchestrator. It answers 200, or 503 when state says that something is wrong, with a line
// of text.
func Probe(path string, state func() (ok bool, text string)) Route {
	return Route{Pattern: "GET " + path, Probe: true, Handler: func(w http.ResponseWriter, _ *http.Request) {
		ok, text := state()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprintln(w, text)
	}}
}

// RefuseJSON answers a request that an interface with JSON does not take.
func RefuseJSON(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why}) // fails when the peer has gone
}

// onThisMachine returns a handler that refuses requests from other machines: there are no users whose rights it could
// check.
func onThisMachine(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().Unmap().IsLoopback() {
			w.Header().Set("Connection", "close")
			RefuseJSON(w, http.StatusForbidden, "this page answers programs on this machine alone, as long as there are no users: ask for it through an SSH tunnel")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// New returns a server on l. It serves the routes and the metrics, which it reads by calling samples once per scrape.
// The guard does not see requests for /metrics and the probes: monitors may use any host name, and the answers tell a
// page nothing. Other routes that are not Long answer requests of this machine alone.
//
// admit is Config.Admit.
func New(l net.Listener, guard *Guard, samples func() []Sample, admit func() (leave func(), err error), routes ...Route) *Server {
	registry, counted := prometheus.NewRegistry(), &requests{answers: make(map[answered]uint64)}
	registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collection)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	all := gatherer{registry, func() []Sample { return slices.Concat(samples(), guard.samples(), counted.samples()) }}
	open, guarded := http.NewServeMux(), http.NewServeMux()
	routes = append(routes, Route{Pattern: "GET /metrics", Probe: true,
		Handler: promhttp.HandlerFor(all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP})
	for _, p := range routes {
		mux := guarded
		if p.Probe {
			mux = open
		}
		if !p.Long {
			handler := http.MaxBytesHandler(p.Handler, maxBody)
			if !p.Probe {
				handler = onThisMachine(handler)
			}
			mux.Handle(p.Pattern, handler)
			continue
		}
		mux.HandleFunc(p.Pattern, func(w http.ResponseWriter, r *http.Request) {
			if p.Allow != nil && !p.Allow(w, r) {
				return
			}
			if err := Admit(r); err != nil {
				w.Header().Set("Retry-After", "1")
				RefuseJSON(w, http.StatusServiceUnavailable, err.Error())
				return
			}
			p.Handler(w, r)
		})
	}
	return NewServer(l, Config{
		Handler: guarded, Guard: guard, Log: guard.log,
		Refuse: func(w http.ResponseWriter, why string) { RefuseJSON(w, http.StatusForbidden, why) }, // programs ask for most routes
		Around: func(guarded http.Handler) http.Handler {
			open.Handle("/", guarded)
			return counted.handler(shortAnswers(open))
		},
		Request: requestTimeout, Answer: writeTimeout, Idle: idleTimeout, MaxHeader: maxHeader, MaxConnections: maxConnections, Grace: time.Second, Admit: admit,
	})
}

// shortAnswers gives answers less time to be read than profiles, which have writeTimeout.
func shortAnswers(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/debug/pprof/") {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
		}
		next.ServeHTTP(w, r)
	}
}
