package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"treadle/bench/load"
	"treadle/bench/peer"
	"treadle/codec/jsontext"
	"treadle/loop/client"
)

const (
	// minBeside is the least time in which submits beside other work, or alone, are measured.
	minBeside = 3 * time.Second
	// apiBlock is the size of one write of JSON lines.
	apiBlock = 64 << 10
	// pageJobs is the number of jobs of a page, changeTick the time between looks whether a change has ended.
	pageJobs, changeTick = 50, 50 * time.Millisecond
	// failBlock is the number of jobs that fail in one request.
	failBlock = 1000
)

// apiKinds measure rows of the HTTP API, whose size is a number of jobs, or of requests where they only read.
var apiKinds = map[kind]func(a *apiTrial, l load.Load, size int) error{
	"submit": (*apiTrial).submit, "submit lines": (*apiTrial).lines, "reserve": (*apiTrial).reserve,
	"page": (*apiTrial).pages, "search": (*apiTrial).search, "metrics": (*apiTrial).metrics,
	"remove": (*apiTrial).remove, "retry": (*apiTrial).retry, "browse": (*apiTrial).browse, "backup": (*apiTrial).backup,
}

// apiTrial is a load on the HTTP API of one server. Its jobs go to the queue load.QueueName.
type apiTrial struct {
	ctx    context.Context
	sample *sample
	server *peer.Server
	admin  *client.Admin
	least  time.Duration // minBeside, or less in tests
}

// newAPITrial returns a trial; close of its admin is due.
func newAPITrial(ctx context.Context, s *sample, running *peer.Server, least time.Duration) *apiTrial {
	return &apiTrial{ctx: ctx, sample: s, server: running, admin: client.NewAdmin("http://" + running.HTTP), least: least}
}

// measureAPI takes one sample of the HTTP API of a server.
func (s *sample) measureAPI(ctx context.Context, r row, running *peer.Server, size int) error {
	ctx, cancel := context.WithTimeout(ctx, load.TrialLimit)
	defer cancel()
	a := newAPITrial(ctx, s, running, minBeside)
	defer a.admin.Close()
	return a.measure(r, size)
}

// measure measures a row, when the server is ready: it listens before.
func (a *apiTrial) measure(r row, size int) error {
	for {
		_, err := httpGet(a.ctx, a.server.HTTP, "/readyz")
		switch {
		case err == nil:
			return apiKinds[r.Kind](a, r.Load, size)
		case a.ctx.Err() != nil:
			return fmt.Errorf("the server is not ready: %w", err)
		}
		time.Sleep(time.Millisecond)
	}
}

func (a *apiTrial) timed(jobs int, phase func() error) error {
	return a.sample.timed(a.server.PID, jobs, elapsed(phase))
}

// submit submits a job a request over many connections.
func (a *apiTrial) submit(l load.Load, size int) error {
	var next atomic.Int64
	var mu sync.Mutex
	took := load.NewLatencies()
	err := a.timed(size, func() error {
		return load.Parallel(l.Connections, func(int) error {
			c, err := dialAPI(a.ctx, a.server.HTTP)
			if err != nil {
				return err
			}
			defer c.close()
			var body []byte
			for n := next.Add(1); n <= int64(size); n = next.Add(1) {
				body = appendJob(body[:0], load.QueueName, int(n))
				began := load.Now()
				if _, err := c.post("/jobs", body); err != nil {
					return err
				}
				mu.Lock()
				took.Record(load.Now() - began)
				mu.Unlock()
			}
			return nil
		})
	})
	a.sample.setLatency("submit", took.Quantiles())
	return errors.Join(err, a.holds(size))
}

// holds checks that so many jobs are ready.
func (a *apiTrial) holds(jobs int) error {
	q, err := a.admin.Queue(a.ctx, load.QueueName)
	if err == nil && q.Ready != jobs {
		err = fmt.Errorf("%d jobs were submitted, the server holds %d", jobs, q.Ready)
	}
	return err
}

// appendJob appends a job of 100 bytes in JSON.
func appendJob(dst []byte, queue string, n int) []byte {
	dst = append(append(dst, `{"queue":"`...), queue...)
	dst = strconv.AppendInt(append(dst, `","name":"`...), 10_000_000+int64(n), 10)
	return append(append(append(dst, `","workload":"`...), apiWorkload...), `"}`...)
}

var apiWorkload = strings.Repeat("w", load.WorkloadLen)

// lines submits all jobs as JSON lines of one request.
func (a *apiTrial) lines(_ load.Load, size int) error {
	if err := a.timed(size, func() error { return a.fill(size) }); err != nil {
		return err
	}
	return a.holds(size)
}

// fill submits so many jobs to the queue.
func (a *apiTrial) fill(jobs int) error {
	return a.submitLines(jobs, func(int) string { return load.QueueName })
}

// submitLines submits jobs to the queues of their numbers.
func (a *apiTrial) submitLines(jobs int, queue func(n int) string) error {
	in, out := io.Pipe()
	go func() {
		var lines []byte
		for n := range jobs {
			if lines = append(appendJob(lines, queue(n), n), '\n'); len(lines) > apiBlock || n == jobs-1 {
				_, _ = out.Write(lines) // the request fails then
				lines = lines[:0]
			}
		}
		_ = out.Close()
	}()
	defer func() { _ = in.Close() }() // ends the writer
	text, err := httpDo(a.ctx, http.MethodPost, a.server.HTTP, "/api/v1/jobs", "application/x-ndjson", in)
	var answer struct{ Submitted int }
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err == nil && answer.Submitted != jobs {
		err = fmt.Errorf("%d of %d jobs were submitted", answer.Submitted, jobs)
	}
	return err
}

// settle waits until the server has no work in the background: half a second with less than 1 % of a processor.
func (a *apiTrial) settle() error {
	const pause = time.Second / 2
	for {
		spent, err := metered(a.server.PID, func() error { time.Sleep(pause); return a.ctx.Err() })
		if err != nil || spent.server < pause/100 {
			return err
		}
	}
}

// reserve has workers reserve l.Depth jobs at a time and report them as done.
func (a *apiTrial) reserve(l load.Load, size int) error {
	if err := a.fill(size); err != nil {
		return err
	}
	if err := a.settle(); err != nil {
		return err
	}
	var done atomic.Int64
	err := a.timed(size, func() error {
		return load.Parallel(l.Workers, func(int) error {
			c, err := dialAPI(a.ctx, a.server.HTTP)
			if err != nil {
				return err
			}
			defer c.close()
			for {
				n, err := c.report(l.Depth, "/leases/done")
				if done.Add(int64(n)); n == 0 || err != nil {
					return err
				}
			}
		})
	})
	if n := int(done.Load()); err == nil && n != size {
		err = fmt.Errorf("%d of %d jobs are done", n, size)
	}
	return err
}

// report reserves up to n jobs and reports all of them. It returns their number. It decodes the tokens of the jobs
// alone: a decoder of the whole takes as much of the processors as the server.
func (c *apiConn) report(n int, path string) (reported int, err error) {
	text, err := c.post("/reserve", fmt.Appendf(nil, `{"queues":[%q],"jobs":%d}`, load.QueueName, n))
	if err != nil {
		return 0, err
	}
	var answer, job jsontext.Object
	var jobs jsontext.Array
	reports, leased := []byte{'['}, 0
	for answer.Open(text); answer.Next(); {
		for jobs.Open(answer.Value); jobs.Next(); {
			for job.Open(jobs.Value); job.Next(); {
				if string(job.Key) == "token" {
					if leased++; leased > 1 {
						reports = append(reports, ',')
					}
					reports = append(append(append(reports, `{"token":`...), job.Value...), '}')
				}
			}
		}
	}
	if leased == 0 {
		return 0, nil
	}
	if text, err = c.post(path, append(reports, ']')); err != nil {
		return 0, err
	}
	var said struct{ Reported int }
	if err = json.Unmarshal(text, &said); err == nil && said.Reported != leased {
		err = fmt.Errorf("%d of %d reports were taken", said.Reported, leased)
	}
	return leased, err
}

// beside does work while another client submits one job after the other. The figures are of those submits.
func (a *apiTrial) beside(work func() error) error {
	stop := make(chan struct{})
	close(stop)
	var quiet, busy load.Quantiles
	for range 2 { // the first is to warm up
		var err error
		if quiet, err = a.submitUntil(stop); err != nil {
			return err
		}
	}
	stop = make(chan struct{})
	ended := make(chan error)
	go func() {
		var err error
		busy, err = a.submitUntil(stop)
		ended <- err
	}()
	err := work()
	close(stop)
	if err = errors.Join(err, <-ended); err != nil {
		return err
	}
	a.sample.setLatency("submit", busy)
	a.sample.set("of quiet", divide(busy.P99, quiet.P99))
	return nil
}

// submitUntil submits one job after the other until stop is closed, and for the least time.
func (a *apiTrial) submitUntil(stop <-chan struct{}) (load.Quantiles, error) {
	c, err := dialAPI(a.ctx, a.server.HTTP)
	if err != nil {
		return load.Quantiles{}, err
	}
	defer c.close()
	took, enough := load.NewLatencies(), time.After(a.least)
	for stop != nil || enough != nil {
		began := load.Now()
		if _, err := c.post("/jobs", []byte(`{"queue":"beside"}`)); err != nil {
			return load.Quantiles{}, err
		}
		took.Record(load.Now() - began)
		select {
		case <-stop:
			stop = nil
		case <-enough:
			enough = nil
		default:
		}
	}
	return took.Quantiles(), nil
}

// pages reads pages of the queue, beside another client.
func (a *apiTrial) pages(l load.Load, size int) error {
	return a.read(l, size, "queue:"+load.QueueName, func(page client.JobPage) (int64, error) {
		if len(page.Jobs) != pageJobs {
			return 0, fmt.Errorf("a page has %d jobs", len(page.Jobs))
		}
		return pageJobs, nil
	})
}

// search looks for a text that no job has, beside another client. It counts the jobs that were looked at.
func (a *apiTrial) search(l load.Load, size int) error {
	before := int64(0)
	return a.read(l, size, `text:"no such text"`, func(page client.JobPage) (looked int64, err error) {
		looked, before = lookedAt(page, before)
		return looked, nil
	})
}

// lookedAt returns the number of jobs that the server has looked at for a page, and the number for the pages before the
// next one. A page counts those of the pages before, too; behind the last page a search begins anew.
func lookedAt(page client.JobPage, before int64) (looked, next int64) {
	if looked = page.Looked - before; page.Next == "" {
		return looked, 0
	}
	return looked, page.Looked
}

// read reads pages of the jobs that a filter means; count returns the number of jobs that a page stands for.
func (a *apiTrial) read(l load.Load, pages int, filter string, count func(page client.JobPage) (int64, error)) error {
	if err := a.fill(l.Ready); err != nil {
		return err
	}
	return a.beside(func() error {
		jobs, longest, after := int64(0), int64(0), ""
		start := load.Now()
		for range pages {
			began := load.Now()
			page, err := a.admin.Jobs(a.ctx, filter, after, pageJobs)
			if err != nil {
				return err
			}
			longest, after = max(longest, load.Now()-began), page.Next
			n, err := count(page)
			if err != nil {
				return err
			}
			jobs += n
		}
		a.sample.Jobs = int(jobs)
		a.sample.set("jobs/s", float64(jobs)/seconds(load.Now()-start))
		a.sample.set("longest", float64(longest)/1e3)
		return nil
	})
}

// metrics reads the metrics of a server with many queues.
func (a *apiTrial) metrics(l load.Load, size int) error {
	if err := a.submitLines(l.Functions, func(n int) string { return "f" + strconv.Itoa(n) }); err != nil {
		return err
	}
	longest, text := int64(0), ""
	err := a.timed(size, func() (err error) {
		for range size {
			began := load.Now()
			if text, err = httpGet(a.ctx, a.server.HTTP, "/metrics"); err != nil {
				return err
			}
			longest = max(longest, load.Now()-began)
		}
		return nil
	})
	a.sample.set("longest", float64(longest)/1e3)
	a.sample.set("answer MB", float64(len(text))/1e6)
	return err
}

// remove removes all jobs that a filter means, beside another client.
func (a *apiTrial) remove(_ load.Load, size int) error {
	if err := a.fill(size); err != nil {
		return err
	}
	return a.change("remove", "", size)
}

// retry has as many failed jobs tried again.
func (a *apiTrial) retry(_ load.Load, size int) error {
	if err := a.fill(size); err != nil {
		return err
	}
	if err := a.fail(size); err != nil {
		return err
	}
	return a.change("retry", "state:failed ", size)
}

// backup takes a backup of as many jobs, beside another client. The reader of the backup keeps nothing of it.
func (a *apiTrial) backup(_ load.Load, size int) error {
	if err := inOrder(func() error { return a.fill(size) }, a.settle); err != nil {
		return err
	}
	owner := client.NewAdmin(a.server.Admin)
	defer owner.Close()
	return a.beside(func() error {
		return a.timed(size, func() error { return owner.Backup(a.ctx, io.Discard, nil) })
	})
}

// fail has so many jobs fail for good.
func (a *apiTrial) fail(jobs int) error {
	if _, err := a.admin.SetPolicy(a.ctx, load.QueueName, peer.Policy{"retries": new("0"), "keep-failed": new(strconv.Itoa(jobs))}); err != nil {
		return err
	}
	c, err := dialAPI(a.ctx, a.server.HTTP)
	if err != nil {
		return err
	}
	defer c.close()
	for failed := 0; failed < jobs; {
		n, err := c.report(failBlock, "/leases/fail")
		if err != nil {
			return err
		}
		if failed += n; n == 0 {
			return fmt.Errorf("%d of %d jobs failed", failed, jobs)
		}
	}
	return nil
}

// change has a quiet server change all jobs of the queue that a filter means, which must be so many.
func (a *apiTrial) change(verb, filter string, jobs int) error {
	if err := a.settle(); err != nil {
		return err
	}
	return a.beside(func() error {
		return a.timed(jobs, func() error {
			id, err := a.admin.StartChange(a.ctx, &client.JobsChange{Verb: verb, Filter: filter + "queue:" + load.QueueName + " text:www"})
			for err == nil {
				var op client.Operation
				if op, err = a.admin.Operation(a.ctx, id); err == nil && op.State != "running" {
					if op.Changed != jobs {
						err = fmt.Errorf("%s changed %d of %d jobs", verb, op.Changed, jobs)
					}
					return err
				}
				time.Sleep(changeTick)
			}
			return err
		})
	})
}
