package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	codec "treadle/codec/dwork"
	"treadle/loop/client"
	"treadle/loop/dwork"
	"treadle/sched"
)

// hub connects a client of the dwork protocol.
func (r *testServer) hub() *client.HubClient {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	for _, l := range r.listening {
		if l.Setting == "dwork" {
			h, err := client.DialHub(ctx, l.Address)
			if err != nil {
				r.t.Fatal(err)
			}
			r.t.Cleanup(h.Close)
			return h
		}
	}
	r.t.Fatal("nobody speaks dwork")
	return nil
}

var dworkOn = Options{Dwork: DworkOptions{Listen: []string{"tcp://127.0.0.1:0"}}}

func tasksOf(names ...string) (all []client.DworkTask) {
	for _, n := range names {
		all = append(all, client.DworkTask{Name: n, Origin: "o"})
	}
	return all
}

func namesOf(tasks []client.DworkTask) (all []string) {
	for _, t := range tasks {
		all = append(all, t.Name)
	}
	return all
}

// TestDworkAcknowledgedAfterSync: Create, Complete and Transfer are answered after their sync. Steal, Exit, Lookup and
// the status do not wait, on the same connection or another.
func TestDworkAcknowledgedAfterSync(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, dworkOn)
	writer, other := r.hub(), r.hub()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := writer.Create(ctx, tasksOf("a", "b", "c")...); err != nil {
		t.Fatal(err)
	}
	if got, err := writer.Steal(ctx, "w", 2); err != nil || !slices.Equal(namesOf(got), []string{"a", "b"}) {
		t.Fatal(got, err)
	}
	for what, do := range map[string]func() error{
		"create":   func() error { return writer.Create(ctx, tasksOf("d")...) },
		"complete": func() error { _, err := writer.Complete(ctx, "w", tasksOf("a")...); return err },
		"transfer": func() error { return writer.Transfer(ctx, "w", tasksOf("b")...) },
	} {
		d.gate.Lock()
		answered := make(chan error, 1)
		go func() { answered <- do() }()
		// The hub has taken the request when a later request of another connection is parked, too, or when it owes a
		// reply.
		for !r.Server.hub().HasPending() && ctx.Err() == nil {
			if _, _, err := other.Status(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := other.Lookup(ctx, "nothing"); !errors.Is(err, client.ErrNoTask) {
			t.Errorf("%s: a lookup meanwhile: %v", what, err)
		}
		if err := other.Exit(ctx, "nobody"); !errors.Is(err, client.ErrNoTask) {
			t.Errorf("%s: an exit meanwhile: %v", what, err)
		}
		if _, err := other.Steal(ctx, "thief", 1); err != nil && !errors.Is(err, client.ErrNoTask) {
			t.Errorf("%s: a steal meanwhile: %v", what, err)
		}
		select {
		case err := <-answered:
			t.Errorf("%s is answered before it is on disk: %v", what, err)
		default:
		}
		d.gate.Unlock()
		if err := <-answered; err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDworkRestart: the graph survives the process: assigned tasks stay with their worker's
// location, or are ready again, by the setting. Complete tasks stay complete.
func TestDworkRestart(t *testing.T) {
	t.Parallel()
	for _, restart := range []string{"keep", "ready"} {
		d := newDisk()
		o := dworkOn
		o.Dwork.Restart = restart
		r := d.on(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		h := r.hub()
		if err := h.Create(ctx, client.DworkTask{Name: "a", Origin: "o"}, client.DworkTask{Name: "b", Origin: "o", After: []string{"a"}},
			client.DworkTask{Name: "c", Origin: "o"}, client.DworkTask{Name: "d", Origin: "o", After: []string{"b", "c"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Steal(ctx, "w", 2); err != nil { // a and c
			t.Fatal(err)
		}
		if _, err := h.Complete(ctx, "w", tasksOf("a")...); err != nil {
			t.Fatal(err)
		}
		if err := h.Create(ctx, client.DworkTask{Name: "d", Origin: "o", After: []string{"e"}}, client.DworkTask{Name: "e", Origin: "o"},
			client.DworkTask{Name: "d", Origin: "o", After: []string{"e"}}); err != nil {
			t.Fatal(err)
		}
		r.stop()
		<-r.ended

		r = d.on(t, o)
		h = r.hub()
		text, ready, err := h.Status(ctx)
		want, wantReady := "dhub: 4 active tasks, 2 ready.", 2
		if restart == "ready" {
			want, wantReady = "dhub: 4 active tasks, 3 ready.", 3
		}
		if err != nil || text != want || ready != wantReady {
			t.Errorf("%s: %s, %v", restart, text, err)
		}
		info, err := h.Lookup(ctx, "d")
		slices.Sort(info.After)
		if err != nil || !slices.Equal(info.After, []string{"b", "c", "e"}) {
			t.Errorf("%s: d waits for %q, %v", restart, info.After, err)
		}
		info, err = h.Lookup(ctx, "e")
		if err != nil || len(info.Log) != 1 || info.Log[0].State != codec.Ready {
			t.Errorf("%s: what happened to e is %v, %v, want that it became ready once", restart, info.Log, err)
		}
		info, err = h.Lookup(ctx, "c")
		if err != nil || restart == "keep" != (info.Location == "w") {
			t.Errorf("%s: c is at %q, %v", restart, info.Location, err)
		}
		if restart == "keep" {
			if _, err := h.Complete(ctx, "w", tasksOf("c")...); err != nil {
				t.Error(err)
			}
		}
		done := workOff(ctx, t, h, "w2")
		slices.Sort(done)
		if want := map[string][]string{"keep": {"b", "d", "e"}, "ready": {"b", "c", "d", "e"}}[restart]; !slices.Equal(done, want) {
			t.Errorf("%s: %q were done, want %q", restart, done, want)
		}
	}
}

// workOff steals and completes until no task is left.
func workOff(ctx context.Context, t *testing.T, h *client.HubClient, location string) (done []string) {
	t.Helper()
	for {
		tasks, err := h.Steal(ctx, location, 1)
		if errors.Is(err, client.ErrAllDone) {
			return done
		}
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, namesOf(tasks)...)
		if _, err := h.Complete(ctx, location, tasks...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDworkFullDisk: without room Create is refused, and existing tasks can be done.
func TestDworkFullDisk(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, dworkOn)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h := r.hub()
	if err := h.Create(ctx, tasksOf("a")...); err != nil {
		t.Fatal(err)
	}
	d.free.Store(1)
	var err error
	for n := 0; err == nil && ctx.Err() == nil; n++ { // the journal looks now and then
		err = h.Create(ctx, tasksOf(fmt.Sprint("more ", n))...)
	}
	if !errors.Is(err, client.ErrHubRefused) {
		t.Errorf("a Create without room: %v", err)
	}
	if done := workOff(ctx, t, h, "w"); !slices.Contains(done, "a") {
		t.Errorf("done: %q", done)
	}
}

// TestDworkPaused: while the queue is paused for submits Create is refused, and existing tasks can be done.
func TestDworkPaused(t *testing.T) {
	t.Parallel()
	o := dworkOn
	o.HTTP = "127.0.0.1:0"
	r := newDisk().on(t, o)
	a := api{t, r}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h := r.hub()
	if err := h.Create(ctx, tasksOf("a")...); err != nil {
		t.Fatal(err)
	}
	a.ask("/queues/pause", `{"queue":"dwork","what":"submits"}`, nil)
	if err := h.Create(ctx, tasksOf("b")...); !errors.Is(err, client.ErrHubRefused) {
		t.Errorf("a Create while submits are paused: %v", err)
	}
	if done := workOff(ctx, t, h, "w"); !slices.Equal(done, []string{"a"}) {
		t.Errorf("done: %q", done)
	}
	a.ask("/queues/resume", `{"queue":"dwork"}`, nil)
	if err := h.Create(ctx, tasksOf("b")...); err != nil {
		t.Error(err)
	}
}

// TestDworkLeaseRestart: the lease of a worker that holds tasks begins again with a restart, however long that took.
func TestDworkLeaseRestart(t *testing.T) {
	t.Parallel()
	d := newDisk()
	now := new(sched.Time)
	life := func(start sched.Time, talk func(ask func(string) string, hub *dwork.Protocol)) {
		*now = start
		s, err := newServer(Options{Data: "data", Loops: 1, Dwork: DworkOptions{Lease: 10 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		s.clock, s.journalOpts.FS = func() sched.Time { return *now }, d
		if err := s.openJournal(); err != nil {
			t.Fatal(err)
		}
		talk(func(request string) string { return askDwork(t, s.hub(), request) }, s.hub())
		if err := s.closeJournal(nil); err != nil {
			t.Fatal(err)
		}
	}
	life(sched.Time{Wall: 1_000_000}, func(ask func(string) string, _ *dwork.Protocol) {
		ask(`type: Create task { name: "a" origin: "o" }`)
		ask(`type: Steal location: "w"`)
	})
	life(sched.Time{Wall: 2_000_000, Mono: 60_000}, func(ask func(string) string, hub *dwork.Protocol) { // it read the journal for a minute
		now.Wall, now.Mono = now.Wall+9000, now.Mono+9000
		hub.Expire()
		if got := ask(`type: Complete task { name: "a" origin: "" } location: "w"`); got != "type:OK" {
			t.Errorf("the worker completes its task, and hears %s", got)
		}
	})
}
