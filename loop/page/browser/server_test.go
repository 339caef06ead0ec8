package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for an event that must come, on a machine that does much else.
const patience = 2 * time.Minute

// server is a Treadle program, on ports of its own.
type server struct {
	t    *testing.T
	root string    // the address of its pages
	end  func()    // stops the program
	says io.Reader // what the program prints
	args []string
}

// serve starts a server in memory, with an HTTP port alone, until the end of the test.
func serve(t *testing.T, flags ...string) *server {
	t.Helper()
	return start(t, append([]string{
		"serve", "--data", "none", "--http", "127.0.0.1:0", "--periodic", "off", "--gloom-masters", "off", "--gloom-slaves", "off",
		"--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--beanstalk", "off", "--faktory", "off",
	}, flags...)...)
}

// address finds the address of the pages in a line of the program's.
var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// launch starts the program until the end of the test.
func launch(t *testing.T, args ...string) *server {
	t.Helper()
	program := os.Getenv("TREADLE_BINARY")
	if program == "" {
		t.Fatal("TREADLE_BINARY does not name the program to test: run make browser")
	}
	cmd := exec.Command(program, args...)
	says, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		in.Close()
	})
	t.Cleanup(end)
	return &server{t: t, end: end, says: says, args: args}
}

// start launches the program, and waits until it serves its pages.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	s := launch(t, args...)
	found := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(s.says); lines.Scan(); {
			if root := address.FindString(lines.Text()); root != "" {
				select {
				case found <- root:
				default:
				}
			}
		}
	}()
	select {
	case s.root = <-found:
	case <-time.After(patience):
		t.Fatal("the program does not start")
	}
	s.awaitStatus(http.StatusOK)
	return s
}

// cluster starts three nodes of a cluster. They are returned when each reaches a leader.
func cluster(t *testing.T) (nodes []*server) {
	t.Helper()
	var (
		ports []int
		open  []net.Listener
	)
	for range 6 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		open = append(open, l)
	}
	for _, l := range open { // all were open at a time, so that no two are the same
		l.Close()
	}
	peers := fmt.Sprintf("a=127.0.0.1:%d,b=127.0.0.1:%d,c=127.0.0.1:%d", ports[0], ports[1], ports[2])
	for i, id := range []string{"a", "b", "c"} {
		http, dir := fmt.Sprintf("127.0.0.1:%d", ports[3+i]), t.TempDir()
		s := launch(t, "serve", "--cluster", "jobs", "--node", id, "--peers", peers, "--data", filepath.Join(dir, "data"), "--run-dir", dir,
			"--only", "periodic", "--periodic", "unix://"+filepath.Join(dir, "p"), "--http", http)
		go func() { _, _ = io.Copy(io.Discard, s.says) }()
		s.root = "http://" + http
		nodes = append(nodes, s)
	}
	for _, s := range nodes {
		s.awaitStatus(http.StatusOK)
	}
	return nodes
}

// again starts the program of a node that has ended.
func (s *server) again() {
	s.t.Helper()
	next := launch(s.t, s.args...)
	go func() { _, _ = io.Copy(io.Discard, next.says) }()
}

// awaitStatus waits until /readyz answers with a status.
func (s *server) awaitStatus(status int) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(pollPause) {
		if answer, err := http.Get(s.root + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == status {
				return
			}
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("/readyz does not answer %d", status)
		}
	}
}

// api sends a request of the HTTP API: lines of JSON as a string, or a value as JSON.
func (s *server) api(path string, body any) map[string]any {
	s.t.Helper()
	text, ok := body.(string)
	kind := "application/x-ndjson"
	if !ok {
		all, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		text, kind = string(all), "application/json"
	}
	answer, err := http.Post(s.root+"/api/v1"+path, kind, strings.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.decode(path, answer)
}

// get reads from the HTTP API.
func (s *server) get(path string) map[string]any {
	s.t.Helper()
	answer, err := http.Get(s.root + "/api/v1" + path)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.decode(path, answer)
}

// decode reads an answer of the API.
func (s *server) decode(path string, answer *http.Response) (v map[string]any) {
	s.t.Helper()
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err == nil {
		err = json.Unmarshal(all, &v)
	}
	if err != nil || answer.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v: %.500s", path, answer.Status, err, all)
	}
	return v
}

// page returns the HTML of a page.
func (s *server) page(path string) []byte {
	s.t.Helper()
	answer, err := http.Get(s.root + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s, %v", path, answer.Status, err)
	}
	return all
}

// first returns the id of a job of a filter, after it has waited for one.
func (s *server) first(filter string) string {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(pollPause) {
		if jobs := s.get("/jobs?limit=1&filter=" + url.QueryEscape(filter))["jobs"].([]any); len(jobs) > 0 {
			return jobs[0].(map[string]any)["id"].(string)
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("there is no job of %s", filter)
		}
	}
}

// rules keep failed and done jobs, and one entry of cron.
const rules = `
[queue."*"]
retries = 0
keep-failed = "1000, 1d"
keep-done = "1000, 1d"
keep-results = "1000, 1d"
[[cron]]
name = "nightly"
schedule = "30 2 * * *"
zone = "Europe/Berlin"
queue = "backup"
`

// configured writes a configuration with rules and returns its flag.
func configured(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "treadle.toml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--config", file}
}

// fill gives a server jobs of mail.welcome: 15 done, 20 failed, 5 running and the rest ready.
func (s *server) fill() {
	s.t.Helper()
	var lines strings.Builder
	for n := range 100 {
		fmt.Fprintf(&lines, `{"queue":"mail.welcome","name":"user-%d","workload_json":{"to":"user%d@example.org","n":12345678901234567890}}`+"\n", n, n)
	}
	s.api("/jobs", lines.String())
	leased := s.api("/reserve", map[string]any{"queues": []string{"mail.welcome"}, "jobs": 40, "lease": "10m", "worker": "mailer-1"})
	for n, one := range leased["jobs"].([]any) {
		token := one.(map[string]any)["token"]
		switch {
		case n < 20:
			s.api("/leases/fail", map[string]any{"token": token, "error": fmt.Sprintf("550 user %d: no such <b>mailbox</b>\nsecond line", n)})
		case n < 35:
			s.api("/leases/done", map[string]any{"token": token, "result": `{"ok":true,"id":10000000000000000001}`})
		}
	}
}

// hostile are names and payloads that a page must not take for its own words: tags, attributes, marks that turn the
// direction of text, bytes that are no UTF-8, control characters, names as long as there can be.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'-alert(1)-'`, "\u202egnp.exe\u2066\u200f", "\xff\xfe\x00", "a\nb\x1b[31m",
	strings.Repeat("w", 255), strings.Repeat("\xff", 255), strings.Repeat("\u202e", 85),
}

// submitHostile gives a server two jobs of each hostile name, with the same workload, worker and result or error: one
// is done, one has failed.
func (s *server) submitHostile() {
	s.t.Helper()
	for _, name := range hostile {
		queue := []byte(name)
		for _, end := range []string{"done", "fail"} {
			s.api("/jobs", map[string]any{"queue_b64": queue, "name_b64": hostileName(name, end), "workload_b64": queue})
			report := map[string]any{"token": s.lease(queue, name), "result_b64": queue}
			if end == "fail" {
				delete(report, "result_b64")
				report["error"] = name
			}
			s.api("/leases/"+end, report)
		}
	}
}

// hostileName returns a name of at most 255 bytes that begins as a hostile one.
func hostileName(name, end string) []byte {
	return append([]byte(name[:min(len(name), 255-len(end))]), end...)
}

// longestWorker bounds the name of a worker, in bytes. The server allows one more, which would cut a mark of three.
const longestWorker = 249

// lease takes a job of a queue and returns its token.
func (s *server) lease(queue []byte, worker string) any {
	s.t.Helper()
	worker = strings.ToValidUTF8(worker, "?")
	worker = worker[:min(len(worker), longestWorker)]
	leased := s.api("/reserve", map[string]any{"queues_b64": [][]byte{queue}, "worker": worker, "lease": "1h"})
	jobs, _ := leased["jobs"].([]any)
	if len(jobs) != 1 {
		s.t.Fatalf("no job of %q is leased", queue)
	}
	return jobs[0].(map[string]any)["token"]
}
