package journal

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// openDB opens a store that is written to, as pebble.Open does. The store's compactions begin when it is open.
func openDB(dir string, o *pebble.Options) (*pebble.DB, error) {
	c := &compactions{ConcurrencyLimitScheduler: pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()}
	o.Experimental.CompactionScheduler = c
	db, err := pebble.Open(dir, o)
	if err == nil {
		c.begin()
	}
	return db, err
}

// compactions grants a store its compactions as Pebble's own scheduler does, but none before begin. pebble.Open can
// start one and then fail: it frees what the compaction uses and does not wait for it, which ends the process with an
// invalid address instead of the error (Pebble v2.1.7). The periodic grants of Pebble's scheduler are for a number of
// compactions that changes: a store here has one at a time.
type compactions struct {
	*pebble.ConcurrencyLimitScheduler
	db    pebble.DBForCompaction
	begun atomic.Bool
}

func (c *compactions) Register(goroutines int, db pebble.DBForCompaction) {
	c.db = db
	c.ConcurrencyLimitScheduler.Register(goroutines, db)
}

func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !c.begun.Load() {
		return false, nil
	}
	return c.ConcurrencyLimitScheduler.TrySchedule()
}

// begin grants the compaction that pebble.Open has asked for.
func (c *compactions) begin() {
	c.begun.Store(true)
	if waiting, _ := c.db.GetWaitingCompaction(); !waiting {
		return
	}
	if granted, handle := c.TrySchedule(); granted && !c.db.Schedule(handle) {
		handle.Done()
	}
}
