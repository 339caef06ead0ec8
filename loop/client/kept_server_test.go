package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"treadle/loop/client"
)

// TestFinishedJobStory: a result is read later; the name of a done job is not queued again, and a Run of it has the
// kept result; a job that waits too long ends as expired, and is kept as that.
func TestFinishedJobStory(t *testing.T) {
	o := newOperators(t)
	o.ok(o.set("f", "keep-results=10", "keep-done=10", "unique-for=1h"))
	o.ok(o.worker.CanDo(o.ctx, "f"))
	o.ok(o.client.Submit(o.ctx, &client.Job{Func: "f", Name: "j", Workload: []byte("hi")}))
	o.ok(o.worker.Done(o.ctx, o.grab("j", "hi"), []byte("HI\x00")))
	o.ok(o.worker.Ping(o.ctx))
	o.ok(o.client.Submit(o.ctx, &client.Job{Func: "f", Name: "j", Workload: []byte("again")}))
	if data, err := o.client.Run(o.ctx, &client.Job{Func: "f", Name: "j"}); err != nil || string(data) != "HI\x00" {
		t.Errorf("a Run of a done job: %q, %v", data, err)
	}
	o.ok(o.set("f", "job-ttl=1ms"))
	o.ok(o.worker.CantDo(o.ctx, "f"))
	o.ok(o.worker.Ping(o.ctx))
	o.ok(o.client.Submit(o.ctx, &client.Job{Func: "f", Name: "late"}))
	var page []client.ListedJob
	for len(page) < 2 && o.ctx.Err() == nil { // no worker asks for it
		p, err := o.admin.Jobs(o.ctx, "state:done,expired queue:f", "", 100)
		o.ok(err)
		page = p.Jobs
	}
	o.ok(o.ctx.Err())
	var got []string
	for i := range page {
		j := &page[i]
		got = append(got, fmt.Sprint(j.Name, " ", j.State, " ", j.Tries, " ", j.Size, " ", j.Worker != ""))
	}
	if fmt.Sprint(got) != "[j done 1 2 true late expired 0 0 false]" {
		t.Errorf("finished are %q", got)
	}
	var data bytes.Buffer
	if o.ok(o.admin.JobResult(o.ctx, page[0].ID, &data)); data.String() != "HI\x00" {
		t.Errorf("the result is %q", &data)
	}
	for _, id := range []string{page[1].ID, "0.0.99"} {
		if err := o.admin.JobResult(o.ctx, id, &data); err == nil {
			t.Errorf("job %s has a result", id)
		}
	}
	for _, name := range []string{"j", "late"} {
		d, err := o.admin.ChangeJobs(o.ctx, &client.JobsChange{Verb: "remove", Queue: "f", Name: name})
		if o.ok(err); d.Changed != 1 || d.Left != nil {
			t.Errorf("%s is removed: %+v", name, d)
		}
	}
}

// TestRunOfExpired: a Run whose job no worker starts in time fails.
func TestRunOfExpired(t *testing.T) {
	o := newOperators(t)
	o.ok(o.set("f", "job-ttl=1ms", "concurrency=1"))
	o.ok(o.worker.CanDo(o.ctx, "f"))
	o.ok(o.client.Submit(o.ctx, &client.Job{Func: "f", Name: "runs"}))
	runs := o.grab("runs", "")
	if _, err := o.client.Run(o.ctx, &client.Job{Func: "f", Name: "waits"}); !errors.Is(err, client.ErrFailed) {
		t.Errorf("a Run of a job that expires: %v", err)
	}
	o.ok(o.worker.Done(o.ctx, runs, nil))
	ctx, cancel := context.WithTimeout(o.ctx, 0)
	defer cancel()
	if a, err := o.worker.Grab(ctx); err == nil {
		t.Errorf("%q was handed out", a.Job.Name)
	}
}
