package web

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// requests counts the answered requests of a server by route and status.
type requests struct {
	mu      sync.Mutex
	answers map[answered]uint64
}

type answered struct {
	route string // the pattern of the page without its method; "other": there is no such page
	code  int
}

// handler counts the requests that next answers. A mux in next sets their patterns.
func (q *requests) handler(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{ResponseWriter: w, code: http.StatusOK}
		defer func() { q.count(r.Pattern, s.code) }()
		next.ServeHTTP(s, r)
	}
}

func (q *requests) count(pattern string, code int) {
	route := cmp.Or(pattern[strings.IndexByte(pattern, ' ')+1:], "other")
	if route == "/" { // of the mux around the guarded pages: the guard has refused the request
		route = "other"
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.answers[answered{route, code}]++
}

// samples returns a sample for each route and status.
func (q *requests) samples() (all []Sample) {
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(q.answers), func(a, b answered) int {
		return cmp.Or(strings.Compare(a.route, b.route), cmp.Compare(a.code, b.code))
	})
	for _, k := range keys {
		all = append(all, Counter("treadle_http_requests_total", "HTTP requests answered on the metrics port, by page and status.", q.answers[k]).
			With("route", k.route).With("code", strconv.Itoa(k.code)))
	}
	return all
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
