package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"treadle/loop/client"
)

// TestExitTable: the table of the operations page and that of the help are the program's.
func TestExitTable(t *testing.T) {
	t.Parallel()
	text, err := page("operations")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = strings.Cut(text, "| code | meaning |\n|---|---|\n")
	text, _, _ = strings.Cut(text, "\n\n")
	help, _, _ := treadle(t, "", "--help")
	lines := strings.Split(text, "\n")
	if len(lines) != len(exits) {
		t.Fatalf("the page has %d codes, the program %d", len(lines), len(exits))
	}
	for i, e := range exits {
		if want := fmt.Sprintf("| %d | %s |", e.code, e.meaning); lines[i] != want {
			t.Errorf("the page says %q, want %q", lines[i], want)
		}
		if want := fmt.Sprintf("%-4d %s", e.code, e.meaning); !strings.Contains(help, want) {
			t.Errorf("the help does not say %q", want)
		}
	}
}

// TestExitOf: each kind of error has its exit code, and its reason in JSON.
func TestExitOf(t *testing.T) {
	t.Parallel()
	f := func(err error, code int, reason string) {
		t.Helper()
		if gotCode, gotReason := exitOf(err); gotCode != code || gotReason != reason {
			t.Errorf("%v: %d %s, want %d %s", err, gotCode, gotReason, code, reason)
		}
	}
	f(errors.New("x"), 1, "failed")
	f(badUsage("x"), 2, "usage")
	f(noSuch("x"), 4, "not-found")
	f(fmt.Errorf("x: %w", context.Canceled), 130, "interrupted")
	f(killed{}, 130, "interrupted")
	f(damaged(errors.New("x")), 3, "damaged")
	f(&client.AddressError{Err: errors.New("x")}, 2, "usage")
	f(&client.DialError{Err: errors.New("x")}, 3, "unreachable")
	f(&client.DialError{Err: fs.ErrPermission}, 5, "not-allowed")
	f(&client.SocketError{Err: errors.New("x")}, 3, "unreachable")
	f(&client.PeerError{Err: context.DeadlineExceeded}, 3, "unreachable")
	f(fmt.Errorf("cannot submit: %w", client.ErrClosed), 3, "unreachable")
	f(reachError{errors.New("x")}, 3, "unreachable")
	f(reachError{context.Canceled}, 130, "interrupted")
	for status, code := range map[int]int{400: 2, 401: 5, 403: 5, 404: 4, 409: 1, 429: 1, 503: 1, 507: 1} {
		f(&client.AnswerError{Status: status, Reason: "r"}, code, "r")
	}
	f(&client.AnswerError{Status: 404}, 4, "not-found")
}

// TestExitOfAnswers: the program's exit code says what a server has answered, and with --json its error is one object.
func TestExitOfAnswers(t *testing.T) {
	t.Parallel()
	type answer struct {
		status int
		body   string
	}
	var next atomic.Pointer[answer]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := next.Load()
		w.WriteHeader(a.status)
		fmt.Fprint(w, a.body)
	}))
	defer server.Close()
	f := func(answered int, text string, code int, reason, says string, args ...string) {
		t.Helper()
		next.Store(&answer{answered, text})
		args = append([]string{"-H", server.URL + "/"}, args...)
		out, errs, got := treadle(t, "", args...)
		if got != code || out != "" || errs != "treadle: "+says+"\n" && !strings.Contains(errs, says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q of %d: exit code %d, %q, %q; want %d, %q", args, answered, got, out, errs, code, says)
		}
		out, errs, got = treadle(t, "", append(args, "--json")...)
		var e jsonError
		if err := json.Unmarshal([]byte(errs), &e); err != nil || got != code || e.Exit != code || e.Reason != reason || !strings.Contains(e.Error, says) || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q --json of %d: exit code %d, %q, %q, %v; want %d, %s, %q", args, answered, got, out, errs, err, code, reason, says)
		}
	}
	f(404, `{"error":"there is none"}`, 4, "not-found", "there is none", "queue", "list")
	f(403, `{"error":"not for you"}`, 5, "not-allowed", "not for you", "cron", "list")
	f(429, `{"error":"too many","reason":"policy"}`, 1, "policy", "too many", "queue", "show", "q")
	f(400, `{"error":"bad"}`, 2, "usage", "bad", "queue", "rules")
	f(409, `{"error":"not now"}`, 1, "failed", "not now", "queue", "rules")
	f(200, `<html>`, 3, "unreachable", "cannot talk to tcp://", "queue", "list")
	f(502, `<html>`, 3, "unreachable", "it is no HTTP API of this program", "queue", "list")
	f(200, `{}`, 2, "usage", "--limit is at least 1", "queue", "list", "--limit", "0")
	f(200, `{}`, 2, "usage", "unknown flag --frob", "queue", "list", "--frob")
	f(200, `{}`, 2, "usage", "--watch: 1ms is too short: at least 100ms", "queue", "list", "--watch=1ms")
	server.Close()
	f(0, "", 3, "unreachable", "-H or TREADLE_ADMIN names the server", "queue", "list")
	if out, errs, code := treadle(t, "", "-H", "ftp://a:1", "queue", "list"); code != 2 || out != "" || !strings.Contains(errs, "http://host:port") {
		t.Errorf("ftp: exit code %d, %q, %q", code, out, errs)
	}
	// A flag of the worker's command is no flag of the program, nor is what stands behind --.
	if _, errs, code := treadle(t, "", "submit", "--frob", "f", "--", "--json"); code != 2 || !strings.HasPrefix(errs, "treadle: ") {
		t.Errorf("a job called --json: exit code %d, %q", code, errs)
	}
	if _, errs, code := treadle(t, "", "-H", "127.0.0.1:1", "work", "f", "--", "cat", "--json"); code != 3 || !strings.HasPrefix(errs, "treadle: ") {
		t.Errorf("a worker whose command has --json: exit code %d, %q", code, errs)
	}
}

// TestErrorsAsJSON: with --json each error and each note is an object on a line, also of a command that goes on after
// one.
func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/jobs/change":
			_, _ = w.Write([]byte(`{"changed":1,"left":[{"id":"1.2.3","status":404,"error":"it is gone"},{"id":"4.5.6","status":409,"error":"it runs"}]}`))
		case "/api/v1/jobs":
			_, _ = w.Write([]byte(`{"jobs":[{"id":"1.2.3"}],"next":"x"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"error":"no such connection"}`))
		}
	}))
	t.Cleanup(server.Close)
	f := func(want string, code int, args ...string) {
		t.Helper()
		if _, errs, got := treadle(t, "", append([]string{"-H", server.URL}, args...)...); errs != want || got != code {
			t.Errorf("%q: exit code %d, %q; want %d, %q", args, got, errs, code, want)
		}
	}
	f(`{"error":"job 1.2.3: it is gone","reason":"not-found","exit":4}
{"error":"job 4.5.6: it runs","reason":"failed","exit":1}
{"error":"jobs that stay as they are: 2","reason":"failed","exit":1}
`, 1, "job", "run", "7.8.9", "1.2.3", "4.5.6", "--json")
	f(`{"note":"there are more than 1 such jobs, perhaps: --limit shows more"}
`, 0, "job", "list", "--limit", "1", "--json")
	f(`treadle: job 1.2.3: it is gone
treadle: job 4.5.6: it runs
treadle: jobs that stay as they are: 2
`, 1, "job", "run", "7.8.9", "1.2.3", "4.5.6")
	file := filepath.Join(t.TempDir(), "treadle.toml")
	if err := os.WriteFile(file, []byte("frob = 1\nfrobs = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs, code := treadle(t, "", "config", "show", "--config", file, "--json")
	for line := range strings.Lines(errs) {
		var e jsonError
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Exit != code || !strings.Contains(e.Error, "frob") {
			t.Errorf("a wrong file: %q, %v", line, err)
		}
	}
	if code != 2 || strings.Count(errs, "\n") != 2 {
		t.Errorf("a wrong file: exit code %d, %q", code, errs)
	}
}

// TestExitOfSocket: a socket of another user is exit code 5, a program that is none of ours 3.
func TestExitOfSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if os.Geteuid() != 0 {
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if _, errs, code := treadle(t, "", "-H", path, "queue", "list"); code != exitForbidden {
			t.Errorf("exit code %d, %q", code, errs)
		}
		return
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "220 mail\r\n")
			c.Close()
		}
	}()
	if _, errs, code := treadle(t, "", "-H", path, "queue", "list"); code != exitUnreachable || !strings.Contains(errs, "cannot talk to unix://") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}
