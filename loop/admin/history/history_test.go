package history

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
)

// clock takes readings of one queue, q, and all jobs, with so many jobs in all.
type clock struct {
	h    History
	done uint64
}

func (c *clock) read(second int64, done uint64, ready int) {
	c.done += done
	if c.h.Begin(second) {
		counts := Counts{Submitted: 2 * c.done, Done: c.done, Failed: c.done / 10, Ready: ready, Running: 1, Oldest: 7}
		c.h.Total(&counts)
		c.h.Add("q", &counts)
		c.h.End()
	}
}

// TestHistoryView: what happened is found in the slots of each span, and sums up to what was counted, also when
// readings are late.
func TestHistoryView(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	c := clock{}
	all := map[int64]uint64{}
	c.read(1000, 5, 0) // the jobs before the first reading have no slot
	last := int64(1000)
	for last < 1000+7200 {
		next := last + 1 + r.Int63n(3)
		n := uint64(r.Intn(1000))
		for k := range uint64(next - last) {
			all[last+1+int64(k)] = n*(k+1)/uint64(next-last) - n*k/uint64(next-last)
		}
		c.read(next, n, int(next))
		last = next
	}
	for i, span := range Spans {
		for _, join := range []int{1, 5} {
			slots, end, ok := c.h.View("q", false, i, join)
			size := int64(span.Step * join)
			if !ok || end <= last || end > last+size || end%size != 0 {
				t.Fatalf("%s: %d slots to %d at %d, %v", span.Name, len(slots), end, last, ok)
			}
			if most := span.Slots/join + 1; len(slots) > most || span.Step*span.Slots < 7200 && len(slots) < span.Slots/join {
				t.Errorf("%s: %d slots of %d", span.Name, len(slots), most)
			}
			for k, slot := range slots {
				from := end - int64(len(slots)-k)*size
				want := uint64(0)
				for s := from; s < from+size; s++ {
					want += all[s]
				}
				if k == 0 { // a part of its seconds may be over the ring's end
					continue
				}
				if uint64(slot.Done) != want || slot.Running != 1 || slot.Oldest != 7 {
					t.Fatalf("%s: the slot of %d..%d is %+v, want %d done", span.Name, from, from+size, slot, want)
				}
			}
			if got := slots[len(slots)-1].Ready; int64(got) != last {
				t.Errorf("%s: %d are ready, want %d", span.Name, got, last)
			}
		}
	}
}

// TestRates: a rate is over the last seconds, and a queue of the same name that begins anew has no earlier ones.
func TestRates(t *testing.T) {
	c := clock{}
	if _, _, _, ok := c.h.Rates("q", false); ok {
		t.Error("a queue that was never read has rates")
	}
	c.read(100, 1000, 0)
	if _, _, _, ok := c.h.Rates("q", false); ok {
		t.Error("one reading makes rates")
	}
	for s := int64(101); s <= 110; s++ {
		c.read(s, 20, 0)
		submitted, done, failed, ok := c.h.Rates("q", false)
		if !ok || submitted != 40 || done != 20 || failed != 2 {
			t.Errorf("second %d: %v %v %v %v", s, submitted, done, failed, ok)
		}
	}
	c.read(111, 0, 0)
	if _, done, _, _ := c.h.Rates("", true); done != 16 {
		t.Errorf("%v done a second of all jobs, want 16", done)
	}
	c.done = 0
	c.read(112, 3, 0)
	c.read(113, 3, 0)
	if _, done, _, _ := c.h.Rates("q", false); done != 3 {
		t.Errorf("%v done a second of a new queue, want 3", done)
	}
}

// TestClock: a second is read once, and time does not go back.
func TestClock(t *testing.T) {
	var h History
	if !h.Begin(5) || h.Begin(5) || h.Begin(4) || !h.Begin(6) {
		t.Error("a second is read again, or the next is not")
	}
}

// TestGap: slots that no reading came in have their part of what happened, and nothing of the round before.
func TestGap(t *testing.T) {
	c := clock{}
	for s := int64(1000); s < 1400; s++ {
		c.read(s, 9, 3)
	}
	c.read(1399+2*300, 600, 3)
	slots, _, _ := c.h.View("q", false, 0, 1)
	for _, slot := range slots {
		if slot.Done != 1 {
			t.Fatalf("%+v, want 1 of 600 jobs in 600 seconds", slot)
		}
	}
}

// TestBusiest: the first queues have series, and later busier ones take their places.
func TestBusiest(t *testing.T) {
	var h History
	count := make(map[string]uint64)
	play := func(from, to int64, queues int, busy func(i int) uint64) {
		for s := from; s <= to; s++ {
			h.Begin(s)
			for i := range queues {
				name := fmt.Sprint(i)
				count[name] += busy(i)
				h.Add(name, &Counts{Done: count[name]})
			}
			h.End()
		}
	}
	with := func() (n, late int) {
		for i := range 3 * MaxSeries {
			if _, _, ok := h.View(fmt.Sprint(i), false, 0, 1); ok {
				if n++; i >= MaxSeries {
					late++
				}
			}
		}
		return n, late
	}
	play(1, 100, 3*MaxSeries, func(int) uint64 { return 1 })
	if n, late := with(); n != MaxSeries || late != 0 {
		t.Errorf("%d queues have series, %d of them late ones", n, late)
	}
	play(101, 400, 3*MaxSeries, func(i int) uint64 {
		if i >= MaxSeries && i < MaxSeries+50 {
			return 100
		}
		return 1
	})
	if n, late := with(); n != MaxSeries || late != 50 {
		t.Errorf("%d queues have series, %d of them late ones, want 50", n, late)
	}
	play(401, 401, 1, func(int) uint64 { return 1 })
	if n, _ := with(); n > 1 || len(h.queues) != 1 {
		t.Errorf("%d series, %d queues, of queues that went", n, len(h.queues))
	}
}

// TestMemory: all rings together take less than 16 MB.
func TestMemory(t *testing.T) {
	slots := 0
	for _, span := range Spans {
		slots += span.Slots
	}
	if all := (MaxSeries + 1) * slots * int(reflect.TypeFor[Slot]().Size()); all > 16_000_000 {
		t.Errorf("%d bytes", all)
	}
}
