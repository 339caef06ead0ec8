package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"treadle/loop"
	"treadle/loop/client"
)

type demoCmd struct {
	HTTP string `name:"http" default:"127.0.0.1:5001" placeholder:"HOST:PORT" help:"Address of the pages (default: ${default})."`
}

// demoLoopback is an address with a port that is free: a demo may run beside a server.
const demoLoopback = "127.0.0.1:0"

// demoRules are the policies of the demo's queues.
var demoRules = []loop.PolicyRule{
	{Pattern: "*", Values: map[string]string{"keep-done": "200, 1h", "keep-results": "100, 1h"}},
	{Pattern: "mail.*", Values: map[string]string{"retries": "2", "backoff": "1s..20s x2", "keep-failed": "500, 1d"}},
	{Pattern: "webhooks", Values: map[string]string{"retries": "1", "backoff": "2s", "keep-failed": "500, 1d"}},
	{Pattern: "reports", Values: map[string]string{"concurrency": "2"}},
}

// demoCron are the cron entries of the demo.
var demoCron = []client.CronEntry{
	{Name: "digest", Schedule: "* * * * *", Queue: "mail.digest", Workload: `{"list":"weekly"}`},
	{Name: "nightly-report", Schedule: "30 2 * * *", Zone: "Europe/Berlin", Queue: "reports", Workload: `{"of":"yesterday"}`},
}

// Help shows examples.
func (demoCmd) Help() string {
	return `The server keeps everything in memory; its clients submit, do and fail jobs over every protocol.

	treadle demo                           at http://127.0.0.1:5001
	treadle demo --http 127.0.0.1:8080     at another address`
}

// Run serves in memory, with clients and workers over every protocol at work, until a signal.
func (d *demoCmd) Run(con *console) error {
	ctx, _, stop := signals()
	defer stop()
	level := new(slog.LevelVar)
	level.Set(slog.LevelWarn)
	o := loop.Options{Data: loop.NoData, HTTP: d.HTTP, Version: version, Log: newLog(con.err, level, "text"), Drain: time.Second}
	o.Web.Docs, o.Web.Topics = pages, topics
	o.Periodic.Listen = []string{"tcp://" + demoLoopback}
	o.Gloom.Masters, o.Gloom.Slaves = []string{"tcp://" + demoLoopback}, []string{"tcp://" + demoLoopback}
	o.Dwork.Listen = []string{"tcp://" + demoLoopback}
	o.Kts46.Listen, o.Kts46.JSON = []string{"tcp://" + demoLoopback}, []string{"tcp://" + demoLoopback}
	o.Admin.Rules, o.Admin.Cron = demoRules, demoCron
	o.Beanstalk.Listen, o.Faktory.Listen = []string{"tcp://" + demoLoopback}, []string{"tcp://" + demoLoopback}
	p := &demo{addresses: make(map[string]string)}
	var clients sync.WaitGroup
	o.Started = func(all []loop.Listening) {
		for _, l := range all {
			p.addresses[l.Setting] = l.Address
		}
		fmt.Fprintf(con.out, "Treadle with jobs of its own is at %s/\nIt keeps everything in memory; Ctrl-C ends it.\n", strings.TrimSuffix(p.addresses["http"], "/"))
		clients.Go(func() { p.work(ctx) })
	}
	server, err := loop.New(o)
	if err != nil {
		return settingError(err)
	}
	err = server.Run(ctx)
	clients.Wait()
	return settingError(err)
}

// demo is the clients and workers of a demo.
type demo struct {
	addresses map[string]string // by setting
	surveys   int               // graphs of tasks
	projects  int
}

// work runs all of them until ctx ends. One that fails, as when its connection was closed on a page, begins again.
func (d *demo) work(ctx context.Context) {
	var all sync.WaitGroup
	again := func(run func(context.Context) error) {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = run(ctx)
				pause(ctx, time.Second)
			}
		})
	}
	again(d.submitPeriodic)
	again(func(ctx context.Context) error { return d.workPeriodic(ctx, 120*time.Millisecond, 0.02, "thumbnails") })
	again(func(ctx context.Context) error { return d.workPeriodic(ctx, 160*time.Millisecond, 0.02, "thumbnails") })
	again(func(ctx context.Context) error {
		return d.workPeriodic(ctx, 80*time.Millisecond, 0.25, "mail.welcome", "mail.digest")
	})
	again(func(ctx context.Context) error { return d.workPeriodic(ctx, 6*time.Second, 0, "reports") })
	again(func(ctx context.Context) error { return d.workPeriodic(ctx, 7*time.Second, 0, "reports") })
	again(d.submitGloom)
	again(d.workGloom)
	again(d.submitDwork)
	again(func(ctx context.Context) error { return d.workDwork(ctx, "node-1") })
	again(func(ctx context.Context) error { return d.workDwork(ctx, "node-2") })
	again(d.submitKts46)
	again(d.workKts46)
	again(d.submitBeanstalk)
	again(d.workBeanstalk)
	again(d.submitFaktory)
	again(d.workFaktory)
	again(d.submitHTTP)
	again(d.workHTTP)
	all.Wait()
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// around returns a time near another, as work takes.
func around(wait time.Duration) time.Duration {
	return time.Duration(float64(wait) * (0.5 + rand.Float64()))
}

// submitPeriodic submits to several queues, some jobs for later, one queue without workers.
func (d *demo) submitPeriodic(ctx context.Context) error {
	c, err := client.Dial(ctx, d.addresses["periodic"], client.Options{PreferCRC: true})
	if err != nil {
		return err
	}
	defer c.Close()
	for n := 1; ctx.Err() == nil; n++ {
		name := strconv.Itoa(n)
		for _, j := range []struct {
			queue, workload string
			share           float64
			delay           int64
		}{
			{"thumbnails", `{"image":"photo-` + name + `.jpg","width":320}`, 1, 0},
			{"mail.welcome", `{"to":"user` + name + `@example.org","template":"welcome"}`, 0.6, 0},
			{"mail.digest", `{"to":"user` + name + `@example.org","items":[1,2,3]}`, 0.15, 60},
			{"reports", `{"customer":` + name + `,"total":12345678901234567890.10}`, 0.02, 0},
			{"invoices", `{"customer":` + name + `}`, 0.005, 0}, // no worker serves them
		} {
			if rand.Float64() >= j.share {
				continue
			}
			job := client.Job{Func: j.queue, Name: strings.TrimPrefix(j.queue, "mail.") + "-" + name, Workload: []byte(j.workload)}
			if j.delay > 0 {
				job.SchedAt = time.Now().Unix() + rand.Int64N(j.delay)
			}
			if err := c.Submit(ctx, &job); err != nil {
				return err
			}
		}
		pause(ctx, around(90*time.Millisecond*time.Duration(1+n/400%3))) // with busier and quieter minutes
	}
	return nil
}

// demoErrors are why jobs fail.
var demoErrors = []string{
	"connect to smtp.example.org:25: connection refused", "550 5.1.1 user%d@example.org: no such user", "timed out after %d ms",
	"Traceback (most recent call last):\n  File \"worker.py\", line %d, in send\nKeyError: 'template'",
}

// failure returns an error text.
func failure() string {
	text := demoErrors[rand.IntN(len(demoErrors))]
	if strings.Contains(text, "%d") {
		return fmt.Sprintf(text, 100+rand.IntN(900))
	}
	return text
}

// workPeriodic does jobs of queues, each in about a time; a share of them fails.
func (d *demo) workPeriodic(ctx context.Context, takes time.Duration, fails float64, queues ...string) error {
	w, err := client.DialWorker(ctx, d.addresses["periodic"], client.Options{PreferCRC: true})
	if err != nil {
		return err
	}
	defer w.Close()
	for _, q := range queues {
		if err := w.CanDo(ctx, q); err != nil {
			return err
		}
	}
	for {
		a, err := w.Grab(ctx)
		if err != nil {
			return err
		}
		pause(ctx, around(takes))
		if rand.Float64() < fails {
			err = w.FailWith(ctx, a, []byte(failure()))
		} else {
			err = w.Done(ctx, a, []byte(`{"ok":true,"job":"`+a.Job.Name+`"}`))
		}
		if err != nil {
			return err
		}
	}
}

// submitGloom submits jobs of priorities.
func (d *demo) submitGloom(ctx context.Context) error {
	m, err := client.DialMaster(ctx, d.addresses["gloom-masters"])
	if err != nil {
		return err
	}
	defer m.Close()
	for n := 1; ctx.Err() == nil; n++ {
		job := client.GloomJob{
			ID: client.GloomText(fmt.Sprintf("clip-%d", n)), Type: client.GloomText("transcode"), Priority: int64(rand.IntN(3)),
			Body: fmt.Appendf(nil, `{"codec":"av1","minutes":%d}`, 1+rand.IntN(90)),
		}
		if _, err := m.Run(ctx, &job); err != nil {
			return err
		}
		pause(ctx, around(300*time.Millisecond))
	}
	return nil
}

// workGloom does the jobs of submitGloom.
func (d *demo) workGloom(ctx context.Context) error {
	s, err := client.DialSlave(ctx, d.addresses["gloom-slaves"])
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Join(ctx, client.GloomText("transcode")); err != nil {
		return err
	}
	for {
		if _, err := s.Next(ctx); err != nil {
			return err
		}
		pause(ctx, around(500*time.Millisecond))
		if err := s.Respond(ctx, []byte(`{"frames":1440}`)); err != nil {
			return err
		}
	}
}

// submitDwork makes a graph of tasks every so often: many parts, a merge of each dozen and a report of all.
func (d *demo) submitDwork(ctx context.Context) error {
	h, err := client.DialHub(ctx, d.addresses["dwork"])
	if err != nil {
		return err
	}
	defer h.Close()
	for ctx.Err() == nil {
		d.surveys++ // also after a connection that was closed: a hub refuses a name that it knows
		n := d.surveys
		all := client.DworkTask{Name: fmt.Sprintf("survey-%d/report", n), Origin: "demo"}
		for g := range 4 {
			merge := client.DworkTask{Name: fmt.Sprintf("survey-%d/merge-%d", n, g), Origin: "demo"}
			for p := range 12 {
				part := client.DworkTask{Name: fmt.Sprintf("survey-%d/part-%d-%d", n, g, p), Origin: "demo"}
				if err := h.Create(ctx, part); err != nil {
					return err
				}
				merge.After = append(merge.After, part.Name)
			}
			if err := h.Create(ctx, merge); err != nil {
				return err
			}
			all.After = append(all.After, merge.Name)
		}
		if err := h.Create(ctx, all); err != nil {
			return err
		}
		pause(ctx, 25*time.Second)
	}
	return nil
}

// workDwork does tasks as a worker of a name.
func (d *demo) workDwork(ctx context.Context, name string) error {
	h, err := client.DialHub(ctx, d.addresses["dwork"])
	if err != nil {
		return err
	}
	defer h.Close()
	for ctx.Err() == nil {
		tasks, err := h.Steal(ctx, name, 1)
		if err != nil {
			return err
		}
		if len(tasks) == 0 {
			pause(ctx, lastIdle)
			continue
		}
		pause(ctx, around(800*time.Millisecond))
		if _, err := h.Complete(ctx, name, tasks...); err != nil {
			return err
		}
	}
	return nil
}
