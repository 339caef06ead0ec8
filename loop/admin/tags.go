package admin

import "sync"

// requestTable has the requests that wait for deliveries of the scheduler, each under the tag of its deliveries.
type requestTable[R any] struct {
	mu   sync.Mutex
	last uint64
	all  map[uint64]R
}

// add adds a request and returns its tag.
func (t *requestTable[R]) add(r R) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = make(map[uint64]R)
	}
	t.last++
	t.all[t.last] = r
	return t.last
}

// get returns the request of a tag. ok is false when that has ended.
func (t *requestTable[R]) get(tag uint64) (r R, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok = t.all[tag]
	return r, ok
}

// remove is get, and ends the request.
func (t *requestTable[R]) remove(tag uint64) (r R, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok = t.all[tag]
	delete(t.all, tag)
	return r, ok
}
