package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The names in a data directory.
const (
	lockName    = "LOCK"          // held by whoever uses the directory
	storeName   = "store"         // the store
	newName     = "store.new"     // one that is being made; whole when it has a format file
	damagedName = "store.damaged" // what a repair took out of use, with -1, -2, ...
	scratchName = "store.scratch" // in which a repair sorts what it reads
	formatName  = "FORMAT"        // in a store: its version
	logsName    = "log"           // in a store: the directory of the logs
	logSuffix   = ".log"          // of a log
	spareSuffix = ".spare"        // of a file that is to be a log again
)

// Format is the version of the data directory that this package writes, and the only one
// that it reads.
const Format = 2

// formatHead precedes the number in the format file.
const formatHead = "treadle journal "

// ErrInUse is wrapped by the error for a directory that another process has locked.
var ErrInUse = errors.New("in use")

// home is a locked data directory.
type home struct {
	fs   vfs.FS
	dir  string
	lock io.Closer
}

// lockPatience is how long Open waits for a lock: a killed server of many gigabytes takes
// seconds to give its memory back, and holds the lock meanwhile, while its successor starts.
const lockPatience = 3 * time.Second

// lockRetry is the time between two tries.
const lockRetry = 50 * time.Millisecond

// awaitHome is openHome with patience for a predecessor that is ending.
func awaitHome(f vfs.FS, dir string) (*home, error) {
	for end := time.Now().Add(lockPatience); ; time.Sleep(lockRetry) {
		h, err := openHome(f, dir, true)
		if !errors.Is(err, errOtherProcess) || time.Now().After(end) {
			return h, err
		}
	}
}

// errOtherProcess is an ErrInUse that may end without us.
var errOtherProcess = fmt.Errorf("%w by another treadle", ErrInUse)

// openHome locks dir, which it makes if create is set.
func openHome(f vfs.FS, dir string, create bool) (*home, error) {
	if create {
		if err := makeDir(f, dir); err != nil {
			return nil, fmt.Errorf("cannot make the data directory %q: %w", dir, cause(err))
		}
	} else if ok, err := exists(f, dir); err != nil || !ok {
		if err == nil {
			err = fs.ErrNotExist
		}
		return nil, fmt.Errorf("cannot open the data directory %q: %w", dir, cause(err))
	}
	lock, err := f.Lock(f.PathJoin(dir, lockName))
	switch {
	case err == nil:
		return &home{fs: f, dir: dir, lock: lock}, nil
	case errors.Is(err, syscall.EAGAIN):
		return nil, fmt.Errorf("the data directory %q is %w; give this one its own with --data", dir, errOtherProcess)
	case strings.Contains(err.Error(), "lock held"): // by this process
		return nil, fmt.Errorf("the data directory %q is %w by another treadle; give this one its own with --data", dir, ErrInUse)
	default:
		return nil, fmt.Errorf("cannot lock the data directory %q: %w", dir, cause(err))
	}
}

func (h *home) close() error { return h.lock.Close() }

func (h *home) path(name string) string { return h.fs.PathJoin(h.dir, name) }

func (h *home) store() string { return h.path(storeName) }

// log is the path of a file in the directory of the logs.
func (h *home) log(name string) string { return h.fs.PathJoin(h.store(), logsName, name) }

// makeDir makes dir and syncs the directories above that it had to make or change.
func makeDir(f vfs.FS, dir string) error {
	var made []string
	for at := dir; ; at = f.PathDir(at) {
		ok, err := exists(f, at)
		if err != nil {
			return err
		}
		if ok || f.PathDir(at) == at {
			break
		}
		made = append(made, f.PathDir(at))
	}
	if err := f.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range made {
		if err := syncDir(f, parent); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(f vfs.FS, dir string) error {
	d, err := f.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// complete finishes a swap that was interrupted and removes what was never
// completed. It reports whether there is a store.
func (h *home) complete() (bool, error) {
	if err := h.fs.RemoveAll(h.path(scratchName)); err != nil {
		return false, err
	}
	have, err := exists(h.fs, h.store())
	if err != nil {
		return false, err
	}
	if have {
		return true, h.fs.RemoveAll(h.path(newName))
	}
	whole, err := exists(h.fs, h.fs.PathJoin(h.path(newName), formatName))
	if err != nil || !whole {
		return false, err
	}
	return true, h.rename(newName, storeName)
}

// prepare leaves a whole store in its place: in a new directory it makes one.
func (h *home) prepare() error {
	have, err := h.complete()
	if err != nil || have {
		return err
	}
	if err := h.refuseLost(); err != nil {
		return err
	}
	if err := h.fs.RemoveAll(h.path(newName)); err != nil {
		return err
	}
	if err := createStore(h.fs, h.path(newName), func(*pebble.DB) error { return nil }); err != nil {
		return fmt.Errorf("cannot make a store: %w", err)
	}
	return h.rename(newName, storeName)
}

// needStore is an error unless there is a store.
func (h *home) needStore(have bool, err error) error {
	if err == nil && !have {
		err = fmt.Errorf("the data directory %q holds no store", h.dir)
	}
	return err
}

// refuseLost keeps an empty store from being made where one was taken away.
func (h *home) refuseLost() error {
	names, err := h.fs.List(h.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, damagedName) {
			return fmt.Errorf("%s is missing beside %s: rename the latter to %s and repair it again", h.store(), name, storeName)
		}
	}
	return nil
}

func (h *home) rename(from, to string) error {
	if err := h.fs.Rename(h.path(from), h.path(to)); err != nil {
		return err
	}
	return syncDir(h.fs, h.dir)
}

// swap puts the store that was made in its place and keeps the one that was there
// under the name that it returns. If it is interrupted, prepare completes it.
func (h *home) swap() (kept string, err error) {
	for n := 1; ; n++ {
		kept = fmt.Sprintf("%s-%d", damagedName, n)
		if taken, err := exists(h.fs, h.path(kept)); err != nil {
			return "", err
		} else if !taken {
			break
		}
	}
	if err := h.rename(storeName, kept); err != nil {
		return "", err
	}
	return kept, h.rename(newName, storeName)
}

// writeFormat completes the store at dir. The format file gets its name when all
// else is on the disk.
func writeFormat(f vfs.FS, dir string) error {
	name := f.PathJoin(dir, formatName)
	file, err := f.Create(name+".tmp", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s%d\n", formatHead, Format)
	n, err := file.Write([]byte(text))
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := syncDir(f, dir); err != nil {
		return err
	}
	if err := f.Rename(name+".tmp", name); err != nil {
		return err
	}
	return syncDir(f, dir)
}

// readFormat is the version of the store.
func (h *home) readFormat() (int, error) {
	name := h.fs.PathJoin(h.store(), formatName)
	b, err := readFile(h.fs, name)
	if err != nil {
		return 0, fmt.Errorf("cannot read the version of the data directory %q: %w", h.dir, err)
	}
	text, ok := strings.CutPrefix(string(bytes.TrimSpace(b)), formatHead)
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 1 {
		return 0, fmt.Errorf("%s does not say which version the data directory has", name)
	}
	if n > Format {
		return n, fmt.Errorf("the data directory %q has version %d, written by a newer treadle; this one knows version %d", h.dir, n, Format)
	}
	if n < Format {
		return n, fmt.Errorf("the data directory %q has version %d, written by an older treadle; this one knows version %d: export it with that one, and import it into a new directory", h.dir, n, Format)
	}
	return n, nil
}

func readFile(f vfs.FS, name string) ([]byte, error) {
	file, err := f.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	b := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	_, err = b.ReadFrom(file)
	return b.Bytes(), err
}
