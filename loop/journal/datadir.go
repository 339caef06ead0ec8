package journal

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// File names in a data directory.
const (
	lockName    = "LOCK"          // locked by the process that uses the directory
	storeName   = "store"         // the store
	newName     = "store.new"     // a store that is being built; complete when it has a format file
	oldName     = "store.old"     // a store that has been replaced
	keptName    = "store.format"  // a store of an earlier format that was converted, with -2, -3, ...
	damagedName = "store.damaged" // a damaged store that a repair replaced, with -1, -2, ...
	scratchName = "store.scratch" // the temporary store in which a repair sorts records
	sentName    = "store.sent"    // a copy of the store that a node sends to another one
	backupName  = "store.backup"  // a copy of the store that is being backed up
	formatName  = "FORMAT"        // file in a store with its format version
	logsName    = "log"           // directory of the logs in a store
	logSuffix   = ".log"          // suffix of a log
	spareSuffix = ".spare"        // suffix of a file that will be reused as a log
)

// presentFormat is the version of the data directory that this package writes. Open converts older
// versions from oldestFormat on.
const presentFormat = 4

const oldestFormat = 2

// formatHead precedes the version in the format file.
const formatHead = "treadle journal "

// ErrInUse is wrapped by the error for a directory that another process has locked.
var ErrInUse = errors.New("in use")

// dataDir is a locked data directory.
type dataDir struct {
	fs   vfs.FS
	root string
	lock io.Closer
	name string // name of the directory that holds the store
}

// lockTimeout is how long Open waits for the lock. A killed server with many gigabytes takes
// seconds to free its memory and holds the lock until then, while its successor starts.
const lockTimeout = 3 * time.Second

// lockRetryEvery is the time between two attempts.
const lockRetryEvery = 50 * time.Millisecond

// awaitLock locks the directory, and waits up to lockTimeout for another process to release it.
func awaitLock(f vfs.FS, dir string, log *slog.Logger) (*dataDir, error) {
	warned := false
	for end := time.Now().Add(lockTimeout); ; time.Sleep(lockRetryEvery) {
		d, err := lockDataDir(f, dir, true)
		if !errors.Is(err, errOtherProcess) || time.Now().After(end) {
			return d, err
		}
		if !warned {
			warned = true
			log.Warn("waiting for the data directory", "reason", err.Error(), "timeout", lockTimeout)
		}
	}
}

// errOtherProcess is the ErrInUse of another process, which may release the lock.
var errOtherProcess = fmt.Errorf("%w by another treadle", ErrInUse)

// lockDataDir locks dir. With create it makes the directory if it is missing.
func lockDataDir(f vfs.FS, dir string, create bool) (*dataDir, error) {
	if create {
		if err := makeDir(f, dir); err != nil {
			return nil, fmt.Errorf("cannot create the data directory %q: %w", dir, cause(err))
		}
	} else if err := needDir(f, dir); err != nil {
		return nil, err
	}
	lock, err := f.Lock(f.PathJoin(dir, lockName))
	switch {
	case err == nil:
		return &dataDir{fs: f, root: dir, lock: lock, name: storeName}, nil
	case errors.Is(err, syscall.EAGAIN):
		return nil, fmt.Errorf("the data directory %q is %w%s; stop that one, or name another directory", dir, errOtherProcess, lockHolder(f.PathJoin(dir, lockName)))
	case strings.Contains(err.Error(), "lock held"): // by this process
		return nil, fmt.Errorf("the data directory %q is %w by another treadle; stop that one, or name another directory", dir, ErrInUse)
	default:
		return nil, fmt.Errorf("cannot lock the data directory %q: %w", dir, cause(err))
	}
}

// openReadOnly opens a directory without changing anything in it. A directory without a lock file
// never had a server, so it needs no lock. A file system on which the lock file cannot be written
// is used unlocked.
func openReadOnly(f vfs.FS, dir string) (*dataDir, error) {
	if err := needDir(f, dir); err != nil {
		return nil, err
	}
	d := &dataDir{fs: readOnlyFS{f}, root: dir, lock: io.NopCloser(nil), name: storeName}
	locked, err := exists(f, d.path(lockName))
	if err == nil && locked {
		var own *dataDir
		own, err = lockDataDir(f, dir, false)
		switch {
		case err == nil:
			d.lock = own.lock
		case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
			err = nil
		}
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(d.refuseNode(), d.find()); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// find sets name to the directory that holds a complete store. It differs from storeName while a
// swap is interrupted.
func (d *dataDir) find() error {
	for _, name := range [...]string{storeName, newName, oldName} {
		ok, err := exists(d.fs, d.fs.PathJoin(d.path(name), formatName))
		if err != nil {
			return err
		}
		if ok {
			d.name = name
			return nil
		}
	}
	return nil
}

func needDir(f vfs.FS, dir string) error {
	info, err := f.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return fmt.Errorf("cannot open the data directory %q: %w", dir, cause(err))
	}
	return nil
}

func (d *dataDir) close() error { return d.lock.Close() }

func (d *dataDir) path(name string) string { return d.fs.PathJoin(d.root, name) }

func (d *dataDir) store() string { return d.path(d.name) }

// log returns the path of a file in the log directory.
func (d *dataDir) log(name string) string { return d.fs.PathJoin(d.store(), logsName, name) }

// finishSwap completes an interrupted swap and removes incomplete stores. It reports whether a
// store exists.
func (d *dataDir) finishSwap() (bool, error) {
	for _, name := range [...]string{scratchName, sentName, backupName} { // a process that was killed has left them
		if err := d.fs.RemoveAll(d.path(name)); err != nil {
			return false, err
		}
	}
	have, err := exists(d.fs, d.store())
	if err != nil {
		return false, err
	}
	if !have {
		if err := d.find(); err != nil || d.name == storeName {
			return false, err
		}
		if err := d.rename(d.name, storeName); err != nil {
			return false, err
		}
		d.name = storeName
	}
	return true, errors.Join(d.fs.RemoveAll(d.path(newName)), d.fs.RemoveAll(d.path(oldName)))
}

// ensureStore finishes an interrupted swap, and builds an empty store in a new directory.
func (d *dataDir) ensureStore() error {
	have, err := d.finishSwap()
	if err != nil || have {
		return err
	}
	if err := d.refuseMissing(); err != nil {
		return err
	}
	if err := d.fs.RemoveAll(d.path(newName)); err != nil {
		return err
	}
	if err := buildStore(d.fs, d.path(newName), func(*pebble.DB) error { return nil }); err != nil {
		return fmt.Errorf("cannot create a store: %w", err)
	}
	return d.rename(newName, storeName)
}

// needStore returns an error unless a store exists.
func (d *dataDir) needStore(have bool, err error) error {
	if err == nil && !have {
		err = fmt.Errorf("the data directory %q holds no store", d.root)
	}
	return err
}

// refuseMissing returns an error when the store is missing beside a damaged one, so that no empty
// store is built there.
func (d *dataDir) refuseMissing() error {
	names, err := d.fs.List(d.root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, damagedName) {
			return fmt.Errorf("%s is missing, but %s is there: rename %s to %s and run treadle journal repair", d.store(), name, name, storeName)
		}
	}
	return nil
}

func (d *dataDir) rename(from, to string) error {
	if err := d.fs.Rename(d.path(from), d.path(to)); err != nil {
		return err
	}
	return syncDir(d.fs, d.root)
}

// keepDamaged replaces the store by the new one and keeps the old one under the returned name.
// finishSwap completes it after an interruption.
func (d *dataDir) keepDamaged() (kept string, err error) {
	for n := 1; ; n++ {
		kept = fmt.Sprintf("%s-%d", damagedName, n)
		if taken, err := exists(d.fs, d.path(kept)); err != nil {
			return "", err
		} else if !taken {
			break
		}
	}
	return kept, d.swap(kept)
}

// replace replaces the store by the new one and removes the old one. finishSwap completes it after
// an interruption.
func (d *dataDir) replace() error {
	if err := d.swap(oldName); err != nil {
		return err
	}
	return d.fs.RemoveAll(d.path(oldName))
}

// swap renames the old store to aside and the new one to storeName. At every moment one of the
// three names holds a complete store.
func (d *dataDir) swap(aside string) error {
	if err := d.rename(storeName, aside); err != nil {
		return err
	}
	return d.rename(newName, storeName)
}

// writeFormat completes the store at dir. The format file appears when everything else is on the
// disk.
func writeFormat(f vfs.FS, dir string) error {
	return writeWhole(f, f.PathJoin(dir, formatName), formatText(presentFormat))
}

// formatText returns the contents of a format file. From version 3 on a checksum protects the
// version: one wrong bit would have the logs read in another format.
func formatText(version int) string {
	text := fmt.Sprintf("%s%d", formatHead, version)
	if version > 2 {
		text = fmt.Sprintf("%s, sum %08x", text, crc32.Checksum([]byte(text), castagnoli))
	}
	return text + "\n"
}

func (d *dataDir) formatDamage(what string) error {
	return &DamageError{Dir: d.root, Damage: []Damage{{File: filepath.Join(d.name, formatName), Offset: -1, What: what}}}
}

// readFormat returns the version of the store; 0: it cannot be read.
func (d *dataDir) readFormat() (int, error) {
	name := d.fs.PathJoin(d.store(), formatName)
	b, err := readFile(d.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, d.formatDamage("is missing")
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read the version of the data directory %q: %w", d.root, cause(err))
	}
	var n int
	if _, err := fmt.Sscanf(string(b), formatHead+"%d", &n); err != nil || n < 1 || string(b) != formatText(n) {
		return 0, d.formatDamage("does not say which version the data directory has")
	}
	if n > presentFormat {
		return n, fmt.Errorf("the data directory %q has version %d, written by a newer treadle; this one knows version %d", d.root, n, presentFormat)
	}
	if n < oldestFormat {
		return n, fmt.Errorf("the data directory %q has version %d; this treadle reads versions %d to %d: export it with the one that wrote it, and import that into a new directory", d.root, n, oldestFormat, presentFormat)
	}
	return n, nil
}
