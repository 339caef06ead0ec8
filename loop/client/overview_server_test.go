package client_test

import (
	"errors"
	"net/http"
	"testing"

	"treadle/loop/client"
)

// TestOverview: an overview counts the server's jobs, lists the busiest queues and sums the others.
func TestOverview(t *testing.T) {
	o := newOperators(t)
	for _, j := range []client.Job{{Func: "a", Name: "1"}, {Func: "b", Name: "1"}, {Func: "b", Name: "2"}, {Func: "c", Name: "1", SchedAt: 1 << 40}, {Func: "b", Name: "3", SchedAt: 1 << 40}} {
		o.ok(o.client.Submit(o.ctx, &j))
	}
	o.ok(o.set("b", "paused=hand-out", "paused-why=moving"))
	v, err := o.admin.Overview(o.ctx, 2)
	o.ok(err)
	if !v.Ready || v.Health != "ok" || v.Submitted != 5 || v.Done != 0 || v.Failed != 0 || v.At < v.Started || v.Started == 0 {
		t.Errorf("%+v", v)
	}
	if len(v.Queues) != 2 || v.RestQueues != 1 {
		t.Fatalf("%d queues, and %d in the rest", len(v.Queues), v.RestQueues)
	}
	for i, want := range []client.QueueState{
		{Queue: "b", Ready: 2, Delayed: 1, Paused: "hand-out", PausedWhy: "moving", SubmittedTotal: 3},
		{Queue: "a", Ready: 1, SubmittedTotal: 1},
	} {
		got := v.Queues[i]
		got.Oldest = 0
		if got.Queue != want.Queue || got.Ready != want.Ready || got.Delayed != want.Delayed || got.Paused != want.Paused || got.PausedWhy != want.PausedWhy || got.SubmittedTotal != want.SubmittedTotal {
			t.Errorf("queue %d is %+v, want %+v", i, got, want)
		}
	}
	if v.Rest.Delayed != 1 || v.Rest.Ready != 0 || v.Rest.SubmittedTotal != 1 {
		t.Errorf("the rest is %+v", v.Rest)
	}
	_, err = o.admin.Overview(o.ctx, 1001)
	var refused *client.AnswerError
	if !errors.As(err, &refused) || refused.Status != http.StatusBadRequest {
		t.Errorf("a page of 1001: %v", err)
	}
	if _, err = o.admin.Queue(o.ctx, "nobody"); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("a queue that is not there: %v", err)
	}
}
