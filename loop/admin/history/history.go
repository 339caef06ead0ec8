// Package history keeps what the jobs of a server and of its busiest queues did in the last day, in rings of a fixed
// size. It reads no clock and takes no lock: the caller does both.
package history

import (
	"cmp"
	"math"
	"slices"
)

const (
	// MaxSeries bounds the queues with rings. Each has the slots of all Spans: 42 kB, so that all together take 8.5 MB.
	MaxSeries = 200
	// rateWindow is how many seconds a rate looks back: long enough to be steady at a few jobs a second.
	rateWindow = 5
	// choiceEvery is how many seconds pass between two choices of the busiest queues.
	choiceEvery = 60
	// day bounds the seconds that one reading is spread over: as many as the longest span has.
	day = 24 * 3600
)

// Span is a length of time that a Series covers, with a slot for each step of it.
type Span struct {
	Name        string
	Step, Slots int // in seconds; a number
}

// Spans are the spans of every series, the shortest first. Each step is a multiple of the one before.
var Spans = [...]Span{{"5m", 1, 300}, {"1h", 10, 360}, {"24h", 60, 1440}}

// Counts are what is known of a queue at one moment.
type Counts struct {
	Submitted, Done, Failed uint64 // since some moment; they never fall
	Ready, Running          int
	Oldest                  int64 // how long the oldest ready job has been due, in seconds
}

// Slot is what happened in one step. Its gauges are those at the end of the step.
type Slot struct {
	Submitted, Done, Failed uint32 // jobs in the step
	Ready, Running, Oldest  uint32
}

// ring holds the last slots of one span. The slot of second t is at t/step modulo their number.
type ring []Slot

// Series are the rings of one queue, or of all jobs.
type Series struct {
	rings [len(Spans)]ring
	first int64 // the second of its first slot
}

// newSeries returns empty rings. now is the second of their first slots.
func newSeries(now int64) *Series {
	total := 0
	for _, span := range Spans {
		total += span.Slots
	}
	all := make([]Slot, total)
	s := &Series{first: now}
	for i, span := range Spans {
		s.rings[i], all = all[:span.Slots:span.Slots], all[span.Slots:]
	}
	return s
}

// add spreads what happened in the seconds from+1 to now over their slots.
func (s *Series) add(from, now int64, d *Slot) {
	n := uint32(now - from)
	for t := from + 1; t <= now; t++ {
		part := *d
		k := uint32(t - from - 1) // differences of these quotients sum up to the whole
		part.Submitted = share(d.Submitted, k, n)
		part.Done = share(d.Done, k, n)
		part.Failed = share(d.Failed, k, n)
		for i, span := range Spans {
			step := int64(span.Step)
			slot := &s.rings[i][t/step%int64(span.Slots)]
			if t%step == 0 || t == s.first {
				*slot = Slot{}
			}
			slot.Submitted += part.Submitted
			slot.Done += part.Done
			slot.Failed += part.Failed
			slot.Ready, slot.Running, slot.Oldest = part.Ready, part.Running, part.Oldest
		}
	}
}

// share returns the k-th of n parts of a whole.
func share(whole, k, n uint32) uint32 {
	return uint32(uint64(whole)*uint64(k+1)/uint64(n) - uint64(whole)*uint64(k)/uint64(n))
}

// reading is what a queue counted at a second.
type reading struct {
	at                      int64
	submitted, done, failed uint64
}

// queue is what History knows of a queue whose jobs are counted.
type queue struct {
	last     [rateWindow + 1]reading // a ring
	next     int                     // where the next reading goes
	activity float64                 // submitted and done jobs, the older the less
	series   *Series                 // nil: it is not one of the busiest
	seen     int64                   // the second of the last Add
}

// newest returns the last reading.
func (q *queue) newest() *reading { return &q.last[(q.next+len(q.last)-1)%len(q.last)] }

// rates returns the jobs a second in the last readings. ok is false with one reading alone.
func (q *queue) rates() (submitted, done, failed float64, ok bool) {
	newest, oldest := q.newest(), *q.newest()
	for _, r := range q.last {
		if r.at != 0 && r.at < oldest.at {
			oldest = r
		}
	}
	seconds := float64(newest.at - oldest.at)
	if seconds == 0 {
		return 0, 0, 0, false
	}
	return float64(newest.submitted-oldest.submitted) / seconds, float64(newest.done-oldest.done) / seconds, float64(newest.failed-oldest.failed) / seconds, true
}

// History has the rings of all jobs and of the busiest queues. The zero History is empty.
type History struct {
	now    int64 // the second of the Begin
	chosen int64 // the second of the last choice of the busiest queues
	total  queue
	queues map[string]*queue
	series int // queues that have one
}

// Begin begins the readings of a second, which is more than that of the Begin before. It returns false when it is not,
// and nothing must be added.
func (h *History) Begin(second int64) bool {
	if second <= h.now {
		return false
	}
	if h.now = second; h.queues == nil {
		h.queues = make(map[string]*queue)
		h.total.series = newSeries(second)
	}
	return true
}

// Total adds the reading of all jobs.
func (h *History) Total(c *Counts) { h.total.add(h.now, c) }

// Add adds the reading of one queue.
func (h *History) Add(name string, c *Counts) {
	q := h.queues[name]
	if q == nil {
		q = new(queue)
		h.queues[name] = q
	}
	if q.series == nil && h.series < MaxSeries {
		q.series = newSeries(h.now)
		h.series++
	}
	q.add(h.now, c)
}

// add takes a reading. Counters that have fallen belong to a new queue of the same name.
func (q *queue) add(now int64, c *Counts) {
	r := reading{now, c.Submitted, c.Done, c.Failed}
	before := *q.newest()
	if before.at == 0 || r.submitted < before.submitted || r.done < before.done || r.failed < before.failed {
		q.last = [rateWindow + 1]reading{}
		before = r
		before.at = now - 1
	}
	q.last[q.next] = r
	q.next = (q.next + 1) % len(q.last)
	q.seen = now
	d := Slot{
		Submitted: clip(r.submitted - before.submitted), Done: clip(r.done - before.done), Failed: clip(r.failed - before.failed),
		Ready: clip(c.Ready), Running: clip(c.Running), Oldest: clip(c.Oldest),
	}
	q.activity += float64(d.Submitted) + float64(d.Done)
	if q.series != nil {
		q.series.add(max(before.at, now-day), now, &d)
	}
}

// clip returns n as a slot has it.
func clip[N int | int64 | uint64](n N) uint32 {
	return uint32(min(uint64(max(n, 0)), math.MaxUint32)) //nolint:gosec // it is within its bounds
}

// End ends the readings of a second. Queues that were not added are forgotten, and once a minute the busiest queues are
// given the series of those that were less busy by half.
func (h *History) End() {
	for name, q := range h.queues {
		if q.seen != h.now {
			h.drop(q)
			delete(h.queues, name)
		}
	}
	if h.now-h.chosen < choiceEvery {
		return
	}
	h.chosen = h.now
	var with, without []*queue
	for _, q := range h.queues {
		if q.series != nil {
			with = append(with, q)
		} else {
			without = append(without, q)
		}
	}
	slices.SortFunc(with, func(a, b *queue) int { return cmp.Compare(a.activity, b.activity) })
	slices.SortFunc(without, func(a, b *queue) int { return cmp.Compare(b.activity, a.activity) })
	for i := 0; i < min(len(with), len(without)) && without[i].activity > 2*with[i].activity; i++ {
		h.drop(with[i])
		without[i].series = newSeries(h.now)
		h.series++
	}
	for _, q := range h.queues {
		q.activity /= 2
	}
}

func (h *History) drop(q *queue) {
	if q.series != nil {
		q.series = nil
		h.series--
	}
}

// Rates returns the jobs a second of a queue, or of all jobs when all is true.
func (h *History) Rates(name string, all bool) (submitted, done, failed float64, ok bool) {
	if q := h.of(name, all); q != nil {
		return q.rates()
	}
	return 0, 0, 0, false
}

func (h *History) of(name string, all bool) *queue {
	if all {
		return &h.total
	}
	return h.queues[name]
}

// View returns the slots of a span of Spans, the oldest first, of a queue or of all jobs. last is the second at the end
// of the last slot, which may not be over. Each slot joins so many steps. ok is false when nothing is kept of the
// queue.
func (h *History) View(name string, all bool, span, join int) (slots []Slot, last int64, ok bool) {
	q := h.of(name, all)
	if q == nil || q.series == nil {
		return nil, 0, false
	}
	size := Spans[span].Step * join
	step, ring := int64(Spans[span].Step), q.series.rings[span]
	for t := max(h.now/step-int64(Spans[span].Slots)+1, q.series.first/step); t <= h.now/step; t++ {
		slot := ring[t%int64(len(ring))]
		if end := (t*step/int64(size) + 1) * int64(size); end != last {
			slots, last = append(slots, slot), end
			continue
		}
		joined := &slots[len(slots)-1]
		joined.Submitted, joined.Done, joined.Failed = joined.Submitted+slot.Submitted, joined.Done+slot.Done, joined.Failed+slot.Failed
		joined.Ready, joined.Running, joined.Oldest = slot.Ready, slot.Running, slot.Oldest
	}
	return slots, last, true
}
