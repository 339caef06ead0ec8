package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

// queuesEach is the number of queues of an attack, a twentieth of a million.
const queuesEach = 50_000

// get returns a GET request of the HTTP API.
func get(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"
}

// queues submits a job to each of very many queues, and looks at them in every way.
func (s *attack) queues() {
	var lines strings.Builder
	for i := range queuesEach * s.scale {
		fmt.Fprintf(&lines, `{"queue":"queue %d"}`+"\n", i)
	}
	const kind = "Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s"
	want := fmt.Sprintf(`{"submitted":%d}`, queuesEach*s.scale)
	if status, body := s.asks("http", post("/api/v1/jobs", fmt.Sprintf(kind, lines.Len(), lines.String()))); status != http.StatusOK || strings.TrimSpace(body) != want {
		s.t.Errorf("%d %.200s, want %s", status, body, want)
	}
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
