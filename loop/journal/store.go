package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// storeFormat fixes the format of the store's files. This format has a checksum in the footers of
// tables. A later one would make the directory unreadable for older programs.
const storeFormat = pebble.FormatTableFormatV6

// storeOptions tune the store for data that is written once, mostly deleted soon, and read at the
// next start: small memory tables, small caches, no filters.
//
// The store's own log is disabled: the journal's logs hold the data until it is in tables.
func storeOptions(f vfs.FS, memTable uint64, log pebble.Logger, events *pebble.EventListener) *pebble.Options {
	if memTable == 0 {
		memTable = defaultMemTable
	}
	o := &pebble.Options{
		FS:                 f,
		FormatMajorVersion: storeFormat,
		Logger:             log,
		EventListener:      events,
		DisableWAL:         true,
		MemTableSize:       memTable,
		// A checkpoint waits when more memory tables than this are unwritten.
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       2,
		// Nothing reads while the server runs, so many files on the first level do no harm, and a
		// checkpoint need not wait for a compaction.
		L0StopWritesThreshold: 1000,
		// Jobs are mostly deleted in the order of their Seq, so a deletion meets few tables of the level below, however
		// large that is: up to this size there is one level, and nothing is written again on its way to a deeper one.
		LBaseMaxBytes:       256 << 20,
		CacheSize:           1 << 20,
		MaxOpenFiles:        128,
		MaxManifestFileSize: 1 << 20,
	}
	o.Levels[0].BlockSize = 16 << 10
	o.Levels[0].IndexBlockSize = 64 << 10
	// Reads must not start compactions.
	o.Experimental.ReadSamplingMultiplier = -1
	o.Experimental.FileCacheShards = 1
	o.Experimental.SpanPolicyFunc = ownTables
	return o
}

// ownTables gives the records tables that hold no other key. Every checkpoint writes the last group's meta, and a table
// with it and with records overlaps every table before it: the store would write all records anew for each checkpoint.
// Records alone come in the order of their Seq, so that the store need not write again what is not deleted.
func ownTables(start []byte) (policy pebble.SpanPolicy, end []byte, _ error) {
	if len(start) > 0 && start[0] == keyRecord {
		return policy, []byte{keyRecord + 1}, nil
	}
	return policy, nil, nil
}

// storeLog passes on the store's messages. A fatal message trips the file system instead of ending
// the process.
type storeLog struct {
	log  *slog.Logger
	trip func(error)
}

func (l storeLog) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug(fmt.Sprintf(format, args...))
	}
}

func (l storeLog) Errorf(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("error: " + fmt.Sprintf(format, args...))
	}
}

func (l storeLog) Fatalf(format string, args ...any) {
	l.trip(fmt.Errorf("the store reported a fatal error: "+format, args...))
}

// silentLog is for stores that are only read.
func silentLog() storeLog {
	return storeLog{log: slog.New(slog.DiscardHandler), trip: func(error) {}}
}

// storeEvents trips disk on errors that the store finds in the background.
func storeEvents(disk *failFS) *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			disk.trip(fmt.Errorf("the store failed in the background: %w", err))
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			disk.trip(fmt.Errorf("%s is damaged: %w", i.Path, i.Details))
		},
	}
}

// closeStore closes db and returns a panic as an error. It also works after the file system has
// tripped.
func closeStore(db *pebble.DB) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked when it was closed: %v", p)
		}
	}()
	return db.Close()
}

// buildStore opens the store at dir, which has no format file, creates it if it is missing, calls
// fill, and writes the format file, which marks a complete store. The batches of fill are durable
// when buildStore returns.
func buildStore(f vfs.FS, dir string, fill func(*pebble.DB) error) error {
	disk := newFailFS(f)
	log := storeLog{log: slog.New(slog.DiscardHandler), trip: disk.trip}
	o := storeOptions(disk, 0, log, storeEvents(disk))
	db, err := openDB(dir, o)
	if err == nil {
		if err = fill(db); err == nil {
			err = db.Flush()
		}
		err = errors.Join(err, closeStore(db))
	}
	if failed := disk.failure(); failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	return writeFormat(f, dir)
}
