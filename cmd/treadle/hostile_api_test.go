package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	codec "treadle/codec/admin"
)

// queuesEach is the number of queues of an attack, a twentieth of a million.
const queuesEach = 50_000

// get returns a GET request of the HTTP API.
func get(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
}

// submitLines submits n jobs in one request.
func (s *attack) submitLines(lines string, n int) {
	s.t.Helper()
	request := post("/api/v1/jobs", fmt.Sprintf("Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", len(lines), lines))
	want := fmt.Sprintf(`{"submitted":%d}`, n)
	if status, body := s.asks("http", request); status != http.StatusOK || strings.TrimSpace(body) != want {
		s.t.Errorf("%d %.200s, want %s", status, body, want)
	}
}

// queues submits a job to each of very many queues, and looks at them in every way.
func (s *attack) queues() {
	var lines strings.Builder
	for i := range queuesEach * s.scale {
		fmt.Fprintf(&lines, `{"queue":"queue %d"}`+"\n", i)
	}
	s.submitLines(lines.String(), queuesEach*s.scale)
	const maxAnswer = 2 << 20
	for path, want := range map[string]string{
		"/metrics":                     "treadle_queue_jobs",
		"/api/v1/queues?limit=1000":    `"next":"`,
		"/api/v1/overview":             `"queues":[`,
		"/api/v1/jobs?filter=queue:*7": `"looked":`,
	} {
		if status, body := s.asks("http", get(path)); status != http.StatusOK || !strings.Contains(body, want) || len(body) > maxAnswer {
			s.t.Errorf("%s: %d, %d bytes, %.200s", path, status, len(body), body)
		}
	}
}

// largeJobs submits jobs of the largest size, larger ones and values nested very deep, and reserves without reading.
func (s *attack) largeJobs() {
	const most = 4 << 20 // --max-frame
	deep := strings.Repeat(`{"a":[`, 50_000)
	for _, c := range []struct {
		path, body string
		want       int
	}{
		{"/jobs", `{"queue":"large","workload":"` + strings.Repeat("x", most-1<<10) + `"}`, http.StatusOK},
		{"/jobs", `{"queue":"large","workload":"` + strings.Repeat("x", most+1) + `"}`, http.StatusRequestEntityTooLarge},
		{"/jobs", `{"queue":"large","workload":"` + strings.Repeat("\\u0001", most) + `"}`, http.StatusRequestEntityTooLarge},
		{"/jobs", `{"queue":"large","workload_json":` + deep + `}`, http.StatusBadRequest},
		{"/jobs/change", `{"verb":"remove","filter":` + deep + `}`, http.StatusBadRequest},
		{"/leases/done", `[` + strings.Repeat(`{"token":"","result":""},`, 100_000) + `{}]`, http.StatusBadRequest},
	} {
		for range 2 * s.scale {
			if status, answer := s.asks("http", whole("/api/v1"+c.path, c.body)); status != c.want {
				s.t.Errorf("%s %.60s: %d %.200s, want %d", c.path, c.body, status, answer, c.want)
			}
		}
	}
	for range 20 * s.scale { // a reserve hangs up while its jobs are on their way
		c := s.dial("http")
		_, _ = io.WriteString(c, whole("/api/v1/reserve", `{"queues":["large"],"jobs":100,"lease":"1s"}`))
		c.Close()
	}
}

// refusals are requests that the API refuses at once, each with the status.
var refusals = []struct {
	name, request string
	status        int
}{
	{"a forged cursor", get("/api/v1/jobs?after=AAAA"), http.StatusBadRequest},
	{"a negative limit", get("/api/v1/jobs?limit=-1"), http.StatusBadRequest},
	{"a long filter", get("/api/v1/jobs?filter=text:" + strings.Repeat("x", 8<<10)), http.StatusBadRequest},
	{"a filter of many terms", get("/api/v1/jobs?filter=name:a" + strings.Repeat("+text:a", 100)), http.StatusBadRequest},
	{"a forged token", whole("/api/v1/leases/done", `{"token":"`+strings.Repeat("0", 32)+`"}`), http.StatusNotFound},
	{"a token of megabytes", whole("/api/v1/leases/done", `{"token":"`+strings.Repeat("0", 2<<20)+`"}`), http.StatusNotFound},
	{"another host", "GET /api/v1/jobs HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n", http.StatusForbidden},
	{"a page of another site", post("/api/v1/jobs", "Origin: http://elsewhere.example\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"), http.StatusForbidden},
}

// refused sends all refusals again and again, all at a time.
func (s *attack) refused() {
	var all sync.WaitGroup
	for _, r := range refusals {
		all.Go(func() {
			for range 5 * s.scale {
				if status, body := s.asks("http", r.request); status != r.status {
					s.t.Errorf("%s: %d %.200s, want %d", r.name, status, body, r.status)
				}
			}
		})
	}
	all.Wait()
}

// hangUps has very many workers ask for jobs and hang up, while jobs come. No job may be lost, or stay with any of
// them.
func (s *attack) hangUps() {
	const queue, jobs = "hung up", 500
	reserve := whole("/api/v1/reserve", `{"queues":["`+queue+`"],"jobs":10,"wait":"1m","lease":"1s"}`)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 * s.scale {
				c := s.dial("http")
				_, _ = io.WriteString(c, reserve)
				c.Close()
			}
		})
	}
	lines := ""
	for n := range jobs {
		lines += fmt.Sprintf("{\"queue\":%q,\"name\":\"%d\"}\n", queue, n)
	}
	s.submitLines(lines, jobs)
	all.Wait()
	pause := time.NewTicker(dripPause)
	defer pause.Stop()
	var seen codec.Queues
	for end := time.Now().Add(hostilePatience); time.Now().Before(end); <-pause.C {
		_, body := s.asks("http", get("/api/v1/queues?queue=hung+up"))
		if err := json.Unmarshal([]byte(body), &seen); err == nil && seen.Queues[0].Ready == jobs && seen.Queues[0].Workers == 0 {
			return
		}
	}
	s.t.Errorf("of %d jobs for workers that have hung up: %+v", jobs, seen)
}

// unread has very many peers ask for pages of a megabyte which they do not read. The API answers others meanwhile.
func (s *attack) unread() {
	const jobs = 1000
	queue := strings.Repeat("unread", 30)
	lines := strings.Repeat(fmt.Sprintf("{\"queue\":%q}\n", queue), jobs)
	s.submitLines(lines, jobs)
	page := func(after string) string {
		return get(fmt.Sprintf("/api/v1/jobs?filter=queue:%s&limit=%d&after=%s", queue, jobs, after))
	}
	for range s.files(min(100*s.scale, 900)) { // fewer than the API has places for
		c := s.dialFrom(net.Dialer{Control: littleRoom}, "http")
		defer c.Close()
		_, _ = io.WriteString(c, page(""))
	}
	seen := 0
	for after, more := "", true; more; { // a page ends early when others search
		var answer codec.Jobs
		status, body := s.asks("http", page(after))
		if err := json.Unmarshal([]byte(body), &answer); status != http.StatusOK || err != nil {
			s.t.Fatalf("%d %.200s: %v", status, body, err)
		}
		seen, after, more = seen+len(answer.Jobs), answer.Next, answer.Next != ""
	}
	if seen != jobs {
		s.t.Errorf("%d jobs, want %d", seen, jobs)
	}
}

// unended sends large bodies that do not come to their ends. The API takes a job beside them.
func (s *attack) unended() {
	const size = 5 << 20
	text := strings.Repeat(" ", size)
	for range s.files(30 * s.scale) {
		c := s.dial("http")
		defer c.Close()
		_ = c.SetWriteDeadline(time.Now().Add(dripPause)) // the server reads no more of a body than it has room for
		_, _ = io.WriteString(c, post("/api/v1/jobs", fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", size+1, text)))
	}
	if status, body := s.asks("http", whole("/api/v1/jobs", `{"queue":"q","name":"n"}`)); status != http.StatusOK {
		s.t.Errorf("%d %s", status, body)
	}
}

// longPolls has more workers wait for a job than the API has places for, and leave. The port answers probes meanwhile,
// and the API answers when they have left.
func (s *attack) longPolls() {
	reserve := whole("/api/v1/reserve", `{"queues":["polled"],"wait":"1m"}`)
	var open []net.Conn
	for range s.files(1200) {
		c := s.dial("http")
		open = append(open, c)
		_, _ = io.WriteString(c, reserve) // it may have been turned away
	}
	if status, _ := s.asks("http", get("/healthz")); status != http.StatusOK {
		s.t.Errorf("/healthz: %d", status)
	}
	for _, c := range open {
		c.Close()
	}
	pause := time.NewTicker(dripPause)
	defer pause.Stop()
	for end := time.Now().Add(hostilePatience); ; <-pause.C {
		if status, _ := s.asks("http", get("/api/v1/queues")); status == http.StatusOK {
			return
		} else if time.Now().After(end) {
			s.t.Fatalf("/api/v1/queues: %d", status)
		}
	}
}
