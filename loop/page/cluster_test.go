package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fakeAPI answers requests of the API by their paths, with texts of JSON; others are refused.
func fakeAPI(answers map[string]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[strings.TrimPrefix(r.URL.Path, apiRoot)]
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			answer = `{"error":"no leader is known"}`
		}
		fmt.Fprint(w, answer)
	})
}

// newTestPages makes pages that ask an API.
func newTestPages(o Options, api http.Handler) *Pages {
	return New(o, api, func(*http.Request) error { return nil }, func() int { return 10 })
}

// load returns a page at its path.
func (s *Pages) load(t *testing.T, path string) (status int, text string) {
	t.Helper()
	mux := http.NewServeMux()
	for _, p := range s.Routes() {
		mux.HandleFunc(p.Pattern, p.Handler)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

// clusterAnswer is a cluster with a node that cannot be reached and has a hostile error.
const clusterAnswer = `{"cluster":"jobs","node":"a","leader":"b","term":4,"spare":0,"nodes":[
	{"node":"a","address":"10.0.0.1:5200","role":"follower","term":4,"last":12345,"behind":6789,"contact":61000,"ahead":-90000,"write":1234},
	{"node":"b","address":"10.0.0.2:5200","role":"leader","term":4,"last":19134,"behind":0},
	{"node":"c","address":"10.0.0.3:5200","error":"<script>alert(1)</script>\u202e"}],
	"attention":[{"kind":"node","text":"node c does not answer: <script>alert(1)</script>\u202e"}]}`

// TestClusterPage: the page of a cluster has each node, and texts of nodes as text alone. A server that is alone says
// so, and has no entry of the menu.
func TestClusterPage(t *testing.T) {
	s := newTestPages(Options{}, fakeAPI(map[string]string{"/cluster": clusterAnswer, "/overview": `{"ready":true,"health":"ok","cluster":"jobs"}`}))
	_, text := s.load(t, "/cluster")
	for _, want := range []string{
		"Cluster jobs", "as node a sees it", "</svg>follower", "</svg>leader", "</svg>unreachable", "6,789", "12,345", "1 m 1 s ago", "1 m 30 s behind", "1.2 ms",
		`2<i class="of"> / 3`, "&lt;script&gt;",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if strings.Contains(text, "<script>alert") || strings.Contains(text, "\u202e") {
		t.Error("the page has a text of a node as markup")
	}
	if _, text := s.load(t, "/docs"); !strings.Contains(text, `href="/cluster"`) {
		t.Error("the menu of a node has no cluster")
	}
	alone := newTestPages(Options{}, fakeAPI(map[string]string{"/cluster": `{"nodes":[],"attention":[]}`, "/overview": `{"ready":true,"health":"ok"}`}))
	if status, text := alone.load(t, "/cluster"); status != http.StatusOK || !strings.Contains(text, "This server is alone") || !strings.Contains(text, `href="/docs/cluster"`) {
		t.Errorf("%d, %.3000s", status, text)
	}
	if _, text := alone.load(t, "/docs"); strings.Contains(text, `href="/cluster"`) {
		t.Error("the menu of a server that is alone has a cluster")
	}
}

// TestAway: without a leader, a node shows the cluster at the address of any page, with the files of the page. Other
// requests are left alone.
func TestAway(t *testing.T) {
	s := newTestPages(Options{Path: "/x"}, fakeAPI(map[string]string{"/cluster": clusterAnswer}))
	load := func(method, path, accept string) *httptest.ResponseRecorder {
		t.Helper()
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Accept", accept)
		serve := s.Away(r)
		if serve == nil {
			return nil
		}
		w := httptest.NewRecorder()
		serve(w, r)
		return w
	}
	const html = "text/html,application/xhtml+xml"
	w := load(http.MethodGet, "/x/jobs?filter=queue:mail", html)
	if w == nil {
		t.Fatal("a page is not answered")
	}
	text := w.Body.String()
	for _, want := range []string{"does not serve now: <bdi>no leader is known</bdi>", `<noscript><meta http-equiv="refresh" content="2">`, ` data-again="2"`, "</svg>unreachable", `href="/x/cluster" aria-current="page"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if w.Code != http.StatusServiceUnavailable || strings.Contains(text, "data-stream") || w.Header().Get("Content-Security-Policy") == "" {
		t.Errorf("%d, %v, %.300s", w.Code, w.Header(), text)
	}
	style, _ := s.assetURL("style.css")
	if w := load(http.MethodGet, style, "text/css"); w == nil || w.Code != http.StatusOK || w.Body.Len() == 0 {
		t.Errorf("the style sheet: %+v", w)
	}
	for _, other := range [][3]string{
		{http.MethodPost, "/x/do/jobs", html}, {http.MethodGet, "/x/live?at=/x/", "text/event-stream"}, {http.MethodGet, "/jobs", html},
	} {
		if w := load(other[0], other[1], other[2]); w != nil {
			t.Errorf("%q is answered with %d", other, w.Code)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/jobs", nil)
	r.Header.Set("Accept", html)
	if newTestPages(Options{}, http.NotFoundHandler()).Away(r) != nil {
		t.Error("a request of the API is answered with a page")
	}
}
