package page

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	codec "treadle/codec/admin"
)

// hostileText is a text that a page must not take for its own words.
const hostileText = "<script>alert(1)</script>\u202e\"><img src=x>"

// siteAnswers are answers of the API about a Disbatch site with hostile texts everywhere, and outputs that escapes make
// long.
func siteAnswers(t *testing.T) map[string]string {
	t.Helper()
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	task := codec.DisbatchTask{ID: "0123456789abcdef01234567", Queue: hostileText, QueueID: "q", Status: 7, State: "completed", Node: hostileText}
	full := task
	full.Params = &codec.DisbatchText{Size: 32 << 10, Text: strings.Repeat("[", 32<<10), Cut: true}
	full.Stdout = &codec.DisbatchText{Size: 1 << 30, Bytes: []byte(strings.Repeat("\xff", 32<<10)), Cut: true}
	full.Stderr = &codec.DisbatchText{Size: int64(len(hostileText)), Text: hostileText}
	return map[string]string{
		"/overview": `{"ready":true,"health":"ok","disbatch":true}`,
		"/disbatch": text(codec.DisbatchSite{
			Database: hostileText, Queues: []codec.DisbatchQueue{{ID: "q", Queue: hostileText, Plugin: hostileText, Problem: hostileText, Queued: 1234}},
			Nodes: []codec.DisbatchNode{{Node: hostileText, Problem: hostileText, Late: true}},
		}),
		"/disbatch/tasks": text(codec.DisbatchTasks{Tasks: []codec.DisbatchTask{task}, Next: "next"}),
		"/disbatch/task":  text(full),
		"/disbatch/text":  hostileText,
	}
}

// TestDisbatchPages: the pages of a Disbatch site have what others have written as text alone, and are small whatever
// the size of an output. The menu has them on a node of a site alone.
func TestDisbatchPages(t *testing.T) {
	s := newTestPages(Options{}, fakeAPI(siteAnswers(t)))
	for path, wants := range map[string][]string{
		"/disbatch":                      {"1,234", "silent", `href="/disbatch/tasks?queue=q"`},
		"/disbatch/tasks?status=failed":  {"status 7", `<option selected>failed`, `href="/disbatch/task?id=0123456789abcdef01234567"`, `after=next`},
		"/disbatch/task?id=0123":         {"status 7", "Standard output", "1.0 GiB", "are shown", `href="/disbatch/text?id=0123&amp;name=stdout"`},
		"/disbatch/task?id=0&stdout=hex": {"ff ff ff"},
	} {
		status, text := s.load(t, path)
		if status != http.StatusOK || len(text) > 200_000 {
			t.Errorf("%s: %d, %d bytes", path, status, len(text))
		}
		for _, want := range append(wants, `href="/disbatch" aria-current="page"`, "&lt;script&gt;") {
			if !strings.Contains(text, want) {
				t.Errorf("%s has no %q", path, want)
			}
		}
		if strings.Contains(text, "<script>alert") || strings.Contains(text, "<img") || strings.Contains(text, "\u202e") {
			t.Errorf("%s has a text as markup", path)
		}
	}
	if status, text := s.load(t, "/disbatch/text?id=0&name=stderr"); status != http.StatusOK || text != hostileText {
		t.Errorf("the download: %d, %q", status, text)
	}
	without := newTestPages(Options{}, fakeAPI(map[string]string{"/overview": `{"ready":true,"health":"ok"}`}))
	if _, text := without.load(t, "/docs"); strings.Contains(text, `href="/disbatch"`) {
		t.Error("the menu of a server without a site has one")
	}
}

// TestDisbatchSecrecy: --web-payload hides payloads and outputs of tasks, and refuses their bytes.
func TestDisbatchSecrecy(t *testing.T) {
	s := newTestPages(Options{Payload: "hide"}, fakeAPI(siteAnswers(t)))
	if _, text := s.load(t, "/disbatch/task?id=0"); strings.Count(text, "--web-payload hides it") != 3 || strings.Contains(text, "/disbatch/text") {
		t.Errorf("%.5000s", text)
	}
	if status, _ := s.load(t, "/disbatch/text?id=0&name=stderr"); status != http.StatusForbidden {
		t.Errorf("the download: %d", status)
	}
}

// TestDisbatchAway: without the database of the site a page says so, and keeps what was searched for.
func TestDisbatchAway(t *testing.T) {
	s := newTestPages(Options{}, fakeAPI(map[string]string{"/overview": `{"ready":true,"health":"ok","disbatch":true}`}))
	for path, want := range map[string]string{"/disbatch": "Find tasks", "/disbatch/tasks?node=worker-1": `value="worker-1"`, "/disbatch/task?id=0": `href="/disbatch"`} {
		status, text := s.load(t, path)
		if status != http.StatusServiceUnavailable || !strings.Contains(text, `role="alert"`) || !strings.Contains(text, "No leader is known.") || !strings.Contains(text, want) {
			t.Errorf("%s: %d, %.4000s", path, status, text)
		}
	}
}
