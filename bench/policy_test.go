package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"treadle/bench/load"
)

// TestPolicyRatios compares a server with a policy with the one without, in the same row.
func TestPolicyRatios(t *testing.T) {
	r := newReport(settings{Rounds: 1}, time.Now(), nil, nil, []*sample{
		{Section: "policy", Row: "limits", Server: "treadle", Figures: figures{"jobs/s": 100}},
		{Section: "policy", Row: "limits", Server: "treadle limits", Figures: figures{"jobs/s": 90}},
		{Section: "policy", Row: "100k keys", Server: "treadle", Figures: figures{"jobs/s": 100}},
		{Section: "policy", Row: "100k keys", Server: "treadle fair", Figures: figures{"jobs/s": 80}},
	})
	got := ""
	for _, p := range r.pairs(layoutOf("policy"), r.ofSection("policy")) {
		got += p.first + ": " + p.second + " " + ratio(p.a["jobs/s"], p.b["jobs/s"]) + "\n"
	}
	if want := "limits: treadle limits / treadle 0.90\n100k keys: treadle fair / treadle 0.80\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestLongestWait: of a worker with one grab outstanding, the time of each grab is known.
func TestLongestWait(t *testing.T) {
	r := row{Name: "sync", Load: load.Load{Connections: 2, Depth: 1}, Jobs: alone(300)}
	c := fakePeer(t, "treadle", flawless, "")
	running, err := c.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer running.Stop()
	r.Load.Jobs = 300
	trial := load.New(t.Context(), r.endpoints(c, running), r.Load)
	defer trial.Close()
	if err := inOrder(trial.Connect, func() error { _, err := trial.ProduceAndWork(); return err }); err != nil {
		t.Fatal(err)
	}
	if f := trial.Summary(); f.Grab.P50 <= 0 || f.Grab.Max < f.Grab.P50 {
		t.Errorf("got %+v", f.Grab)
	}
}

// TestRepeatDuring does something with pauses until the phase is over, and passes its error on.
func TestRepeatDuring(t *testing.T) {
	f := func(fails error, want int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			done := 0
			err := repeatDuring(t.Context(), time.Second, func() error { time.Sleep(2500 * time.Millisecond); return nil }, func(context.Context) error {
				done++
				return fails
			})
			if done != want || !errors.Is(err, fails) {
				t.Errorf("done %d times, want %d: %v", done, want, err)
			}
		})
	}
	f(nil, 3)
	f(errors.New("refused"), 1)
}
