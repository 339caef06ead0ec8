package kts46

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	codec "treadle/codec/kts46"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files in testdata")

// dates matches times as both versions and the faults of version 1 write them.
var dates = regexp.MustCompile(`\d{8}T\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{6})?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)

// script compares Treadle's answers with captured ones. The golden file has a line for each exchange. Where Treadle's
// answer differs, it follows, with a line why.
type script struct {
	*testHub
	why  map[int]string
	got  strings.Builder
	same int
}

// judge writes one exchange.
func (s *script) judge(i int, request, reference, answer string) {
	s.t.Helper()
	reference, answer = dates.ReplaceAllString(reference, "DATE"), dates.ReplaceAllString(answer, "DATE")
	fmt.Fprintf(&s.got, "> %d %s\n", i, request)
	why, may := s.why[i]
	switch {
	case answer == reference:
		if may {
			s.t.Errorf("exchange %d is the same as the reference's, though %s", i, why)
		}
		s.same++
		s.got.WriteString("= as the reference\n")
	case !may:
		s.t.Errorf("exchange %d, %s: got\n%s\nthe reference answered\n%s", i, request, answer, reference)
	default:
		fmt.Fprintf(&s.got, "! %s:\n%s\n", why, strings.TrimSuffix(answer, "\n"))
	}
}

// end compares the result with the golden file.
func (s *script) end(file, head string, least int) {
	s.t.Helper()
	path := "testdata/" + file
	got := head + s.got.String()
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || got != string(want) {
		s.t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
	if s.same < least {
		s.t.Errorf("%d answers are the reference's, want %d at least", s.same, least)
	}
}

// has makes a job with a number of steps done.
func (r *testHub) has(project, job, definition string, done int64, finished bool) {
	r.t.Helper()
	if r.projects[project] == nil {
		r.does("createProject", project)
	}
	if r.projects[project].jobs[job] != nil {
		r.does("deleteJob", project, job)
	}
	r.does("addJob", project, job, definition)
	j := r.projects[project].jobs[job]
	j.progress.Done, j.progress.Finished = done, finished
}

const v1Head = `# The captured conversation of the original clients with the original scheduler, version 1, played to Treadle; the
# requests are sent byte for byte but for the dates, which are those that Treadle gave. Answers are compared byte for byte
# with DATE for each date. Where Treadle answers otherwise its answer is here, and why.
`

// TestKts46GoldenV1 plays codec/kts46/testdata/v1.txt.
func TestKts46GoldenV1(t *testing.T) {
	s := &script{testHub: newTestHub(t, Options{Timeout: time.Second}), why: map[int]string{
		0:  "the greeting is Treadle's own",
		13: "an unknown state is refused",
		37: "the task that the worker holds is not lost: it is put back and handed out again",
	}}
	r := s.testHub
	r.has("proj", "done", definition(3, 1, 1), 3, true)
	r.has("proj", "stat", definition(3, 1, 1), 3, false)
	between := map[int]func(){ // events that the capture does not show
		31: func() { // the reference had queued it twice
			r.has("proj", "stat", definition(3, 1, 1), 3, false)
			r.does("runJob", "proj", "stat")
		},
		40: func() {
			r.has("proj", "job1", definition(3, 1, 1), 0, false)
			r.does("runJob", "proj", "job1")
		},
		64: func() {
			r.has("proj", "job1", definition(3, 1, 1), 2, false)
			r.does("runJob", "proj", "job1")
		},
	}
	text, err := os.ReadFile("../../codec/kts46/testdata/v1.txt")
	if err != nil {
		t.Fatal(err)
	}
	last := make(map[string]codec.DateTime) // by worker
	for i, part := range strings.Split(string(text), ">>> ")[1:] {
		if f := between[i]; f != nil {
			f()
		}
		request, reference, _ := strings.Cut(part, "<<< ")
		_, body, _ := strings.Cut(request, "\r\n\r\n")
		_, reference, _ = strings.Cut(reference, "\r\n\r\n")
		call, err := codec.ReadCall(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		worker := ""
		if len(call.Params) > 0 {
			worker, _ = call.Params[0].(string)
		}
		for k, p := range call.Params {
			if d, ok := p.(codec.DateTime); ok && !strings.HasPrefix(string(d), "2011") {
				call.Params[k] = last[worker]
			}
		}
		answer := post(s.serveXML, "/RPC2", string(codec.AppendCall(nil, call.Method, call.Params...))).Body.String()
		s.judge(i, fmt.Sprintf("%s%q", call.Method, call.Params), reference, answer)
		if d := regexp.MustCompile(`<dateTime.iso8601>(.*?)<`).FindStringSubmatch(answer); d != nil && (call.Method == "getJob" || call.Method == "reportStatus") {
			last[worker] = codec.DateTime(d[1])
		}
	}
	text = []byte(dates.ReplaceAllString(s.got.String(), "DATE"))
	s.got.Reset()
	s.got.Write(text)
	s.end("v1.txt", v1Head, 80)
}

const v2Head = `# The captured conversation with the original scheduler, version 2, played to Treadle; signatures are those that Treadle
# gave. Answers are compared byte for byte with DATE for each date. Where Treadle answers otherwise its answer is here, and why.
`

// TestKts46GoldenV2 plays codec/kts46/testdata/v2.txt.
func TestKts46GoldenV2(t *testing.T) {
	s := &script{testHub: newTestHub(t, Options{Databases: []string{"192.168.1.5:27017"}}), why: map[int]string{
		0:  "the greeting is Treadle's own",
		23: "a task that was updated since is not restarted, as the document says",
		27: "the members have one order",
		30: "the steps of the batch that is done are counted",
		39: "the reference never answered",
		43: "the greeting is Treadle's own",
		44: "the greeting is Treadle's own",
	}}
	r := s.testHub
	r.has("node_test", "undone", definition(10, 1, 5), 0, false)
	r.has("node_test", "done", definition(10, 1, 5), 10, true)
	r.has("node_test", "simdone", definition(10, 1, 5), 10, false)
	text, err := os.ReadFile("../../codec/kts46/testdata/v2.txt")
	if err != nil {
		t.Fatal(err)
	}
	last := make(map[string]string) // by worker
	i := 0
	for line := range strings.Lines(string(text)) {
		request, reference, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " -> ")
		if !ok || request == "" || request == "{}" { // the answer to a GET, a blank line, another path
			continue
		}
		if i == 25 { // the reference had restarted it
			r.wants(`{"restarted":1}`, "restartTasks", []any{map[string]string{"id": "w1", "sig": last["w1"]}})
		}
		request = strings.Trim(request, "b'")
		var named struct{ Params []any }
		_ = json.Unmarshal([]byte(request), &named) // some are no requests
		worker := ""
		if len(named.Params) > 0 {
			worker, _ = named.Params[0].(string)
		}
		w := post(s.serveJSON, "/jsonrpc", dates.ReplaceAllString(request, last[worker]))
		answer := fmt.Sprintf("%d %s %s", w.Code, w.Header().Get("Content-Type"), w.Body)
		s.judge(i, dates.ReplaceAllString(request, "DATE"), reference, answer)
		if _, sig, ok := strings.Cut(answer, `"sig":"`); ok && worker != "" {
			last[worker] = sig[:24]
		}
		r.advance(time.Millisecond)
		i++
	}
	s.end("v2.txt", v2Head, 35)

	// The rest: another path, and the status, whose members the reference has too, except the database.
	if w := post(s.serveJSON, "/", "{}"); w.Code != 404 || w.Body.String() != "Unknown path!\n" || w.Header().Get("Content-Type") != "text/plain" {
		t.Errorf("another path: %d %v %q", w.Code, w.Header(), w.Body)
	}
	status := get(t, s.serveJSON)
	var waiting []string
	for _, q := range status.WaitingQueue {
		waiting = append(waiting, q.Project+" "+q.Job+" "+q.Type)
	}
	if got := strings.Join(waiting, ", "); got != "node_test simdone idleTimes" {
		t.Errorf("waiting: %s", got)
	}
	if a := status.WaitingActivation; len(a) != 2 || a["w5"].Type != "throughput" || a["w6"].Type != "basicStatistics" || len(status.RunningTasks) != 0 {
		t.Errorf("waiting for activation: %+v, running: %+v", a, status.RunningTasks)
	}
	r.json("acceptTask", "w5", last["w5"])
	if status = get(t, s.serveJSON); len(status.WaitingActivation) != 1 || status.RunningTasks["w5"] == nil {
		t.Errorf("running: %+v", status.RunningTasks)
	}
}
