package sched

import "fmt"

// cron checks the entries of a shard: their ids, keys and next times.
func (c *checker) cron() error {
	t := &c.sh.cron
	due, entries := 0, 0
	for id, e := range t.entries {
		if e == nil {
			continue
		}
		entries++
		if e.id != uint32(id) || t.byKey[e.key] != e {
			return fmt.Errorf("cron entry %v stands at %d under id %d, or is not found by its key", e.key, id, e.id)
		}
		want := never
		if e.known && !e.Paused {
			want = e.after(e.Handled)
		}
		if e.next != want || (e.heapIndex >= 0) != (want < never) || e.heapIndex >= 0 && t.due[e.heapIndex] != e {
			return fmt.Errorf("cron entry %v is planned at %d for %d, want %d", e.key, e.heapIndex, e.next, want)
		}
		if e.heapIndex > 0 && e.Ahead(t.due[(e.heapIndex-1)/2]) {
			return fmt.Errorf("cron entry %v stands behind a later one", e.key)
		}
		due += oneIf(e.heapIndex >= 0)
	}
	if due != len(t.due) || entries != len(t.byKey) || entries+len(t.freeIDs) != len(t.entries) {
		return fmt.Errorf("%d of %d cron entries are due; %d, %d and %d are counted", due, entries, len(t.due), len(t.byKey), len(t.entries))
	}
	return nil
}
