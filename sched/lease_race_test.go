package sched

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// requestBox collects what is handed to requests, by their tags.
type requestBox struct {
	mu   sync.Mutex
	runs map[uint64][]Run
}

func (b *requestBox) Deliver(d *Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Effect == Assign {
		b.runs[d.Tag] = append(b.runs[d.Tag], d.Job.Run())
	}
}

func (b *requestBox) take(tag uint64) []Run {
	b.mu.Lock()
	defer b.mu.Unlock()
	runs := b.runs[tag]
	delete(b.runs, tag)
	return runs
}

// TestRequestsHangUpTogether: requests that wait end at any moment, while jobs come and leases expire. Each job is done
// once: none is lost on the way to a request that ends, and no token ends the run of another.
func TestRequestsHangUpTogether(t *testing.T) {
	const jobs, workers = 3000, 4
	s := New(Options{Shards: 2, Batch: 8})
	box := &requestBox{runs: make(map[uint64][]Run)}
	queues := [][]byte{[]byte("f"), []byte("g"), []byte("h")}
	var clock, tags, done, expired atomic.Int64
	now := func() Time { return Time{Wall: clock.Load(), Mono: clock.Load()} }
	var all sync.WaitGroup
	all.Go(func() {
		for i := range jobs {
			j := Submission{Queue: queues[i%3], Name: fmt.Append(nil, i)}
			if err := s.Submit(now(), &j, box); err != nil {
				t.Error(err)
			}
		}
	})
	for w := range workers {
		all.Go(func() {
			for turn := w; done.Load() < jobs; turn++ {
				tag := uint64(tags.Add(1))
				p := s.NewRequestPeer(SessionID(w+1), "")
				for _, q := range queues[turn%2:] {
					if err := s.Watch(now(), p, q, false, box); err != nil {
						t.Error(err)
					}
				}
				if got, _, err := s.TryReserveUpTo(now(), p, tag, turn%4, box); err != nil {
					t.Error(err)
				} else if got == 0 {
					if err := s.Reserve(now(), p, tag, box); err != nil {
						t.Error(err)
					}
				}
				var tokens []Token
				if turn%5 > 0 { // else the client has hung up
					tokens = s.Grant(now(), p, box.take(tag), LeaseTerms{Secret: tag, For: int64(turn % 7 * grain)})
				}
				s.Disconnect(now(), p, box)
				for _, token := range tokens { // no job has a time-out: all are leased
					if turn%11 == 0 {
						s.Tick(Time{Wall: clock.Load(), Mono: clock.Add(8 * grain)}, box)
					}
					switch err := s.FinishLeased(now(), token, nil, box); err {
					case nil:
						done.Add(1)
					case ErrLeaseExpired:
						expired.Add(1)
					default:
						t.Error(err)
					}
				}
				if s.Tick(now(), box); t.Failed() {
					return
				}
			}
		})
	}
	all.Wait()
	s.ticks(now(), box)
	if st := s.Stats(); st.Done != jobs || st.Jobs != 0 || st.TimedOut < uint64(expired.Load()) || done.Load() != jobs {
		t.Errorf("%d jobs are done, the counters are %+v", done.Load(), st)
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
}
