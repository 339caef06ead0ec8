package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// storeFormat pins what the store writes. This one protects the footers of tables
// by a checksum; a later one would keep older programs from reading the directory.
const storeFormat = pebble.FormatTableFormatV6

// storeOptions tune the store for data that is written once, mostly deleted soon,
// and read at the next start: small memory, small caches, no filters.
//
// It keeps no log: what is written into it is in ours until it is in its tables.
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
		// So many memory tables may wait to be written before a checkpoint waits.
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       2,
		// Nothing reads while the server runs, so many files on the first level
		// harm nobody, and a checkpoint need not wait for a compaction.
		L0StopWritesThreshold: 1000,
		CacheSize:             1 << 20,
		MaxOpenFiles:          128,
		MaxManifestFileSize:   1 << 20,
	}
	o.Levels[0].BlockSize = 16 << 10
	o.Levels[0].IndexBlockSize = 64 << 10
	// Reads must not start compactions of their own.
	o.Experimental.ReadSamplingMultiplier = -1
	o.Experimental.FileCacheShards = 1
	return o
}

// storeLog passes the store's messages on. What the store calls fatal breaks the
// guard and returns.
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
	l.trip(fmt.Errorf("the store gave up: "+format, args...))
}

// quiet is for stores that are opened to look at only.
func silentLog() storeLog {
	return storeLog{log: slog.New(slog.DiscardHandler), trip: func(error) {}}
}

// storeEvents breaks g on what the store finds out in the background.
func storeEvents(g *failFS) *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			g.trip(fmt.Errorf("the store cannot go on: %w", err))
		},
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			g.trip(fmt.Errorf("%s is damaged: %w", i.Path, i.Details))
		},
	}
}

// closeStore closes db, also when the guard broke; a panic in it is an error.
func closeStore(db *pebble.DB) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked when it was closed: %v", p)
		}
	}()
	return db.Close()
}

// fillStore lets fill write into the store at dir, which has no format file and is made if
// there is none, and completes it with that file: a directory with it is a whole store.
// Fill's batches are durable only in the end.
func buildStore(f vfs.FS, dir string, fill func(*pebble.DB) error) error {
	g := newFailFS(f)
	log := storeLog{log: slog.New(slog.DiscardHandler), trip: g.trip}
	o := storeOptions(g, 0, log, storeEvents(g))
	db, err := pebble.Open(dir, o)
	if err == nil {
		if err = fill(db); err == nil {
			err = db.Flush()
		}
		err = errors.Join(err, closeStore(db))
	}
	if broke := g.failure(); broke != nil {
		return broke
	}
	if err != nil {
		return err
	}
	return writeFormat(f, dir)
}

// treeSize adds up the sizes of the files below dir, as far as they can be read.
func treeSize(f vfs.FS, dir string) uint64 {
	names, err := f.List(dir)
	if err != nil {
		return 0
	}
	var n uint64
	for _, name := range names {
		name = f.PathJoin(dir, name)
		switch info, err := f.Stat(name); {
		case err != nil:
		case info.IsDir():
			n += treeSize(f, name)
		default:
			n += uint64(info.Size())
		}
	}
	return n
}

func exists(f vfs.FS, name string) (bool, error) {
	_, err := f.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
