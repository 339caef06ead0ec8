package sched

import (
	"runtime"
	"testing"
	"weak"
)

// discardAll is a Sink and a Journal that ignore everything.
type discardAll struct{}

func (discardAll) Deliver(*Delivery) {}
func (discardAll) Save(int, *Saved)  {}
func (discardAll) Begin(int)         {}
func (discardAll) End(int)           {}
func (discardAll) Drop(int, uint64)  {}

// TestLargeBytesAreFreed checks that the memory of large jobs, tasks and results is freed with them, even if no verb
// follows.
func TestLargeBytesAreFreed(t *testing.T) {
	const jobs, tasks = 1, 2
	large := func() []byte { return make([]byte, keepOwn+1) }
	queue, name := []byte("q"), []byte("n")
	var now Time
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// f makes, views and ends a job or task. end returns the bytes that are not in the arena.
	f := func(what string, make, end func(s *Scheduler, p *Peer) []byte) {
		t.Helper()
		s := New(Options{Rules: [MaxSpaces]Rules{jobs: {Durable: true}, tasks: {Durable: true, Graph: true, Untimed: true}}, Shards: 1, Journal: discardAll{}})
		p := s.NewPeer(1)
		must(s.Watch(now, p, queue, false, discardAll{}))
		var views []weak.Pointer[byte]
		watch := func(b []byte) {
			if len(b) >= keepOwn {
				views = append(views, weak.Make(&b[0]))
			}
		}
		watch(make(s, p))
		s.Walk(Cursor{}, 100, func(*Job) {})
		s.LookupTask(tasks, queue, name, func(*TaskView) {})
		for i := range s.shards[0].arena.chunks {
			watch(s.shards[0].arena.chunks[i].buf)
		}
		watch(end(s, p))
		if len(views) < 2 {
			t.Fatalf("%s: %d large buffers are seen", what, len(views))
		}
		runtime.GC()
		for i, v := range views {
			if v.Value() != nil {
				t.Errorf("%s: buffer %d of %d is kept", what, i, len(views))
			}
		}
		runtime.KeepAlive(s)
	}
	submit := func(s *Scheduler, p *Peer) []byte {
		j := &Submission{Space: jobs, Queue: queue, Name: name, Workload: large(), Await: p}
		err := s.Submit(now, j, discardAll{})
		must(err)
		return j.Workload
	}
	extend := func(s *Scheduler, _ *Peer) []byte {
		all := []Task{{Name: name, Workload: large()}}
		must(s.AddTasks(now, tasks, queue, all, discardAll{}))
		return all[0].Workload
	}
	held := func(s *Scheduler, p *Peer) Run {
		must(s.Reserve(now, p, 7, discardAll{}))
		run, ok := s.Held(p, queue, name)
		if !ok {
			t.Fatal("it is not assigned")
		}
		return run
	}
	f("done", submit, func(s *Scheduler, p *Peer) []byte {
		result := large()
		must(s.Finish(now, p, held(s, p), result, discardAll{}))
		return result
	})
	f("published", submit, func(s *Scheduler, p *Peer) []byte {
		ref, data := held(s, p), large()
		must(s.Listen(p, jobs, queue, name, 8))
		_, err := s.Publish(p, ref, data, 9, discardAll{})
		must(err)
		must(s.Finish(now, p, ref, nil, discardAll{}))
		return data
	})
	f("replaced", submit, func(s *Scheduler, _ *Peer) []byte {
		err := s.Submit(now, &Submission{Space: jobs, Queue: queue, Name: name}, discardAll{})
		must(err)
		return nil
	})
	f("removed", submit, func(s *Scheduler, _ *Peer) []byte {
		s.Remove(now, jobs, queue, name, discardAll{})
		return nil
	})
	f("a task done", extend, func(s *Scheduler, p *Peer) []byte {
		must(s.Finish(now, p, held(s, p), nil, discardAll{}))
		return nil
	})
	f("a task cancelled", extend, func(s *Scheduler, _ *Peer) []byte {
		s.RemoveTask(now, tasks, queue, name, discardAll{})
		return nil
	})
}
