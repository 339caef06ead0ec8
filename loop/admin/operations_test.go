package admin

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// aloneHost is a host of nothing but a scheduler.
type aloneHost struct {
	Host
	sched *sched.Scheduler
}

func (h aloneHost) Sched() *sched.Scheduler        { return h.sched }
func (h aloneHost) Spaces() *protocol.Spaces       { return new(protocol.Spaces) }
func (h aloneHost) Now() sched.Time                { return sched.Time{Wall: 1} }
func (h aloneHost) NewSink() protocol.Sink         { return noSink{} }
func (h aloneHost) CommitGroupAll() (uint64, bool) { return 0, false }
func (h aloneHost) FlushLater()                    {}
func (h aloneHost) PutSetting(string, []byte)      {}
func (h aloneHost) Log() *slog.Logger              { return slog.New(slog.DiscardHandler) }
func (h aloneHost) Go(work func())                 { go work() }

func (h aloneHost) Yield(began time.Time) time.Time { return began }

type noSink struct{}

func (noSink) Deliver(*sched.Delivery) {}
func (noSink) Wake()                   {}

// TestOperationsAreBounded: so many operations run at a time, and the last of those that have ended are remembered. A
// server that stops starts none.
func TestOperationsAreBounded(t *testing.T) {
	i := &API{host: aloneHost{sched: sched.New(sched.Options{})}}
	o := &i.operations
	start := func() (*operation, error) {
		op, err := o.start(i, &codec.JobsChange{Verb: codec.VerbRemove, Filter: "queue:f"}, &sched.JobChange{Verb: sched.RemoveJobs}, auditor{})
		if err != nil {
			return nil, err
		}
		return op.(*operation), nil
	}
	var waiting []*operation
	for range maxRunning {
		op, err := start()
		if err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, op)
	}
	if _, err := start(); !errors.Is(err, errBusy) {
		t.Errorf("one more than may run: %v", err)
	}
	waiting[1].begin()
	for range maxOperations {
		for {
			op, err := start()
			if err == nil {
				op.begin()
				break
			}
		}
	}
	o.mu.Lock()
	first, n := o.all[0].Operation.Operation, len(o.all)
	o.mu.Unlock()
	if n != maxOperations || first != "1" {
		t.Errorf("%d operations are remembered, the first is %s", n, first)
	}
	for _, op := range []*operation{waiting[0], waiting[2], waiting[3]} {
		op.begin()
	}
	i.running.Wait()
	if o.running != 0 {
		t.Errorf("%d operations run", o.running)
	}
	o.stop()
	if _, err := start(); err == nil {
		t.Error("a server that stops starts an operation")
	}
}

// TestAuditIsBounded: the last records are kept, with texts of a bounded length, and a restart finds them in order.
func TestAuditIsBounded(t *testing.T) {
	kept := make(map[string][]byte)
	i := &API{host: settingsHost{aloneHost{}, kept}}
	for n := range maxAudit + 5 {
		i.audit(auditor{by: "a"}, codec.AuditRecord{Request: fmt.Sprint(n), Target: string(make([]byte, 9000)) + "\xff"})
	}
	j := &API{host: i.host}
	for _, value := range kept { // in any order
		if err := j.audited.restore(value); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range []*auditLog{&i.audited, &j.audited} {
		if len(l.all) != maxAudit || l.all[0].Request != "5" || l.all[maxAudit-1].Number != maxAudit+5 || l.last != maxAudit+5 || len(l.all[7].Target) > maxAuditText+3 {
			t.Errorf("%d records, from %+v", len(l.all), l.all[0])
		}
	}
	if err := j.audited.restore([]byte("{")); err == nil {
		t.Error("a damaged record is taken")
	}
}

// settingsHost keeps settings.
type settingsHost struct {
	aloneHost
	kept map[string][]byte
}

func (h settingsHost) PutSetting(key string, value []byte) { h.kept[key] = value }

// TestOperationFindsAllOfOneKey: an operation that takes jobs out of their queue finds all of one priority and due
// time, in whatever order they stand. It leaves those that the filter does not mean.
func TestOperationFindsAllOfOneKey(t *testing.T) {
	for verb, change := range map[string]*sched.JobChange{
		codec.VerbRemove: {Verb: sched.RemoveJobs},
		codec.VerbMove:   {Verb: sched.MoveJobs, Queue: "g"},
	} {
		const jobs = 9
		s := sched.New(sched.Options{})
		i := &API{host: aloneHost{sched: s}, o: Options{Slice: 1}}
		var refs []sched.JobRef
		for n := range 2 * jobs {
			name := fmt.Appendf(nil, "%s%d", []string{"a", "b"}[n%2], n)
			if err := s.Submit(i.host.Now(), &sched.Submission{Queue: []byte("f"), Name: name}, noSink{}); err != nil {
				t.Fatal(err)
			}
		}
		every, err := sched.NewListing(&sched.Match{}, []byte("f"), false, "")
		if err != nil {
			t.Fatal(err)
		}
		s.List(i.host.Now(), every, 1000, func(v *sched.JobView) bool {
			refs = append(refs, v.Ref)
			return true
		})
		slices.Reverse(refs)
		raised := s.ChangeJobs(i.host.Now(), refs, &sched.JobChange{Verb: sched.SetPriority, Priority: 1}, noSink{}, nil)
		if raised != 2*jobs {
			t.Fatalf("%d jobs stand in another order", raised)
		}
		op, err := i.operations.start(i, &codec.JobsChange{Verb: verb, Filter: "queue:f name:a*"}, change, auditor{})
		if err != nil {
			t.Fatal(err)
		}
		op.(*operation).begin()
		i.running.Wait()
		if o := op.(*operation).view(); o.State != codec.OperationDone || o.Changed != jobs || o.Matched != jobs || o.Left != 0 {
			t.Errorf("%s: %+v", verb, o)
		}
		if q, _ := s.StatusOf([]byte("f")); q.Jobs != jobs {
			t.Errorf("%s: %d jobs are left", verb, q.Jobs)
		}
	}
}

// failingHost has a worker that fails all ready jobs whenever the server reads the clock, which goes on a second then.
type failingHost struct {
	aloneHost
	t      *testing.T
	worker *sched.Peer
	now    *sched.Time
	jobs   *lastJob
	left   *int // failures until the worker stops: an operation without an end ends then
}

type lastJob struct{ run sched.Run }

func (l *lastJob) Deliver(d *sched.Delivery) { l.run = d.Job.Run() }

func (h failingHost) Now() sched.Time {
	h.now.Wall += 1000
	for ; *h.left > 0; *h.left-- {
		got, err := h.sched.TryReserve(*h.now, h.worker, 1, h.jobs)
		if err != nil {
			h.t.Fatal(err)
		}
		if !got {
			return *h.now
		}
		if err := h.sched.Fail(*h.now, h.worker, h.jobs.run, nil, noSink{}); err != nil {
			h.t.Fatal(err)
		}
	}
	return *h.now
}

// TestOperationEnds: an operation changes a job once, also one that fails again behind it, and is over then. It changes
// jobs that failed before the clock was set back, too.
func TestOperationEnds(t *testing.T) {
	for _, c := range []struct {
		verb   sched.JobVerb
		policy map[string]string
		back   int64 // milliseconds by which the clock is set back
	}{
		{sched.RetryJobs, map[string]string{"retries": "0"}, 0},
		{sched.RetryJobs, map[string]string{"retries": "0"}, 3_600_000},
		{sched.RunJobs, map[string]string{"backoff": "1h"}, 0},
	} {
		const jobs = 1000
		s := sched.New(sched.Options{})
		table, err := sched.NewPolicies([]sched.PolicyRule{{Pattern: "f", Values: c.policy}})
		if err != nil {
			t.Fatal(err)
		}
		s.SetPolicies(table)
		left := 5 * jobs
		h := failingHost{aloneHost{sched: s}, t, s.NewPeer(1, 0), &sched.Time{Wall: 1_700_000_000_000}, new(lastJob), &left}
		if err := s.Watch(*h.now, h.worker, []byte("f"), false, noSink{}); err != nil {
			t.Fatal(err)
		}
		for n := range jobs {
			if err := s.Submit(*h.now, &sched.Submission{Queue: []byte("f"), Name: fmt.Append(nil, n)}, noSink{}); err != nil {
				t.Fatal(err)
			}
		}
		h.Now()
		h.now.Wall -= c.back
		i := &API{host: h}
		op, err := i.operations.start(i, &codec.JobsChange{Filter: "queue:f"}, &sched.JobChange{Verb: c.verb}, auditor{})
		if err != nil {
			t.Fatal(err)
		}
		op.(*operation).begin()
		i.running.Wait()
		if o := op.(*operation).view(); o.State != codec.OperationDone || o.Changed != jobs || o.Matched != jobs {
			t.Errorf("verb %d: %+v", c.verb, o)
		}
	}
}
