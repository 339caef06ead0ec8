package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"treadle/bench/peer"
	"treadle/codec/jsontext"
)

// apiServer is a server of the built program under a benchmark of its HTTP API.
type apiServer struct {
	*peer.Server
	b    *testing.B
	http http.Client
}

// startAPI starts TREADLE_BINARY, or what make build has built, as a peer of that name.
func startAPI(b *testing.B, name string) *apiServer {
	b.Helper()
	program, err := filepath.Abs(cmp.Or(os.Getenv("TREADLE_BINARY"), "../bin/treadle"))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		b.Skip("there is no built program: run make build")
	}
	for _, p := range peer.All(program) {
		if p.Name != name {
			continue
		}
		s, err := p.Start(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(s.Stop)
		api := &apiServer{s, b, http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
		for end := time.Now().Add(10 * time.Second); ; { // it listens before it serves
			ready, err := api.http.Get("http://" + s.HTTP + "/readyz")
			if err == nil {
				_ = ready.Body.Close()
			}
			switch {
			case err == nil && ready.StatusCode == http.StatusOK:
				return api
			case time.Now().After(end):
				b.Fatalf("the server is not ready: %v", err)
			}
		}
	}
	b.Fatalf("there is no peer %q", name)
	return nil
}

// ask sends a request and decodes its answer, unless answer is nil. A *[]byte receives the answer's text. It may be
// called by several goroutines.
func (s *apiServer) ask(method, path, kind string, body io.Reader, answer any) {
	ask, err := http.NewRequestWithContext(context.Background(), method, "http://"+s.HTTP+path, body)
	if err == nil {
		ask.Header.Set("Content-Type", kind)
		err = s.send(ask, answer)
	}
	if err != nil {
		panic(err) // a benchmark's other goroutines cannot end it
	}
}

func (s *apiServer) send(ask *http.Request, answer any) error {
	reply, err := s.http.Do(ask)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	switch {
	case err != nil:
		return err
	case reply.StatusCode != http.StatusOK:
		return fmt.Errorf("%s %s: %s: %s", ask.Method, ask.URL.Path, reply.Status, text)
	case answer == nil:
		return nil
	}
	if whole, ok := answer.(*[]byte); ok {
		*whole = text
		return nil
	}
	return json.Unmarshal(text, answer)
}

func (s *apiServer) post(path string, body, answer any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	s.ask(http.MethodPost, "/api/v1"+path, "application/json", bytes.NewReader(text), answer)
}

// workload100 is the workload of each job.
var workload100 = string(bytes.Repeat([]byte("w"), 100))

// submitLines submits so many jobs of queues f0, f1 and so on in turn, as JSON lines.
func (s *apiServer) submitLines(jobs, queues int) {
	in, out := io.Pipe()
	go func() {
		rest := `","workload":"` + workload100 + "\"}\n"
		var lines []byte
		for n := range jobs {
			lines = strconv.AppendInt(append(lines, `{"queue":"f`...), int64(n%queues), 10)
			lines = strconv.AppendInt(append(lines, `","name":"`...), 10_000_000+int64(n), 10)
			if lines = append(lines, rest...); len(lines) > 64<<10 || n == jobs-1 {
				_, _ = out.Write(lines) // the reader fails then
				lines = lines[:0]
			}
		}
		_ = out.Close()
	}()
	var answer struct{ Submitted int }
	if s.ask(http.MethodPost, "/api/v1/jobs", "application/x-ndjson", in, &answer); answer.Submitted != jobs {
		s.b.Fatalf("%d of %d jobs were submitted", answer.Submitted, jobs)
	}
}

// apiConn is a connection of a client that does no more than the server needs: on the two processors that both share,
// net/http's client takes more of them than the server.
type apiConn struct {
	conn    net.Conn
	in      *bufio.Reader
	host    string
	request []byte
	answer  []byte
}

// dial connects to the API.
func (s *apiServer) dial() *apiConn {
	conn, err := net.Dial("tcp", s.HTTP)
	if err != nil {
		panic(err) // a benchmark's other goroutines cannot end it
	}
	return &apiConn{conn: conn, in: bufio.NewReaderSize(conn, 16<<10), host: s.HTTP}
}

// post sends a body and returns the answer's, which is valid until the next call.
func (c *apiConn) post(path string, body []byte) []byte {
	c.request = fmt.Appendf(c.request[:0], "POST /api/v1%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, c.host, len(body))
	c.request = append(c.request, body...)
	_, err := c.conn.Write(c.request)
	if err != nil {
		panic(err)
	}
	status, length := []byte(nil), 0
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		switch text, isLength := bytes.CutPrefix(line, []byte("Content-Length: ")); {
		case err != nil:
			panic(err)
		case first:
			status = bytes.Clone(line)
		case isLength:
			if length, err = strconv.Atoi(string(bytes.TrimSpace(text))); err != nil {
				panic(err)
			}
		}
		if len(line) == len("\r\n") {
			break
		}
	}
	c.answer = slices.Grow(c.answer[:0], length)[:length]
	if _, err := io.ReadFull(c.in, c.answer); err != nil || !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		panic(fmt.Errorf("%s: %s%s, %w", path, status, c.answer, err))
	}
	return c.answer
}

// perJob reports a rate and what the server's processor time was for a million jobs since a call of CPUTime.
func (s *apiServer) perJob(jobs int, before time.Duration) {
	cpu, err := peer.CPUTime(s.PID)
	if err != nil {
		s.b.Fatal(err)
	}
	s.b.ReportMetric(float64(jobs)/s.b.Elapsed().Seconds(), "jobs/s")
	s.b.ReportMetric((cpu-before).Seconds()/float64(jobs)*1e6, "server-s/Mjob")
}

func (s *apiServer) cpu() time.Duration {
	cpu, err := peer.CPUTime(s.PID)
	if err != nil {
		s.b.Fatal(err)
	}
	return cpu
}

// BenchmarkAPISubmit submits a job a request over 64 connections to a server that answers when the disk has it.
func BenchmarkAPISubmit(b *testing.B) {
	s := startAPI(b, "treadle always")
	before, next := s.cpu(), atomic.Int64{}
	b.ResetTimer()
	var connections sync.WaitGroup
	for range 64 {
		connections.Go(func() {
			c, body := s.dial(), []byte(nil)
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				body = strconv.AppendInt(append(body[:0], `{"queue":"f","name":"`...), n, 10)
				body = append(append(append(body, `","workload":"`...), workload100...), `"}`...)
				c.post("/jobs", body)
			}
		})
	}
	connections.Wait()
	b.StopTimer()
	s.perJob(b.N, before)
}

// BenchmarkAPILines submits all jobs as JSON lines of one request, with the same promise.
func BenchmarkAPILines(b *testing.B) {
	s := startAPI(b, "treadle always")
	before := s.cpu()
	b.ResetTimer()
	s.submitLines(b.N, 1)
	b.StopTimer()
	s.perJob(b.N, before)
}

// settle waits until the server has no work in the background: half a second with less than 1 % of a processor.
func (s *apiServer) settle() {
	const pause = time.Second / 2
	for before := s.cpu(); ; {
		time.Sleep(pause)
		now := s.cpu()
		if now-before < pause/100 {
			return
		}
		before = now
	}
}

// reserve reserves up to n jobs of the first queue, and appends the report that they are done to dst. It decodes their
// tokens alone: a decoder of the whole takes as much of the processors as the server.
func (c *apiConn) reserve(n int, dst []byte) (reports []byte, leased int) {
	var answer, job jsontext.Object
	var jobs jsontext.Array
	dst = append(dst, '[')
	for answer.Open(c.post("/reserve", fmt.Appendf(nil, `{"queues":["f0"],"jobs":%d}`, n))); answer.Next(); {
		for jobs.Open(answer.Value); jobs.Next(); {
			for job.Open(jobs.Value); job.Next(); {
				if string(job.Key) == "token" {
					if leased++; leased > 1 {
						dst = append(dst, ',')
					}
					dst = append(append(append(dst, `{"token":`...), job.Value...), '}')
				}
			}
		}
	}
	return append(dst, ']'), leased
}

// BenchmarkAPIReserve has 64 workers reserve a hundred jobs at a time and report them as done.
func BenchmarkAPIReserve(b *testing.B) {
	s := startAPI(b, "treadle always")
	s.submitLines(b.N, 1)
	s.settle()
	before, done := s.cpu(), atomic.Int64{}
	b.ResetTimer()
	var workers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			c := s.dial()
			for {
				var answer struct{ Reported int }
				reports, leased := c.reserve(100, nil)
				if leased == 0 {
					return
				}
				if err := json.Unmarshal(c.post("/leases/done", reports), &answer); err != nil {
					panic(err)
				}
				done.Add(int64(answer.Reported))
			}
		})
	}
	workers.Wait()
	b.StopTimer()
	if done.Load() != int64(b.N) {
		b.Fatalf("%d of %d jobs are done", done.Load(), b.N)
	}
	s.perJob(b.N, before)
}

// manyJobs is how many jobs the views have to do with: BENCH_JOBS, or a million.
func manyJobs(b *testing.B) int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("BENCH_JOBS"), "1000000"))
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// submitP99 submits a job after the other until stop, or for the least time, and returns the 99th percentile of a
// submit.
func (s *apiServer) submitP99(least time.Duration, stop <-chan struct{}) time.Duration {
	var all []time.Duration
	over := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	for begun := time.Now(); time.Since(begun) < least || stop != nil && !over(); {
		at := time.Now()
		s.post("/jobs", map[string]string{"queue": "beside"}, nil)
		all = append(all, time.Since(at))
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// beside runs fn while another client submits, and reports the 99th percentile of its submits as a ratio to those of a
// quiet server.
func (s *apiServer) beside(fn func()) {
	const least = 3 * time.Second
	s.submitP99(time.Second, nil) // to warm up
	quiet := s.submitP99(least, nil)
	stop, ended := make(chan struct{}), make(chan time.Duration)
	go func() { ended <- s.submitP99(least, stop) }()
	fn()
	close(stop)
	s.b.ReportMetric(float64(<-ended)/float64(quiet), "submit-p99-ratio")
	s.b.ReportMetric(float64(quiet.Microseconds()), "quiet-p99-us")
}

// BenchmarkAPIPage reads pages of fifty jobs of a queue of very many.
func BenchmarkAPIPage(b *testing.B) {
	s := startAPI(b, "treadle")
	s.submitLines(manyJobs(b), 1)
	var longest time.Duration
	s.beside(func() {
		b.ResetTimer()
		after := ""
		for range b.N {
			at := time.Now()
			var page struct {
				Jobs []json.RawMessage
				Next string
			}
			s.ask(http.MethodGet, "/api/v1/jobs?limit=50&filter=queue:f0&after="+after, "", nil, &page)
			longest = max(longest, time.Since(at))
			if after = page.Next; len(page.Jobs) != 50 {
				b.Fatalf("a page has %d jobs", len(page.Jobs))
			}
		}
		b.StopTimer()
	})
	b.ReportMetric(float64(longest.Microseconds()), "longest-us")
}

// BenchmarkAPISearch looks for a text that no job has.
func BenchmarkAPISearch(b *testing.B) {
	s := startAPI(b, "treadle")
	s.submitLines(manyJobs(b), 1)
	var looked int
	var took time.Duration
	s.beside(func() {
		b.ResetTimer()
		after := ""
		for range b.N {
			var page struct {
				Looked int
				Next   string
			}
			at := time.Now()
			s.ask(http.MethodGet, "/api/v1/jobs?filter="+url.QueryEscape(`text:"no such text"`)+"&after="+after, "", nil, &page)
			took += time.Since(at)
			looked, after = looked+page.Looked, page.Next
		}
		b.StopTimer()
	})
	b.ReportMetric(float64(looked)/took.Seconds(), "jobs/s")
	b.ReportMetric(100_000/(float64(looked)/took.Seconds())*1000, "ms/100000-jobs")
}

// BenchmarkAPIChange removes all jobs of a queue that a filter means, or has as many failed ones tried again, beside
// another client.
func BenchmarkAPIChange(b *testing.B) {
	for _, change := range []struct{ verb, filter string }{
		{"remove", "queue:f0 text:www"},
		{"retry", "queue:f0 state:failed text:www"},
	} {
		b.Run(change.verb, func(b *testing.B) {
			for range b.N {
				s, jobs := startAPI(b, "treadle always"), manyJobs(b)
				s.submitLines(jobs, 1)
				if change.verb == "retry" {
					s.fail(jobs)
				}
				s.settle()
				s.beside(func() {
					b.ResetTimer()
					s.change(change.verb, change.filter, jobs)
					b.StopTimer()
					b.ReportMetric(b.Elapsed().Seconds(), "s/change")
				})
			}
		})
	}
}

// fail has so many jobs of the first queue fail for good.
func (s *apiServer) fail(jobs int) {
	rule, _ := json.Marshal(map[string]any{"pattern": "f0", "values": map[string]string{"retries": "0", "keep-failed": strconv.Itoa(jobs)}})
	s.ask(http.MethodPatch, "/api/v1/policies", "application/json", bytes.NewReader(rule), nil)
	c, failed := s.dial(), 0
	for failed < jobs {
		reports, leased := c.reserve(1000, nil)
		if leased == 0 {
			break
		}
		c.post("/leases/fail", reports)
		failed += leased
	}
	if failed != jobs {
		s.b.Fatalf("%d of %d jobs failed", failed, jobs)
	}
}

// change has the server change all jobs of a filter, which must be so many, and returns when it has.
func (s *apiServer) change(verb, filter string, jobs int) {
	var begun struct{ Operation string }
	s.post("/jobs/change", map[string]string{"verb": verb, "filter": filter}, &begun)
	for state := "running"; state == "running"; time.Sleep(50 * time.Millisecond) {
		var all struct {
			Operations []struct {
				State   string
				Changed int
			}
		}
		s.ask(http.MethodGet, "/api/v1/operations?id="+begun.Operation, "", nil, &all)
		if state = all.Operations[0].State; state == "done" && all.Operations[0].Changed != jobs {
			s.b.Fatalf("%s changed %d jobs", verb, all.Operations[0].Changed)
		}
	}
}

// BenchmarkMetricsQueues reads the metrics of a server with ten thousand queues.
func BenchmarkMetricsQueues(b *testing.B) {
	s := startAPI(b, "treadle")
	s.submitLines(10_000, 10_000)
	size := 0
	for b.Loop() {
		reply, err := s.http.Get("http://" + s.HTTP + "/metrics")
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if size = len(text); err != nil || reply.StatusCode != http.StatusOK {
			b.Fatalf("%s, %v", reply.Status, err)
		}
	}
	b.ReportMetric(float64(size), "bytes")
}
