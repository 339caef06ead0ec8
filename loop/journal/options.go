package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Mode says when a change counts as committed.
type Mode uint8

// The modes.
const (
	// Always: a group is committed when it is synced. What is acknowledged after
	// that survives kill -9 and a loss of power.
	Always Mode = iota
	// Interval: nothing waits. What gathered is written and synced once an
	// interval, so that a crash of any kind costs the last interval at most.
	Interval
	// Never: as Interval, but without the sync: kill -9 costs the last interval at
	// most, a loss of power whatever the system had not written yet.
	Never
)

var modeNames = [...]string{Always: "always", Interval: "interval", Never: "never"}

// String is the mode's name as a setting.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// ParseMode reads a mode's name.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if s == name {
			return Mode(m), nil
		}
	}
	return 0, fmt.Errorf("%q is none of always, interval, never", s)
}

// Sizes and times that are not settings.
const (
	// defaultInterval is how long changes gather in the modes that do not wait.
	defaultInterval = 50 * time.Millisecond
	// defaultMemTable is what the store keeps in memory before it writes a table.
	defaultMemTable = 8 << 20
	// compactionRoom is what the store's compactions need beside what it holds: they write
	// anew what they merge before they remove it.
	compactionReserve = 64 << 20
	// maxLog is the default size with which a log is full. What comes and goes within a
	// log never reaches the store; a larger one costs that much disk, and start-up time.
	maxLog = 16 << 20
	// maxBatch ends a batch. A group that is larger, because the disk stood still
	// or a whole dump was loaded, is written in several.
	maxBatch = 2 << 20
	// spaceEvery is the time between two looks at the free space.
	defaultSpaceCheck = time.Second
	// spaceBytes is how much may be written between two looks.
	spaceCheckBytes = 16 << 20
)

// LeastFree is the least MinFree with which a disk that fills up stops neither the journal
// nor its next start: room for the log in use, the full ones that wait, the one that is brought
// into the store and the spare one, and for compactions.
const LeastFree = (3+maxWaitingLogs)*maxLog + compactionReserve

// Options say where and how a journal is kept. Dir is required; the zero value of
// every other field is its default.
type Options struct {
	// Dir is the data directory; it is made when it does not exist.
	Dir string
	// Shards is the number of shards that append, at least 1.
	Shards int
	Sync   Mode
	// Interval is the time between groups in the modes Interval and Never; default
	// 50ms.
	Interval time.Duration
	// MinFree is the free space in bytes below which Full says so; 0: never.
	MinFree uint64
	// LookEvery is the time between two looks at the free space; default a second.
	SpaceCheckInterval time.Duration
	// FS is the file system; default the disk.
	FS vfs.FS
	// LogSize is the size in bytes of the groups with which a log is full and is brought into
	// the store; default 16 MiB.
	LogSize int64
	// BatchSize is the size in bytes with which a part of a large group ends; default 2 MiB.
	BatchSize int
	// Log hears little, and nothing per group; default none.
	Log *slog.Logger
	// Committed is called after each group, by one goroutine and in order. In mode
	// Always the group is synced, in Interval too, in Never it was handed to the
	// system. It must neither block nor call Close.
	Committed func(group uint64)
	// Rested, when set, is called in mode Always by the same goroutine, whenever nothing is
	// left to commit that somebody waits for: only then the next group begins with a Flush and not by itself. It
	// is for whoever must know what a group will hold.
	Idle func()
	// Failed is called once, from a goroutine of its own, when something could not
	// be written or the store is found damaged: from then on nothing is committed
	// any more, and the server must stop. It must not call Close itself.
	Failed func(error)

	memTable uint64 // tests make it small
}

// fill puts the defaults in and refuses what cannot work.
func (o *Options) fill() error {
	if o.Dir == "" {
		return errors.New("a journal needs a directory")
	}
	if o.Sync > Never {
		return fmt.Errorf("no such journal mode: %d", o.Sync)
	}
	if o.Shards < 0 || o.Interval < 0 {
		return errors.New("a journal's shards and interval cannot be negative")
	}
	o.Shards = max(o.Shards, 1)
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Committed == nil {
		o.Committed = func(uint64) {}
	}
	if o.Idle == nil {
		o.Idle = func() {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.memTable == 0 {
		o.memTable = defaultMemTable
	}
	if o.SpaceCheckInterval == 0 {
		o.SpaceCheckInterval = defaultSpaceCheck
	}
	if o.BatchSize == 0 {
		o.BatchSize = maxBatch
	}
	if o.LogSize == 0 {
		o.LogSize = maxLog
	}
	return nil
}
