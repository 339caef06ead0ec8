package loop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	codec "treadle/codec/admin"
	"treadle/codec/periodic"
	"treadle/loop/page"
)

// browser loads pages of a test's server as a browser without JavaScript does.
type browser struct {
	t      *testing.T
	r      *testServer
	client http.Client
}

func newBrowser(t *testing.T, r *testServer) *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, r, http.Client{Jar: jar, Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// load loads a page, at its path below the server's address, and returns where it came from at last.
func (b *browser) load(path string, status int) (text, at string) {
	b.t.Helper()
	answer, err := b.client.Get("http://" + b.r.http + path)
	return b.read(path, answer, err, status)
}

// post sends a form.
func (b *browser) post(path string, form url.Values, status int) (text, at string) {
	b.t.Helper()
	answer, err := b.client.PostForm("http://"+b.r.http+path, form)
	return b.read(path, answer, err, status)
}

func (b *browser) read(path string, answer *http.Response, err error, status int) (text, at string) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status {
		b.t.Fatalf("%s: %d, %v: %.500s", path, answer.StatusCode, err, all)
	}
	for name, part := range map[string]string{"Content-Security-Policy": "script-src 'self'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"} {
		if !strings.Contains(answer.Header.Get(name), part) {
			b.t.Errorf("%s: %s is %q", path, name, answer.Header.Get(name))
		}
	}
	return string(all), answer.Request.URL.RequestURI()
}

// pagePaths are the pages that any server has.
var pagePaths = []string{"/", "/queues", "/jobs", "/failed", "/connections", "/dwork", "/kts46", "/cron", "/cluster", "/activity", "/settings", "/docs", "/submit"}

// hostileNames are names that a page must not take for its own words.
var hostileNames = []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "\u202egnp.exe\u2066", "\xff\xfe\x00", "a\nb\r\t\x1b[31m", "{{.}} ${x} `", strings.Repeat("w", 255)}

// tagged matches what would be a tag or an attribute of hostileNames.
var tagged = regexp.MustCompile(`<script>alert|<img src=x|` + "\u202e|\u2066|\x00|\x1b")

// fields matches the values of fields, which have text as it is.
var fields = regexp.MustCompile(`(?s) value="[^"]*"|<textarea.*?</textarea>`)

// TestPages: each page of an empty server, and of one with names, payloads and results that would be markup, is a whole
// page that has them as text alone. What a page links to is there.
func TestPages(t *testing.T) {
	o := Options{HTTP: "127.0.0.1:0"}
	o.Web.Docs, o.Web.Topics = fstest.MapFS{"docs/cluster.md": {Data: []byte("# Cluster: text\n")}}, []string{"cluster"} // pages link to it
	o.Admin.Rules = []PolicyRule{{Pattern: "*", Values: map[string]string{"retries": "0", "keep-failed": "10", "keep-done": "10", "keep-results": "10"}}}
	r := startServer(t, o)
	b, a := newBrowser(t, r), api{t, r}
	for _, path := range pagePaths {
		if text, _ := b.load(path, http.StatusOK); !strings.HasSuffix(text, "</html>\n") || len(text) > 50<<10 {
			t.Errorf("%s: %d bytes, ends with %.40q", path, len(text), text[max(0, len(text)-40):])
		}
	}
	for i, name := range hostileNames {
		job, err := json.Marshal(map[string]any{"queue_b64": []byte(name), "name_b64": []byte(name), "workload_b64": []byte(name)})
		if err != nil {
			t.Fatal(err)
		}
		a.submit(string(job))
		w := r.greet(periodic.Worker)
		w.send(request(1, periodic.CanDo, str8(name)))
		w.ask(2, periodic.Ping, nil, byte(periodic.Pong))
		if i%2 == 0 { // a job that is done, with a result; the others stay with their workers
			var leased codec.Leased
			ask, _ := json.Marshal(map[string]any{"queues": []string{name}, "worker": name})
			if a.do(http.MethodPost, "/reserve", "application/json", bytes.NewReader(ask), &leased); len(leased.Jobs) == 1 {
				report, _ := json.Marshal(map[string]any{"token": leased.Jobs[0].Token, "error": name})
				a.do(http.MethodPost, "/leases/fail", "application/json", bytes.NewReader(report), nil)
			}
		}
	}
	seen := make(map[string]bool)
	for todo := append([]string{}, pagePaths...); len(todo) > 0 && len(seen) < 400; {
		path := todo[0]
		todo = todo[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		text, _ := b.load(path, http.StatusOK)
		if !utf8.ValidString(fields.ReplaceAllString(text, "")) {
			t.Errorf("%s is not UTF-8", path)
		}
		if found := tagged.FindString(fields.ReplaceAllString(text, "")); found != "" && !strings.HasPrefix(path, "/job/") {
			t.Errorf("%s has %q", path, found)
		}
		for _, m := range regexp.MustCompile(` (?:href|src)="(/[^"]*)`).FindAllStringSubmatch(text, -1) {
			if next, _, _ := strings.Cut(html.UnescapeString(m[1]), "#"); !strings.HasPrefix(next, "/job/") && !strings.HasPrefix(next, "/assets/") {
				todo = append(todo, next)
			}
		}
	}
	if len(seen) < 60 {
		t.Errorf("%d pages are linked", len(seen))
	}
	b.load("/queue?queue=nowhere", http.StatusNotFound)
	b.load("/job?id=1.2.999999", http.StatusNotFound)
	b.load("/jobs?filter=color:red", http.StatusBadRequest)
	b.load("/jobs?filter=%zz", http.StatusBadRequest)
}

// TestPageActions: forms change jobs, queues and cron entries, one by one and all that match, and say what came of it.
func TestPageActions(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	b, a := newBrowser(t, r), api{t, r}
	has := func(text, part string) {
		t.Helper()
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in %.3000s", part, text[strings.Index(text, "<main"):])
		}
	}
	text, at := b.post("/do/submit", url.Values{"queue": {"mail"}, "name": {"alice"}, "workload": {"hello"}, "delay": {"1h"}}, http.StatusOK)
	has(text, "Submitted: alice.")
	has(at, "/queue?notice=")
	id := a.ids("queue:mail")["alice"]
	self := "/job?id=" + id
	text, at = b.post("/do/jobs", url.Values{"do": {"run"}, "id": {id}, "back": {self}}, http.StatusOK)
	has(text, "1 job made ready now.")
	if !strings.HasPrefix(at, self) {
		t.Errorf("the answer is at %s", at)
	}
	text, _ = b.post("/do/jobs", url.Values{"do": {"retry"}, "id": {id}, "back": {self}}, http.StatusOK)
	has(text, `class="notice failed"`)
	text, _ = b.post("/do/queue", url.Values{"do": {"pause"}, "what": {"hand-out"}, "queue": {fmt.Sprintf("%x", "mail")}, "why": {"deploy"}, "by": {"ana"}, "back": {"/queue?queue=mail"}}, http.StatusOK)
	has(text, "Paused: hands out no jobs, by ana: deploy.")
	text, _ = b.load("/confirm?do=remove&id="+id, http.StatusOK)
	has(text, `value="ana"`) // it is remembered
	b.post("/do/queue", url.Values{"do": {"resume"}, "queue": {fmt.Sprintf("%x", "mail")}}, http.StatusOK)
	if q := a.queue("mail"); q.Paused != "" && q.Paused != "no" {
		t.Errorf("%+v", q)
	}

	a.many("bulk", 1500)
	text, _ = b.load("/confirm?do=remove&filter=queue:bulk", http.StatusOK)
	has(text, "Type 1500 to confirm")
	form := url.Values{"do": {"remove"}, "filter": {"queue:bulk"}, "count": {"1500"}, "back": {"/jobs"}}
	text, _ = b.post("/do/jobs", form, http.StatusOK)
	has(text, "type the number of jobs to confirm")
	for _, wrong := range [][2]string{{"1499", "1500"}, {"1499", "1499"}, {"", ""}} { // typed, asked
		form.Set("typed", wrong[0])
		form.Set("count", wrong[1])
		b.post("/do/jobs", form, http.StatusOK)
	}
	if q := a.queue("bulk"); q.Delayed != 1500 {
		t.Errorf("%d jobs are left without a confirmation", q.Delayed)
	}
	form.Set("typed", "1,500")
	form.Set("count", "1500")
	_, at = b.post("/do/jobs", form, http.StatusOK)
	for n := 0; ; n++ {
		if text, _ = b.load(at, http.StatusOK); strings.Contains(text, "</svg>done</span>") {
			break
		} else if n > 1000 {
			t.Fatal("the operation does not end")
		}
	}
	has(text, "<dt>Changed</dt><dd>1,500</dd>")
	for _, back := range []string{"https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)"} {
		if _, at := b.post("/do/queue", url.Values{"do": {"resume"}, "queue": {fmt.Sprintf("%x", "mail")}, "back": {back}}, http.StatusOK); !strings.HasPrefix(at, "/?notice=") {
			t.Errorf("back to %s leads to %s", back, at)
		}
	}
	if _, at := b.post("/theme", url.Values{"theme": {"dark"}, "back": {"/queues"}}, http.StatusOK); at != "/queues" {
		t.Errorf("the theme leads to %s", at)
	}
	text, _ = b.load("/", http.StatusOK)
	has(text, "submitted")
	if !strings.Contains(text, `data-theme="dark"`) {
		t.Error("the theme is not kept")
	}
}

// TestPagesReadOnly: a read-only server has no control that changes something, and refuses what controls would send.
// Off there are no pages, and a path is in front of all of them.
func TestPagesReadOnly(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Web: WebOptions{Web: page.ReadOnly, Path: "/x/y/"}})
	b, a := newBrowser(t, r), api{t, r}
	a.submit(`{"queue":"mail","name":"alice"}`)
	id := a.ids("queue:mail")["alice"]
	for _, path := range append([]string{"/queue?queue=mail", "/job?id=" + id}, pagePaths[:12]...) {
		text, _ := b.load("/x/y"+path, http.StatusOK)
		if !strings.Contains(text, "Read only") {
			t.Errorf("%s does not say that it is read only", path)
		}
		for _, m := range regexp.MustCompile(` (?:href|src|action)="([^"]*)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "/do/") || strings.Contains(m[1], "/confirm") || strings.HasPrefix(m[1], "/") && !strings.HasPrefix(m[1], "/x/y") {
				t.Errorf("%s has %s", path, m[1])
			}
		}
	}
	for what := range map[string]bool{"jobs": true, "queue": true, "connection": true, "cron": true, "operation": true, "submit": true} {
		b.post("/x/y/do/"+what, url.Values{"do": {"remove"}, "id": {id}, "queue": {"6d61696c"}}, http.StatusForbidden)
	}
	b.load("/x/y/confirm?do=remove&id="+id, http.StatusForbidden)
	b.load("/x/y/submit", http.StatusForbidden)
	if q := a.queue("mail"); q.Ready != 1 {
		t.Errorf("%+v", q)
	}
	off := startServer(t, Options{HTTP: "127.0.0.1:0", Web: WebOptions{Web: page.Off}})
	if answer, err := http.Get("http://" + off.http + "/queues"); err != nil || answer.StatusCode != http.StatusNotFound {
		t.Errorf("%v, %v", answer, err)
	} else {
		answer.Body.Close()
	}
}

// TestPageStream: the stream of a page says what has changed on it, and nothing else. One of another page is refused.
func TestPageStream(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	b, a := newBrowser(t, r), api{t, r}
	a.submit(`{"queue":"mail","name":"alice"}`)
	for _, at := range []string{"", "/nowhere", "//evil.example/", "/live", "/do/jobs", "/assets/x"} {
		b.load("/live?at="+url.QueryEscape(at), http.StatusNotFound)
	}
	answer, err := b.client.Get("http://" + r.http + "/live?at=" + url.QueryEscape("/queue?queue=mail"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	event := func() (changed map[string]string) {
		t.Helper()
		for lines.Scan() {
			text, found := strings.CutPrefix(lines.Text(), "data: ")
			if !found {
				continue
			}
			var all [][2]string
			if err := json.Unmarshal([]byte(text), &all); err != nil {
				t.Fatal(err)
			}
			changed = make(map[string]string)
			for _, one := range all {
				changed[one[0]] = one[1]
			}
			return changed
		}
		t.Fatalf("the stream ends: %v", lines.Err())
		return nil
	}
	if first := event(); first["ready"] != "1" || first["failed"] != "0" {
		t.Errorf("the first event has %v", first)
	}
	a.submit(`{"queue":"mail","name":"bob"}`)
	for n := 0; ; n++ {
		changed := event()
		if changed["ready"] == "2" {
			if _, same := changed["failed"]; same {
				t.Errorf("a cell that has not changed is sent: %v", changed)
			}
			return
		}
		if n > 10 {
			t.Fatal("the change is not sent")
		}
	}
}

// TestPageStreams: there are at most a hundred streams, and no more than half of the connections that the API may have:
// the others are told to come again, and the API is reached. A stream that ends makes room for another.
func TestPageStreams(t *testing.T) {
	f := func(connections, most int) {
		t.Helper()
		r := startServer(t, Options{HTTP: "127.0.0.1:0", MaxAPIConnections: connections})
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		open := func() (*http.Response, bool) {
			t.Helper()
			answer, err := client.Get("http://" + r.http + "/live?at=/docs")
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode == http.StatusOK {
				return answer, true
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
				t.Fatalf("%d connections: %s, %v", connections, answer.Status, answer.Header)
			}
			return nil, false
		}
		var streams []*http.Response
		for n := range most + 3 {
			answer, opened := open()
			if opened {
				streams = append(streams, answer)
				defer answer.Body.Close()
			}
			if opened != (n < most) {
				t.Errorf("%d connections: stream %d of %d is open: %v", connections, n+1, most, opened)
			}
		}
		c := r.apiConn()
		r.until("the API answers", func() bool { // a refused stream's connection may take a moment to end
			status, _, _ := c.get("/api/v1/queues")
			return status == http.StatusOK
		})
		if most == 0 {
			return
		}
		streams[0].Body.Close()
		r.until("there is room for another stream", func() bool {
			answer, opened := open()
			if opened {
				answer.Body.Close()
			}
			return opened
		})
	}
	f(1, 0)
	f(7, 3)
	f(1024, 100)
}
