package sched

import (
	"encoding/json"
	"fmt"
	"time"

	"treadle/sched/heap"
)

// A cron entry is in the shard of its queue. A heap has the entries in the order of their next times. When the time has
// come, a Tick submits a job under the entry's name, as a client does: the policies of the queue hold, and a known name
// is left alone (the outcome is overlap). If several times have come, an entry runs once. With Overlap, each time of
// the last minute has a job. A time that is more than cronLate past is missed: one run makes up for all missed times,
// or none.
//
// The record of an entry says up to which moment its times are met. The record is journaled with the job, between Begin
// and End. So a crash keeps both or neither: no time is lost, and no time has two jobs. The caller keeps the entries
// themselves. After a restart SetCron joins each entry with its record. If an entry is new, was resumed or has another
// schedule, its times begin at that moment.
//
// A clock that is set back repeats no time. A clock that is set back by more than cronCorrection was wrong before: the
// entries that have met times of the future continue from the present.

// CronEntry is work that is submitted at times. It is known by its queue and its name.
type CronEntry struct {
	Name     string // name of the entry, and prefix of its jobs' names
	Queue    string
	Space    Space // space of its jobs
	Workload []byte
	Priority int64
	Schedule string // for ParseSchedule
	Zone     *time.Location
	// SkipMissed reports whether the times that passed while the server was down are left out. Without it one run makes
	// up for all of them.
	SkipMissed bool
	// Overlap reports whether a time adds a job although the job of the time before is not done. The job's name is the
	// entry's, an @ and the time. Without Overlap such a time is left out.
	Overlap bool
}

// CronOutcome is what became of a time of an entry, or of a run by hand.
type CronOutcome uint8

// The outcomes. The numbers are in the journal.
const (
	CronNever    CronOutcome = iota // no time has come
	CronRan                         // a job was submitted
	CronLate                        // a job was submitted for times that had been missed
	CronMissed                      // the time was missed and left out
	CronOverlaps                    // the job of the time before was not done, or was done within Policy.UniqueFor
	CronRefused                     // the job was refused
	cronOutcomes
)

// String returns the outcome as people and metrics read it.
func (o CronOutcome) String() string {
	if o < cronOutcomes {
		return [...]string{"never", "ran", "late", "missed", "overlap", "refused"}[o]
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}

// CronOutcomes returns the outcomes of times that have come.
func CronOutcomes() []CronOutcome {
	return []CronOutcome{CronRan, CronLate, CronMissed, CronOverlaps, CronRefused}
}

// CronRun is an outcome and its moment.
type CronRun struct {
	Outcome CronOutcome `json:"outcome"`
	At      int64       `json:"at"`             // Unix milliseconds
	Text    string      `json:"text,omitempty"` // why no job was submitted
}

// CronState is what an entry has done. It survives a restart, as JSON.
type CronState struct {
	// Times are the schedule and the zone that Handled is for.
	Times string `json:"times"`
	// Handled is the moment up to which the entry has met its times, in Unix milliseconds.
	Handled int64                `json:"handled"`
	Last    CronRun              `json:"last"`
	Counts  [cronOutcomes]uint64 `json:"counts"` // by CronOutcome
	Paused  bool                 `json:"paused,omitempty"`
	By      string               `json:"by,omitempty"` // who has paused it
	Why     string               `json:"why,omitempty"`
}

// CronStatus is an entry with its state.
type CronStatus struct {
	CronEntry
	CronState
	Next int64 // Unix milliseconds of its next time, which may have come; 0: it has none, or is paused
}

// CronError reports an invalid cron entry.
type CronError struct {
	Field string // name of the field in the configuration file
	Err   error
}

// Error names the field and what may stand there.
func (e *CronError) Error() string { return fmt.Sprintf("%s: %v", e.Field, e.Err) }

// Unwrap returns Err.
func (e *CronError) Unwrap() error { return e.Err }

func cronError(field, format string, args ...any) error {
	return &CronError{field, fmt.Errorf(format, args...)}
}

// Bounds of entries.
const (
	// MaxCronEntries bounds the entries: each has a record in memory and lines in the metrics.
	MaxCronEntries = 10000
	// maxCronWorkload bounds a workload, which is kept in memory beside the jobs.
	maxCronWorkload = 64 << 10
	// cronLate is how many milliseconds after its time a run is missed.
	cronLate = 60_000
	// cronCorrection tells a correction of the clock from a small step, in milliseconds. If the clock is set back by
	// less, the times that it shows again have been met. If it is set back by more, it was wrong before, and these
	// times come again.
	cronCorrection = 3 * 60 * 60 * 1000
	// maxCronText bounds who, why and the texts of outcomes.
	maxCronText = maxPolicyText
)

// maxCronName leaves room in a job's name for the @ and a time.
const maxCronName = maxShort - len("@2006-01-02T15:04:05Z")

// Check returns a CronError if the entry is invalid.
func (e *CronEntry) Check() error {
	_, err := e.parse()
	return err
}

// parse checks the entry and returns its schedule. Its errors are CronErrors.
func (e *CronEntry) parse() (s Schedule, err error) {
	switch {
	case e.Name == "" || len(e.Name) > maxCronName:
		return s, cronError("name", "it has 1 to %d bytes", maxCronName)
	case e.Queue == "" || len(e.Queue) > maxShortQueue:
		return s, cronError("queue", "it has 1 to %d bytes", maxShortQueue)
	case len(e.Workload) > maxCronWorkload:
		return s, cronError("workload", "it has at most %d bytes", maxCronWorkload)
	case e.Zone == nil:
		return s, cronError("zone", "it is missing")
	}
	if s, err = ParseSchedule(e.Schedule); err != nil {
		return s, &CronError{"schedule", err}
	}
	return s, nil
}

type cronKey struct{ queue, name string }

// cron is an entry in its shard. A restored entry has only a state until SetCron names it.
type cron struct {
	CronEntry
	CronState
	schedule  Schedule
	key       cronKey
	id        uint32 // index in cronTable.entries
	seq       uint64 // seq of its record
	known     bool   // the entry is set
	next      int64  // its next time, Unix milliseconds
	heapIndex int    // place in cronTable.due, -1: not there
}

func (c *cron) Ahead(o *cron) bool { return c.next < o.next }
func (c *cron) HeapIndex() int     { return c.heapIndex }
func (c *cron) SetHeapIndex(i int) { c.heapIndex = i }

// after returns the first time of the entry after a moment, both in Unix milliseconds; never: it has none.
func (c *cron) after(ms int64) int64 {
	next, ok := c.schedule.Next(time.Unix(floorSecond(ms), 0), c.Zone)
	if !ok {
		return never
	}
	return next.UnixMilli()
}

// cronTable has the entries of a shard.
type cronTable struct {
	byKey   map[cronKey]*cron
	entries []*cron // entries by id; nil: the id is free
	freeIDs []uint32
	due     heap.Heap[*cron] // entries that have a next time
	seen    int64            // Wall of the last Tick
	checked int              // the entries from this index on are still to be checked after the clock was set back
}

func (t *cronTable) add(key cronKey) *cron {
	c := &cron{key: key, heapIndex: -1, next: never}
	c.id = assignID(&t.entries, &t.freeIDs, c)
	if t.byKey == nil {
		t.byKey = make(map[cronKey]*cron)
	}
	t.byKey[key] = c
	return c
}

// removeCron forgets an entry and its state.
func (sh *shard) removeCron(c *cron) {
	t := &sh.cron
	if c.heapIndex >= 0 {
		t.due.Remove(c)
	}
	delete(t.byKey, c.key)
	t.entries[c.id] = nil
	t.freeIDs = append(t.freeIDs, c.id)
	if c.known {
		sh.s.cronEntries.Add(-1)
	}
	if sh.s.journal != nil {
		sh.s.journal.Drop(int(sh.id), c.seq)
	}
}

// planCron gives an entry its next time.
func (sh *shard) planCron(c *cron) {
	if c.heapIndex >= 0 {
		sh.cron.due.Remove(c)
	}
	c.next = never
	if c.known && !c.Paused {
		c.next = c.after(c.Handled)
	}
	if c.next < never {
		sh.cron.due.Push(c)
		sh.s.alarmWall(c.next)
	}
}

// saveCron journals the state of an entry.
func (sh *shard) saveCron(c *cron) {
	if sh.s.journal == nil {
		return
	}
	if c.seq == 0 {
		c.seq = sh.s.lastSeq.Add(1)
	}
	state, err := json.Marshal(&c.CronState)
	if err != nil {
		panic("BUG: the state of a cron entry has no JSON: " + err.Error())
	}
	note := Saved{Kind: KindCron, Job: Job{Name: []byte(c.key.name), Workload: state}}
	sh.saveNote(note, c.key.queue, c.seq)
}

// restoreCron takes back the state of an entry.
func (sh *shard) restoreCron(j *Saved) error {
	key := cronKey{j.Queue, string(j.Name)}
	c := sh.cron.byKey[key]
	if c == nil {
		c = sh.cron.add(key)
	}
	c.seq = j.Ref.Seq
	if err := json.Unmarshal(j.Workload, &c.CronState); err != nil {
		return fmt.Errorf("the state of a cron entry: %w", err)
	}
	return nil
}
