package node

import (
	"fmt"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// countTogether holds the given number of claims until all are made. Each then counts all others.
func (s *site) countTogether(claims int) {
	var mu sync.Mutex
	made, all := 0, make(chan struct{})
	s.Fake.Inject(func(command string) mongotest.Fault {
		switch command {
		case "findAndModify":
			mu.Lock()
			defer mu.Unlock()
			if made++; made == claims {
				close(all)
			}
		case "aggregate":
			<-all
		}
		return mongotest.None
	})
}

// TestConcurrentClaimsFillLimit: eight nodes claim at once from a queue with fewer threads at all nodes. As many claims
// as threads stay, in every order of the queue.
func TestConcurrentClaimsFillLimit(t *testing.T) {
	const nodes, threads = 8, 3
	for _, sort := range []string{"fifo", "lifo", "default"} {
		t.Run(sort, func(t *testing.T) {
			s := newFaultySite(t)
			q := s.Queue(d("name", "a", "plugin", "F", "threads", threads, "sort", sort))
			s.Fill(&q, sitetest.Payloads(40)...)
			var claimers [nodes]*Node
			var states [nodes]*queueState
			for i := range nodes {
				claimers[i], states[i] = s.idle(fmt.Sprint("node", i), &q)
			}
			for left := 40; left > 0; left -= threads {
				var all sync.WaitGroup
				var mu sync.Mutex
				var kept []primitive.ObjectID
				s.countTogether(min(nodes, left))
				for i, n := range claimers {
					all.Go(func() {
						states[i].share, states[i].extra = 0, threads
						if a, err := n.claimNext(states[i], nil); err == nil {
							mu.Lock()
							defer mu.Unlock()
							kept = append(kept, store.DecodeTask(a.Task).ID)
						}
					})
				}
				all.Wait()
				s.Fake.Inject(nil)
				if len(kept) != min(threads, left) {
					t.Fatalf("%d of %d claims are kept with %d tasks left", len(kept), nodes, left)
				}
				if n, err := s.Store.CountTasks(s.Ctx, d("status", store.StatusClaimed)); err != nil || int(n) != len(kept) {
					t.Fatalf("%d tasks are claimed, %v", n, err)
				}
				for _, id := range kept {
					_, err := s.Tasks.UpdateOne(s.Ctx, byID(id), set(d("status", store.StatusSucceeded)))
					must(t, err)
				}
			}
		})
	}
}
