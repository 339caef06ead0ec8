package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newGuard(t *testing.T, o GuardOptions) *Guard {
	t.Helper()
	g, err := NewGuard(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// guarded is a handler behind a guard. It counts the requests that reach it.
type guarded struct {
	http.Handler
	reached int
}

func newGuarded(t *testing.T, o GuardOptions) *guarded {
	h := &guarded{}
	h.Handler = newGuard(t, o).handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { h.reached++ }), nil)
	return h
}

// ask sends a request with headers, alternately names and values, and checks whether it passes.
func (h *guarded) ask(t *testing.T, passes bool, method, host string, headers ...string) (text string) {
	t.Helper()
	r := httptest.NewRequest(method, "/", http.NoBody)
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	before := h.reached
	h.ServeHTTP(w, r)
	if got := h.reached > before; got != passes || (w.Code == http.StatusForbidden) == passes {
		t.Errorf("%s to %q with %q: it passes: %v, %d %s", method, host, headers, got, w.Code, w.Body)
	}
	return w.Body.String()
}

// TestGuardHosts: the guard passes requests for IP addresses and for names of the host.
func TestGuardHosts(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	h := newGuarded(t, GuardOptions{Allow: []string{"Jobs.example.com."}, Listen: []string{"tcp://inner.example:1", "bound.example:2", "tcp://127.0.0.1:3", "tcp://*:4", "unix:///s"}})
	for host, passes := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:5001": true, "192.0.2.7:80": true, "[::1]": true, "[::1]:5001": true, "::1": true, "[fe80::1%25eth0]:1": true,
		"localhost": true, "LocalHost:5001": true, "localhost.": true, "": true,
		own: true, strings.ToUpper(own) + ":1": true,
		"jobs.example.com": true, "JOBS.EXAMPLE.COM.:443": true, "inner.example:9": true, "bound.example": true,

		"evil.example": false, "evil.example:5001": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "x.jobs.example.com": false,
		"jobs.example.com.evil.example": false, "*": false, "*:4": false, own + ".evil.example": false, "127.0.0.1:80:80": false, "[evil.example]:1": false, "unix": false,
		"evil.example@127.0.0.1": false,
	} {
		for _, method := range []string{"GET", "POST", "HEAD", "OPTIONS", "DELETE"} {
			if why := h.ask(t, passes, method, host); !passes && !strings.Contains(why, "--allow-host") {
				t.Errorf("%q: the text does not name the setting: %s", host, why)
			}
		}
	}
}

// TestGuardDomain: the guard passes the host's name with the domain that the system resolves.
func TestGuardDomain(t *testing.T) {
	g := newGuard(t, GuardOptions{})
	asked := 0
	g.hostname, g.domain = "node7", func() string { asked++; return "node7.example.com" }
	for host, passes := range map[string]bool{"node7.example.com:1": true, "node7.example": false, "node77.example.com": false, "example.com": false} {
		if got := g.knows(host); got != passes {
			t.Errorf("%q is known: %v", host, got)
		}
	}
	if asked != 2 {
		t.Errorf("the domain is asked for %d times, want two: for names that begin as the host's does", asked)
	}
	g = newGuard(t, GuardOptions{})
	g.hostname = "no host is called this.invalid"
	if g.knows(g.hostname + ".evil.example") {
		t.Error("a host without a domain has one")
	}
}

// TestGuardNamesMark: a refusal names the header by which the request is another site's, and its value.
func TestGuardNamesMark(t *testing.T) {
	h := newGuarded(t, GuardOptions{})
	for want, headers := range map[string][]string{
		`(Sec-Fetch-Site: "cross-site")`:  {"Sec-Fetch-Site", "cross-site"},
		`(Sec-Fetch-Site: "same-site")`:   {"Sec-Fetch-Site", "same-site", "Origin", "http://evil.example"},
		`(Origin: "http://evil.example")`: {"Origin", "http://evil.example"},
	} {
		if got := h.ask(t, false, "POST", "127.0.0.1:5001", headers...); !strings.Contains(got, want) {
			t.Errorf("%q, want %s", got, want)
		}
	}
}

// TestGuardOrigins: the guard passes requests that no page of another site can send.
func TestGuardOrigins(t *testing.T) {
	h := newGuarded(t, GuardOptions{})
	const host = "127.0.0.1:5001"
	for _, method := range []string{"GET", "POST", "HEAD", "DELETE", "PUT"} {
		h.ask(t, true, method, host)
		h.ask(t, true, method, host, "Sec-Fetch-Site", "same-origin", "Origin", "http://"+host)
		h.ask(t, true, method, host, "Sec-Fetch-Site", "none")
		h.ask(t, true, method, host, "Origin", "http://"+host)
		h.ask(t, false, method, host, "Origin", "http://evil.example")
		h.ask(t, false, method, host, "Origin", "null")
		h.ask(t, false, method, host, "Origin", "http://127.0.0.1:8080")
		h.ask(t, false, method, host, "Sec-Fetch-Site", "cross-site")
		h.ask(t, false, method, host, "Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:8080")
		h.ask(t, false, method, host, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe")
		link := method == "GET" || method == "HEAD"
		h.ask(t, link, method, host, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	}
}

// TestGuardAllow: the setting accepts host names only.
func TestGuardAllow(t *testing.T) {
	for _, name := range []string{"", "*", "*.example", "http://x", "x:80", "a b", ".", "x/", "ä.example"} {
		if _, err := NewGuard(GuardOptions{Allow: []string{name}}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestGuardSays: the guard counts refusals by reason, logs at most one a second, and lets no peer forge a log line.
func TestGuardSays(t *testing.T) {
	var log bytes.Buffer
	g := newGuard(t, GuardOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	h := &guarded{Handler: g.handler(http.NotFoundHandler(), nil)}
	for range 10_000 {
		h.ask(t, false, "GET", "evil.example\nlevel=ERROR "+strings.Repeat("x", 10_000))
	}
	h.ask(t, false, "POST", "localhost", "Origin", "http://evil.example")
	if lines := strings.Count(log.String(), "\n"); lines == 0 || lines > 1000 || strings.Contains(log.String(), "\nlevel") || len(log.String()) > 1000*lines {
		t.Errorf("%d lines of log: %.500s", lines, &log)
	}
	for i, want := range []float64{10_000, 1} {
		if s := g.samples()[i]; s.Value != want || s.LabelValue != refusals[i] {
			t.Errorf("%s: %v, want %v", s.LabelValue, s.Value, want)
		}
	}
}

// TestGuardUnix: the guard passes everything from a socket file, because no browser reaches it.
func TestGuardUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(newGuard(t, GuardOptions{}).handler(http.NotFoundHandler(), nil))
	server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	answer, err := client.Get("http://whatever/")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("status %d", answer.StatusCode)
	}
}

// TestGuardPages: profiles and pages are guarded, metrics and probes are not.
func TestGuardPages(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	server := New(l, newGuard(t, GuardOptions{}), func() []Sample { return nil }, nil, append(Profiles(), Route{Pattern: "GET /dwork/graph", Handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "graph") }},
		Probe("/readyz", ready), Probe("/healthz", ready))...)
	ask := func(path, host string, headers ...string) int {
		r := fromHere(httptest.NewRequest(http.MethodGet, path, http.NoBody))
		r.Host = host
		if len(headers) > 0 {
			r.Header.Set(headers[0], headers[1])
		}
		w := httptest.NewRecorder()
		server.http.Handler.ServeHTTP(w, r)
		return w.Code
	}
	for path, open := range map[string]bool{
		"/metrics": true, "/healthz": true, "/readyz": true, "/debug/pprof/": false, "/debug/pprof/cmdline": false, "/debug/pprof/goroutine": false, "/dwork/graph": false,
	} {
		foreign := map[bool]int{true: 200, false: 403}[open]
		if got := ask(path, "evil.example"); got != foreign {
			t.Errorf("%s of another host: %d, want %d", path, got, foreign)
		}
		if got := ask(path, "127.0.0.1", "Sec-Fetch-Site", "cross-site"); got != foreign {
			t.Errorf("%s by another site: %d, want %d", path, got, foreign)
		}
		if got := ask(path, "127.0.0.1"); got != 200 {
			t.Errorf("%s: %d", path, got)
		}
	}
}
