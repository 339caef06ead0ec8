package loop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	codec "treadle/codec/admin"
	"treadle/codec/periodic"
)

// api calls the HTTP API of a test's server.
type api struct {
	t *testing.T
	r *testServer
}

// do sends a request and decodes the answer, unless into is nil. It returns the status.
func (a api) do(method, path, kind string, body io.Reader, into any) int {
	a.t.Helper()
	ask, err := http.NewRequestWithContext(a.t.Context(), method, "http://"+a.r.http+"/api/v1"+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	ask.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			a.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return answer.StatusCode
}

const ndjson = "application/x-ndjson"

func (a api) submit(job string) (s codec.Submitted) {
	a.t.Helper()
	if code := a.do(http.MethodPost, "/jobs", "application/json", strings.NewReader(job), &s); code != http.StatusOK {
		a.t.Fatalf("%s: %d", job, code)
	}
	return s
}

func (a api) queue(name string) (q codec.Queue) {
	a.t.Helper()
	var page codec.Queues
	if code := a.do(http.MethodGet, "/queues?queue="+name, "", nil, &page); code != http.StatusOK {
		a.t.Fatalf("queue %s: %d", name, code)
	}
	return page.Queues[0]
}

// TestAPISubmit: a job is submitted with all of its members, and a worker receives them.
func TestAPISubmit(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	a.submit(`{"queue":"f","name":"later","delay":"1h"}`)
	a.submit(`{"queue":"f","name":"past","at":5,"workload":"p"}`)
	a.submit(`{"queue":"f","name":"first","priority":7,"workload_json":{"n": 1.50}}`)
	a.submit(`{"queue":"f","name_b64":"/w==","workload_b64":"/w==","at":6,"timeout":1.5}`)
	a.submit(`{"queue":"g","name":"\\\ud83d\ude00","delay":null,"at":null,"wait":null,"workload":null}`)
	if s := a.submit(`{"queue":"f"}`); len(s.Name) < 20 || s.State != "submitted" {
		t.Errorf("a job without a name became %+v", s)
	}
	if q := a.queue("f"); q.Ready != 4 || q.Delayed != 1 || q.Workers != 0 {
		t.Errorf("%+v", q)
	}
	w := r.greet(periodic.Worker)
	w.send(request(1, periodic.CanDo, str8("f")))
	for id, want := range []periodic.Job{
		{Name: []byte("first"), Workload: []byte(`{"n": 1.50}`)},
		{Name: []byte("past"), Workload: []byte("p"), SchedAt: 5},
		{Name: []byte("\xff"), Workload: []byte("\xff"), SchedAt: 6, Timeout: 2},
	} {
		w.send(request(uint32(id+2), periodic.GrabJob))
		_, got := assigned(t, w.next())
		if want.Func = []byte("f"); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestAPIIdempotencyKey: the header is the name of a job that has none, so that a call that is repeated adds no job.
func TestAPIIdempotencyKey(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	submit := func(key, job string) int {
		ask, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.http+"/api/v1/jobs", strings.NewReader(job))
		if err != nil {
			t.Fatal(err)
		}
		ask.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}}
		answer, err := http.DefaultClient.Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	for _, key := range []string{`"a"`, `"a"`, "\xff", "b"} {
		if code := submit(key, `{"queue":"f"}`); code != http.StatusOK {
			t.Errorf("%q: %d", key, code)
		}
	}
	if q := a.queue("f"); q.Ready != 3 {
		t.Errorf("%+v", q)
	}
	for key, job := range map[string]string{"a": `{"queue":"f","name":"b"}`, strings.Repeat("k", 256): `{"queue":"f"}`} {
		if code := submit(key, job); code != http.StatusBadRequest {
			t.Errorf("%q, %s: %d", key, job, code)
		}
	}
}

// TestAPIWait: a submission that waits is answered with the end of the job. When the time is over before, the job
// stays.
func TestAPIWait(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	if s := a.submit(`{"queue":"f","name":"stays","wait":0.001}`); s.State != "pending" {
		t.Errorf("%+v", s)
	}
	if q := a.queue("f"); q.Ready != 1 {
		t.Errorf("the job went with its wait: %+v", q)
	}
	w := r.greet(periodic.Worker)
	w.send(request(1, periodic.CanDo, str8("f")))
	end := func(name string, cmd periodic.Command, data string) {
		for {
			w.send(request(2, periodic.GrabJob))
			handle, j := assigned(t, w.next())
			if string(j.Name) == name {
				w.send(request(3, cmd, handle, []byte(data)))
				return
			}
			w.send(request(3, periodic.WorkDone, handle))
		}
	}
	for _, c := range []struct{ name, data, want string }{
		{"text", "grüße", `"done" "grüße" ""`}, {"bytes", "\xff", `"done" "" "\xff"`}, {"empty", "", `"done" "" ""`},
	} {
		answer := make(chan codec.Submitted, 1)
		go func() { answer <- a.submit(`{"queue":"f","name":"` + c.name + `","wait":"1m"}`) }()
		end(c.name, periodic.WorkDone, c.data)
		s := <-answer
		text := ""
		if s.Result != nil {
			text = *s.Result
		}
		if got := fmt.Sprintf("%q %q %q", s.State, text, s.ResultBytes); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	answer := make(chan codec.Submitted, 1)
	go func() { answer <- a.submit(`{"queue":"f","name":"gone","delay":"1h","wait":"1m"}`) }()
	r.until("the job is there", func() bool { return a.queue("f").Delayed == 1 })
	r.greet(periodic.Client).ask(1, periodic.RemoveJob, append(str8("f"), str8("gone")...), byte(periodic.Success))
	if s := <-answer; s.State != "removed" {
		t.Errorf("%+v", s)
	}
}

// TestAPILines: each line is a job of its own. A line that is refused does not hold up the others.
func TestAPILines(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", MaxFrame: 1 << 16, Loops: 2})
	a := api{t, r}
	var body bytes.Buffer
	const jobs = 3 * linesOfTest
	for n := range jobs {
		fmt.Fprintf(&body, `{"queue":"f","name":"%d","workload":"w"}`+"\n", n)
	}
	body.WriteString("\n  \r\nnonsense\n" + `{"queue":"f","wait":1}` + "\n" + `{"queue":"f","workload":"`)
	body.Write(bytes.Repeat([]byte("x"), 1<<17))
	body.WriteString("\"}\n" + `{"queue":"f","workload":"`)
	body.Write(bytes.Repeat([]byte("x"), 1<<16))
	body.WriteString("\"}\n" + `{"queue":"f","name":"last"}`)
	var got codec.SubmittedLines
	if code := a.do(http.MethodPost, "/jobs", ndjson, &body, &got); code != http.StatusOK || got.Submitted != jobs+1 || got.Refused != 4 || got.Error != "" {
		t.Fatalf("%d %+v", code, got)
	}
	for i, want := range []struct {
		line int
		text string
	}{{jobs + 3, "invalid character"}, {jobs + 4, "no wait"}, {jobs + 5, "longer than --max-frame"}, {jobs + 6, "larger than --max-frame"}} {
		if e := got.Errors[i]; e.Line != want.line || !strings.Contains(e.Error, want.text) {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
	if q := a.queue("f"); q.Ready != jobs+1 {
		t.Errorf("%+v", q)
	}
}

// linesOfTest is more jobs than the API submits before it asks the journal to write some.
const linesOfTest = 10_000

// TestAPIBrokenLines: the jobs of the lines before a body's end are submitted.
func TestAPIBrokenLines(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	c, err := net.Dial("tcp", r.http)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n"+`{"queue":"f","name":"one"}`+"\n"+`{"queue":"f"`, ndjson)
	r.until("the first line is submitted", func() bool {
		return a.do(http.MethodGet, "/queues?queue=f", "", nil, nil) == http.StatusOK
	})
	_ = c.Close()
	if q := a.queue("f"); q.Ready != 1 {
		t.Errorf("%+v", q)
	}
}

// TestAPIRefuses: an invalid request is refused with a status and a text that says why.
func TestAPIRefuses(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", MaxFrame: 1 << 16, Admin: AdminOptions{Rules: []PolicyRule{{Pattern: "full", Values: map[string]string{"max-jobs": "0", "paused": "submits"}}}}})
	a := api{t, r}
	deep := strings.Repeat("[", 100_000)
	for _, c := range []struct {
		body string
		code int
		want string
	}{
		{`{"queue":"f","nam":"x"}`, 400, `unknown field`},
		{`{"queue":"f"} {}`, 400, "more than one JSON value"},
		{`{"queue":"f"`, 400, "not complete"},
		{``, 400, "no JSON value"},
		{`[]`, 400, "the value is a JSON array: it must be an object"},
		{`{"queue":7}`, 400, "queue is a JSON number: it must be a string"},
		{"{\"queue\":\"f\",\"name\":\"\xff\"}", 400, "not UTF-8"},
		{`{"queue":"f","name":"\ud800"}`, 400, "not UTF-8"},
		{`{"queue":"f","name":"\\\ud83d\ude00\uDE00"}`, 400, "not UTF-8"},
		{`{"queue":"f","at":"0001-01-01T00:00:00Z"}`, 400, "is no moment"},
		{`{"` + strings.Repeat("x", 1<<15) + `":1}`, 400, "..."},
		{`{}`, 400, "no queue"},
		{`{"queue":"f","queue_b64":"Zg=="}`, 400, "give one"},
		{`{"queue":"f","workload":"x","workload_json":1}`, 400, "give one"},
		{`{"queue":"` + strings.Repeat("f", 256) + `"}`, 400, "at most 255 bytes"},
		{`{"queue":"f","delay":"-1s"}`, 400, "not from 0"},
		{`{"queue":"f","delay":"soon"}`, 400, "is no time"},
		{`{"queue":"f","delay":1e400}`, 400, ""},
		{`{"queue":"f","delay":"999999999h"}`, 400, "is no"},
		{`{"queue":"f","at":"tomorrow"}`, 400, "is no moment"},
		{`{"queue":"f","at":-5}`, 400, "is no moment"},
		{`{"queue":"f","at":5,"delay":5}`, 400, "not both"},
		{`{"queue":"f","priority":9223372036854775808}`, 400, "a whole number of 64 bits"},
		{`{"queue":"f","wait":"6m"}`, 400, "longer than 5m"},
		{`{"queue":"f","workload_json":` + deep + `}`, 400, ""},
		{`{"queue":"f","workload":"` + strings.Repeat("x", 1<<16) + `"}`, 413, "--max-frame"},
		{`{"queue":"f","workload":"` + strings.Repeat("x", 1<<18) + `"}`, 413, "--max-frame"},
		{`{"queue":"full"}`, 429, "policy"},
	} {
		var e codec.Error
		if code := a.do(http.MethodPost, "/jobs", "application/json", strings.NewReader(c.body), &e); code != c.code || !strings.Contains(e.Error, c.want) || e.Error == "" {
			t.Errorf("%.60s: got %d %q, want %d %q", c.body, code, e.Error, c.code, c.want)
		}
	}
	if code := a.do(http.MethodPost, "/jobs", "text/plain", strings.NewReader(`{"queue":"f"}`), nil); code != http.StatusUnsupportedMediaType {
		t.Errorf("text/plain: %d", code)
	}
	for _, path := range []string{"/queues?limit=0", "/queues?limit=-1", "/queues?limit=1001", "/queues?after=%21"} {
		if code := a.do(http.MethodGet, path, "", nil, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d", path, code)
		}
	}
	for path, want := range map[string]string{
		"GET /jobs?filters=queue:f":  `GET /api/v1/jobs has no parameter "filters", but filter, time, limit, after`,
		"GET /queues?limit=3&Sort=a": `GET /api/v1/queues has no parameter "Sort", but queue, prefix, contains, sort, limit, after`,
		"POST /reserve?wait=1s":      `POST /api/v1/reserve takes no parameter in the address, and has "wait"`,
		"GET /settings?%zz":          `the parameters of the address cannot be read: invalid URL escape "%zz"`,
	} {
		var e codec.Error
		method, path, _ := strings.Cut(path, " ")
		if code := a.do(method, path, "", nil, &e); code != http.StatusBadRequest || e.Error != want {
			t.Errorf("%s: %d %s, want %s", path, code, e.Error, want)
		}
	}
	for path, want := range map[string]string{"/jobs": "GET or POST", "/reserve": "POST", "/audit": "GET"} {
		var e codec.Error
		if code := a.do(http.MethodDelete, path, "", nil, &e); code != http.StatusMethodNotAllowed || !strings.HasSuffix(e.Error, path+" takes "+want+", not DELETE") {
			t.Errorf("DELETE %s: %d %s", path, code, e.Error)
		}
	}
	if code := a.do(http.MethodGet, "/jobs/", "", nil, nil); code != http.StatusNotFound {
		t.Errorf("a request that there is not: %d", code)
	}
	if code := a.do(http.MethodGet, "/queues?queue=f", "", nil, nil); code != http.StatusNotFound {
		t.Errorf("a queue of refused jobs: %d", code)
	}
}

// TestAPIOwnerOnly: the port reloads nothing. The pages of other sites reach nothing.
func TestAPIOwnerOnly(t *testing.T) {
	t.Parallel()
	a := api{t, startServer(t, Options{HTTP: "127.0.0.1:0"})}
	if code := a.do(http.MethodPost, "/reload", "application/json", nil, nil); code != http.StatusForbidden {
		t.Errorf("POST /reload: %d", code)
	}
	for _, head := range [][2]string{{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Host", "evil.example"}} {
		ask, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.r.http+"/api/v1/jobs", strings.NewReader(`{"queue":"f"}`))
		if err != nil {
			t.Fatal(err)
		}
		ask.Header.Set("Content-Type", "application/json")
		if ask.Header.Set(head[0], head[1]); head[0] == "Host" {
			ask.Host = head[1]
		}
		answer, err := http.DefaultClient.Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden && answer.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("%v: %d", head, answer.StatusCode)
		}
	}
	if code := a.do(http.MethodGet, "/queues?queue=f", "", nil, nil); code != http.StatusNotFound {
		t.Errorf("a page of another site has submitted a job: %d", code)
	}
}

// TestAPIStopsWaits: a server that stops answers the submissions that wait.
func TestAPIStopsWaits(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	answer := make(chan codec.Submitted, 1)
	go func() { answer <- a.submit(`{"queue":"f","wait":"1m"}`) }()
	r.until("the job is there", func() bool { return a.do(http.MethodGet, "/queues?queue=f", "", nil, nil) == http.StatusOK })
	r.stop()
	if s := <-answer; s.State != "pending" {
		t.Errorf("%+v", s)
	}
}
