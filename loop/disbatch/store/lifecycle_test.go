package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

func TestClaimsFollowTheQueuesSort(t *testing.T) {
	s := newSite(t)
	for sort, order := range map[string][]int{"fifo": {0, 1, 2}, "lifo": {2, 1, 0}, "default": {0, 1, 2}} {
		q := s.Queue(d("name", sort, "plugin", "P", "sort", sort))
		ids := s.Fill(&q, d("n", 0), d("n", 1), d("n", 2))
		for _, n := range order {
			task, err := s.Store.Claim(s.Ctx, &q, "me", time.Now())
			if must(t, err); task.ID != ids[n] || task.Status != store.StatusClaimed || task.Node != "me" {
				t.Errorf("%s: claimed %s, want the one of %d", sort, task.Raw, n)
			}
		}
		if _, err := s.Store.Claim(s.Ctx, &q, "me", time.Now()); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: a fourth claim: %v", sort, err)
		}
	}
}

func TestOnlyOneRunBegins(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "plugin", "P"))
	s.Fill(&q, d("n", 0))
	task, err := s.Store.Claim(s.Ctx, &q, "me", time.Now())
	must(t, err)
	first, second := primitive.NewObjectID(), primitive.NewObjectID()
	for _, step := range []struct {
		run  primitive.ObjectID
		want bool
	}{{first, true}, {first, true}, {second, false}} {
		if ok, err := s.Store.Begin(s.Ctx, &task, step.run); err != nil || ok != step.want {
			t.Errorf("begin: %v, %v, want %v", ok, err, step.want)
		}
	}
	if ok, err := s.Store.Finish(s.Ctx, &task, second, store.Outcome{Status: 1}, time.Now()); err != nil || ok {
		t.Errorf("another run could finish it: %v, %v", ok, err)
	}
	end := time.Now()
	for range 2 {
		if ok, err := s.Store.Finish(s.Ctx, &task, first, store.Outcome{Status: 7, Stdout: "o", Stderr: "e"}, end); err != nil || !ok {
			t.Errorf("finish: %v, %v", ok, err)
		}
	}
	ended := s.Task(task.ID)
	if ended.Status != 7 || !ended.Raw.Lookup("complete").Boolean() || ended.Raw.Lookup(store.RunField).Type != 0 || ended.Raw.Lookup("stdout").StringValue() != "o" {
		t.Errorf("the task ended as %s", ended.Raw)
	}
}

// TestSupersededRun: a run whose task was queued again and ended by a later run has not finished it, even with the same
// status. Both keep the mtime of their claims in the second trial.
func TestSupersededRun(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "plugin", "P"))
	begin := func(at time.Time) (store.Task, primitive.ObjectID) {
		t.Helper()
		task, err := s.Store.Claim(s.Ctx, &q, "me", at)
		must(t, err)
		run := primitive.NewObjectID()
		if ok, err := s.Store.Begin(s.Ctx, &task, run); err != nil || !ok {
			t.Fatalf("begin: %v, %v", ok, err)
		}
		return task, run
	}
	start, o := time.Now(), store.Outcome{Status: store.StatusSucceeded, Stdout: "", Stderr: ""}
	for _, end := range []func(claim time.Time) time.Time{
		func(claim time.Time) time.Time { return claim.Add(time.Second) },
		func(time.Time) time.Time { return time.Time{} },
	} {
		id := s.Fill(&q, d("n", 0))[0]
		first, run := begin(start)
		_, err := s.Tasks.UpdateOne(s.Ctx, byID(id), set(d("status", store.StatusQueued, "node", nil)))
		must(t, err)
		later := start.Add(time.Minute)
		second, laterRun := begin(later)
		finish := func(task store.Task, run primitive.ObjectID, claim time.Time, want bool) {
			t.Helper()
			if ok, err := s.Store.Finish(s.Ctx, &task, run, o, end(claim)); err != nil || ok != want {
				t.Errorf("finish: %v, %v, want %v", ok, err, want)
			}
		}
		finish(first, run, start, false)
		finish(second, laterRun, later, true)
		finish(first, run, start, false)
		finish(second, laterRun, later, true) // again, after a lost reply
	}
}

// TestTooLarge: TooLarge recognises the error of the driver and that of the database.
func TestTooLarge(t *testing.T) {
	s := newFaultySite(t)
	q := s.Queue(d("name", "a", "plugin", config.DemoPlugin, "threads", 1))
	id := s.Fill(&q, d("a", strings.Repeat("p", 8<<20)))[0]
	for _, size := range []int{9 << 20, 17 << 20} {
		if _, err := s.Tasks.UpdateOne(s.Ctx, byID(id), set(d("stdout", strings.Repeat("x", size)))); !store.TooLarge(err) {
			t.Errorf("%d bytes more: %v", size, err)
		}
	}
}

// TestLateClaimKeepsDialect: a claim of a 2016 queue that arrives after the release of that dialect's tasks is not
// queued in the other dialect, which a 2016 node would never claim.
func TestLateClaimKeepsDialect(t *testing.T) {
	s := newFaultySite(t)
	q := s.Queue(d("name", "a", "constructor", config.DemoPlugin, "maxthreads", 1))
	id := s.Fill(&q, sitetest.Payloads(1)...)[0]
	updates := 0 // the first and the second
	s.Fake.Inject(func(command string) mongotest.Fault {
		if command == "update" {
			if updates++; updates == 2 {
				s.Fake.Run(d("update", "tasks", "$db", s.Config.Database, "updates", bson.A{
					d("q", d("_id", id), "u", set(d("node", "me", "status", store.StatusClaimed))),
				}))
			}
		}
		return mongotest.None
	})
	_, err := s.Store.ReleaseAll(s.Ctx, "me", []store.Queue{q})
	must(t, err)
	if got := s.Task(id); got.Status != store.StatusClaimed {
		t.Errorf("it is %s", got.Raw)
	}
}
