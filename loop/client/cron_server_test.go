package client_test

import (
	"strings"
	"testing"
	"time"

	"treadle/loop/client"
)

// TestCronStory: an entry is added, its job is run by hand and done by a Periodic worker, and the entry is paused,
// resumed and removed.
func TestCronStory(t *testing.T) {
	o := newOperators(t)
	s, err := o.admin.AddCron(o.ctx, client.CronEntry{Name: "a", Schedule: "30 2 29 2 *", Zone: "Europe/Berlin", Queue: "f", WorkloadBytes: []byte("\xff")}, false)
	o.ok(err)
	if len(s.Next) != 1 || !strings.HasSuffix(s.Next[0], "-02-29T02:30:00+01:00") {
		t.Errorf("the next time is %v", s.Next)
	}
	r, err := o.admin.RunCron(o.ctx, "a")
	if o.ok(err); r.Outcome != "ran" {
		t.Errorf("got %+v", r)
	}
	if r, err = o.admin.RunCron(o.ctx, "a"); err != nil || r.Outcome != "overlap" {
		t.Errorf("got %+v, %v", r, err)
	}
	o.ok(o.worker.CanDo(o.ctx, "f"))
	o.ok(o.worker.Done(o.ctx, o.grab("a", "\xff"), nil))
	o.ok(o.admin.PauseCron(o.ctx, "a", "why"))
	if s, err = o.admin.CronEntry(o.ctx, "a", 3); err != nil || !s.Paused || s.By != "ada" || s.Why != "why" || len(s.Next) != 0 || s.Counts["ran"] != 1 || s.Last != "overlap" {
		t.Errorf("got %+v, %v", s, err)
	}
	o.ok(o.admin.ResumeCron(o.ctx, "a"))
	if s, err = o.admin.CronEntry(o.ctx, "a", 3); err != nil || s.Paused || len(s.Next) != 3 {
		t.Errorf("got %+v, %v", s, err)
	}
	o.ok(o.admin.RemoveCron(o.ctx, "a"))
	if all, err := o.admin.Cron(o.ctx); err != nil || len(all) != 0 {
		t.Errorf("got %+v, %v", all, err)
	}
}

// TestCronTime: the job of an entry comes to a waiting worker at its time.
func TestCronTime(t *testing.T) {
	o := newOperators(t)
	o.ok(o.worker.CanDo(o.ctx, "f"))
	before := time.Now().Unix()
	_, err := o.admin.AddCron(o.ctx, client.CronEntry{Name: "a", Schedule: "@every 1s", Queue: "f", Workload: "w"}, false)
	o.ok(err)
	for range 2 {
		o.ok(o.worker.Done(o.ctx, o.grab("a", "w"), nil))
	}
	if time.Now().Unix() < before+2 {
		t.Error("two times have passed in one second")
	}
}

// TestCronErrors checks the answers to invalid entries.
func TestCronErrors(t *testing.T) {
	o := newOperators(t)
	f := func(want string, change func(*client.CronEntry)) {
		t.Helper()
		e := client.CronEntry{Name: "a", Schedule: "@daily", Queue: "f"}
		change(&e)
		_, err := o.admin.AddCron(o.ctx, e, false)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("name: it has 1 to", func(e *client.CronEntry) { e.Name = "" })
	f("queue: it has 1 to", func(e *client.CronEntry) { e.Queue = "" })
	f("never runs", func(e *client.CronEntry) { e.Schedule = "0 0 31 2 *" })
	f("is no time zone", func(e *client.CronEntry) { e.Zone = "../../etc/passwd" })
	f("once or skip", func(e *client.CronEntry) { e.Missed = "twice" })
	f("skip or queue", func(e *client.CronEntry) { e.Overlap = "add" })
	f("workload: it has at most", func(e *client.CronEntry) { e.Workload = strings.Repeat("w", 100_000) })
	for _, err := range []error{
		o.admin.RemoveCron(o.ctx, "none"), o.admin.PauseCron(o.ctx, "none", ""), o.admin.ResumeCron(o.ctx, "none"),
	} {
		if err == nil || !strings.Contains(err.Error(), `no cron entry "none"`) {
			t.Errorf("got %v", err)
		}
	}
}
