package sched

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// TestNoLostWakeupLock checks that a job that asks for a lock while its only holder unlocks it or
// ends gets the lock, at once or when it is woken: a refused job is in line before the holder,
// which may be of another shard, can end.
func TestNoLostWakeupLock(t *testing.T) {
	s, sink := New(Options{Shards: 8}), newInboxes(2)
	var peers [2]*Peer
	var held [2]Run
	var tags [2]uint64
	take := func(i int) bool {
		tags[i]++
		if err := s.Reserve(testNow, peers[i], tags[i], sink); err != nil {
			t.Error(err)
		}
		letters := sink[i].wait(nil)
		s.Flushed(testNow, peers[i], 0, sink)
		if len(letters) == 1 {
			held[i] = letters[0].job.run
		}
		return len(letters) == 1
	}
	acquire := func(i int) bool {
		got, err := s.AcquireLock(testNow, peers[i], held[i], "lock", 1, sink)
		if err != nil {
			t.Error(err)
		}
		return got
	}
	for i := range peers {
		peers[i] = s.NewPeer(SessionID(i) << inboxShift)
		if err := s.Watch(testNow, peers[i], []byte{byte('a' + i)}, false, sink); err != nil {
			t.Fatal(err)
		}
	}
	before := func(int) {
		for i := range peers {
			if err := s.Submit(testNow, &Submission{Queue: []byte{byte('a' + i)}}, sink); err != nil || !take(i) {
				t.Error("no job:", err)
			}
		}
		if !acquire(0) {
			t.Error("a free lock is refused")
		}
	}
	leave := func(round int) {
		if round%2 == 0 {
			if err := s.ReleaseLock(testNow, peers[0], held[0], "lock", sink); err != nil {
				t.Error(err)
			}
		}
		if err := s.Finish(testNow, peers[0], held[0], nil, sink); err != nil {
			t.Error(err)
		}
	}
	duel(t, before, leave, func(int) bool {
		for !acquire(1) {
			if !take(1) {
				return false
			}
		}
		return s.Finish(testNow, peers[1], held[1], nil, sink) == nil
	})
	if err := s.check(); err != nil {
		t.Error(err)
	}
}

// TestLockUnderRace checks under concurrency that at most count jobs hold a lock, and that every
// refused job gets it in the end: without a lock time-out a lost wake-up would leave it parked for
// ever.
func TestLockUnderRace(t *testing.T) {
	const (
		jobs, workers, most = 4000, 6, 2
		lock                = "lock"
	)
	s := New(Options{Shards: 4})
	sink := newInboxes(workers)
	var inside, left atomic.Int64
	left.Store(jobs)
	finish := make(chan struct{})
	now := testNow
	work := func(box int, p *Peer, d delivered) {
		got, err := s.AcquireLock(now, p, d.job.run, lock, most, sink)
		if err != nil {
			t.Errorf("acquire: %v", err)
		}
		if !got {
			return // it comes again
		}
		if n := inside.Add(1); n > most {
			t.Errorf("%d are inside", n)
		}
		i, _ := strconv.Atoi(d.job.name)
		runtime.Gosched()
		inside.Add(-1)
		switch {
		case i%3 == 0:
			err = s.ReleaseLock(now, p, d.job.run, lock, sink)
			if err == nil {
				err = s.Finish(now, p, d.job.run, nil, sink)
			}
		case i%7 == 0 && d.job.count == 0:
			if err = s.Delay(now, p, d.job.run, 0, 1, sink); err == nil {
				return
			}
		default:
			err = s.Finish(now, p, d.job.run, nil, sink)
		}
		if err != nil {
			t.Errorf("job %d: %v", i, err)
		}
		if left.Add(-1) == 0 {
			close(finish)
		}
	}
	var all sync.WaitGroup
	for box := range workers {
		p := s.NewPeer(SessionID(box) << inboxShift)
		for q := range 3 {
			if err := s.Watch(now, p, []byte{byte('f' + q)}, false, sink); err != nil {
				t.Fatal(err)
			}
		}
		all.Go(func() {
			for tag := uint64(0); ; tag++ {
				if err := s.Reserve(now, p, tag, sink); err != nil {
					t.Error(err)
				}
				letters := sink[box].wait(finish)
				if letters == nil {
					break
				}
				for _, d := range letters {
					work(box, p, d)
				}
				s.Flushed(now, p, 0, sink)
			}
		})
	}
	for i := range jobs {
		j := Submission{Queue: []byte{byte('f' + i%3)}, Name: strconv.AppendInt(nil, int64(i), 10)}
		if err := s.Submit(now, &j, sink); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	if n := left.Load(); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
}
