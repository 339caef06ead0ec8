package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Mode determines when a change counts as committed.
type Mode uint8

// The durability modes.
const (
	// Always commits a group when it is synced. An acknowledged change survives kill -9 and a loss
	// of power.
	Always Mode = iota
	// Interval acknowledges at once. Changes are written and synced once an interval, so any crash
	// loses at most the last interval.
	Interval
	// Never is Interval without the sync. A kill -9 loses at most the last interval, a loss of
	// power everything that the system had not written yet.
	Never
)

var modeNames = [...]string{Always: "always", Interval: "interval", Never: "never"}

// String returns the mode's name as a setting.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

// ParseMode parses a mode's name.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if s == name {
			return Mode(m), nil
		}
	}
	return 0, fmt.Errorf("%q is none of always, interval, never", s)
}

// Sizes and times.
const (
	// defaultInterval is how long changes gather in the modes Interval and Never.
	defaultInterval = 50 * time.Millisecond
	// defaultMemTable is how much the store keeps in memory before it writes a table.
	defaultMemTable = 8 << 20
	// compactionReserve is the free space that the store's compactions need: they write merged
	// tables before they remove the old ones.
	compactionReserve = 64 << 20
	// defaultLogSize is the default size of a full log. Jobs that come and go within one log never reach the store. A
	// larger log costs disk space and start-up time.
	defaultLogSize = 16 << 20
	// defaultBatchSize is the default size at which a batch ends. A larger group, after the disk stalled or a dump was
	// loaded, is written in several batches.
	defaultBatchSize = 2 << 20
	// defaultSpaceCheck is the default time between two checks of the free space.
	defaultSpaceCheck = time.Second
	// spaceCheckBytes is how many bytes the committer writes between two checks of the free space.
	spaceCheckBytes = 16 << 20
)

// LeastFree is the lowest MinFree with which a full disk stops neither the journal nor its next
// start. It covers the log in use, the full logs that wait, the log that is being applied, the
// spare file, and compactions.
const LeastFree = (3+maxWaitingLogs)*defaultLogSize + compactionReserve

// Options are the settings of a journal. Dir is required; the zero value of every other field is
// its default.
type Options struct {
	// Dir is the data directory. It is created if it is missing.
	Dir string
	// Shards is the number of shards that append, at least 1.
	Shards int
	Sync   Mode
	// Interval is the time between groups in the modes Interval and Never; default 50ms.
	Interval time.Duration
	// MinFree is the free space in bytes below which Full is true; 0: Full is always false. SetMinFree changes it.
	MinFree uint64
	// SpaceCheckInterval is the time between two checks of the free space; default one second.
	SpaceCheckInterval time.Duration
	// FS is the file system; default the disk.
	FS vfs.FS
	// LogSize is the number of bytes of groups at which a log is full; default 16 MiB.
	LogSize int64
	// BatchSize is the number of bytes at which a part of a large group ends; default 2 MiB.
	BatchSize int
	// Log receives rare messages, never one a group; default none.
	Log *slog.Logger
	// Committed is called after each group, in order and from one goroutine. The group is synced in
	// the modes Always and Interval, and handed to the system in Never. Committed must neither
	// block nor call Close.
	Committed func(group uint64)
	// Idle is called in mode Always by the same goroutine whenever no change is left that an
	// acknowledgement waits for. After it only a Flush begins the next group, so a simulation knows
	// what a group will hold.
	Idle func()
	// Failed is called once, from its own goroutine, when a write failed or the store is damaged.
	// Nothing is committed after that, and the server must stop. Failed must not call Close.
	Failed func(error)

	// Replica, when set, is the open data directory of a cluster's node, which Dir names, too. The journal then has no
	// logs of its own: Replicator keeps its groups. Sync is Always.
	Replica    *Replica
	Replicator Replicator
	// Adopt lets OpenReplica make the directory of a single server that of a node.
	Adopt bool

	memTable uint64 // set by tests
}

// fill sets the defaults and refuses invalid options.
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
		o.BatchSize = defaultBatchSize
	}
	if o.LogSize == 0 {
		o.LogSize = defaultLogSize
	}
	return nil
}
