package faktory

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	codec "treadle/codec/faktory"
)

// pausedQueues are the queues that FETCH leaves out. Workers of other protocols serve them: a pause of the queue
// itself is the operators'.
type pausedQueues struct {
	mu    sync.Mutex // held for a change
	names atomic.Pointer[map[string]bool]
}

// maxPaused bounds the paused queues: each FETCH looks for its queues among them, and each change journals all.
const maxPaused = 10_000

var (
	errPaused     = errors.New("too many queues are paused")
	errPausedName = errors.New("the name of the queue is too long")
)

// pausedSetting is the key of the names in the journal, which a blank separates.
const pausedSetting = "faktory.paused"

func (q *pausedQueues) restore(key string, value []byte) {
	if key != pausedSetting {
		return
	}
	all := make(map[string]bool)
	for n := range strings.FieldsSeq(string(value)) {
		all[n] = true
	}
	q.names.Store(&all)
}

// has reports whether a queue is paused.
func (q *pausedQueues) has(name []byte) bool {
	all := q.names.Load()
	return all != nil && (*all)[string(name)]
}

// all returns the names of the paused queues.
func (q *pausedQueues) all() []string {
	if all := q.names.Load(); all != nil {
		return slices.Sorted(maps.Keys(*all))
	}
	return nil
}

// set pauses a queue or ends its pause. save journals the names.
func (q *pausedQueues) set(name string, paused bool, save func(key string, value []byte)) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.names.Load()
	if (old != nil && (*old)[name]) == paused {
		return nil
	}
	next := make(map[string]bool)
	if old != nil {
		maps.Copy(next, *old)
	}
	switch {
	case paused && len(name) > codec.MaxQueue:
		return errPausedName
	case paused && len(next) >= maxPaused:
		return errPaused
	}
	if next[name] = true; !paused {
		delete(next, name)
	}
	q.names.Store(&next)
	save(pausedSetting, []byte(strings.Join(slices.Sorted(maps.Keys(next)), " ")))
	return nil
}
