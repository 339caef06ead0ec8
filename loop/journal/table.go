package journal

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// table is one of the store's tables, read without the store.
type table struct {
	r    *sstable.Reader
	file *damagedFile
}

// spotted is a file that fails at once where it is known to be damaged. The store's
// reader would each time take a quarter of a second to try whether one bit is wrong.
type damagedFile struct {
	vfs.File
	bad []int64
}

func (s *damagedFile) ReadAt(p []byte, at int64) (int, error) {
	for _, spot := range s.bad {
		if at <= spot && spot < at+int64(len(p)) {
			return 0, fmt.Errorf("damaged at %d", spot)
		}
	}
	return s.File.ReadAt(p, at)
}

func openTable(f vfs.FS, name string) (*table, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	t := &table{file: &damagedFile{File: file}}
	readable, err := sstable.NewSimpleReadable(t.file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	o := pebble.Options{Logger: silentLog()}
	o.EnsureDefaults()
	if t.r, err = sstable.NewReader(context.Background(), readable, o.MakeReaderOptions()); err != nil {
		return nil, firstError(err, readable.Close())
	}
	return t, nil
}

func (t *table) close() { _ = t.r.Close() } // it was only read

// version is one version of one key.
type version struct {
	key, value []byte
	number     uint64 // the later, the higher
	deleted    bool
}

// errStop ends a walk.
var errStopWalk = errors.New("enough")

// meta is the newest meta in the table.
func (t *table) meta() (m meta, err error) {
	err = pebble.ErrNotFound
	stop := t.walkFrom([]byte{keyMeta}, func(v version) error {
		if len(v.key) == 1 && v.key[0] == keyMeta {
			m, err = parseMeta(v.value)
		}
		return errStopWalk
	})
	if !errors.Is(stop, errStopWalk) {
		err = errors.Join(err, stop)
	}
	return m, err
}

// walk hands out all versions in the table that can be read, and the damage between
// them. The bytes are valid until each returns.
func (t *table) walk(each func(version) error, bad func(error)) error {
	from := []byte{0}
	for {
		last := from
		err := t.walkFrom(from, func(v version) error {
			last = append(last[:0:0], v.key...)
			return callbackErr(each(v))
		})
		var own callbackError
		if err == nil {
			return nil
		}
		if errors.As(err, &own) {
			return own.error
		}
		bad(err)
		if d := damageOf(err); d.Offset >= 0 {
			t.file.bad = append(t.file.bad, d.Offset)
		}
		if from = t.after(last); from == nil {
			return nil
		}
	}
}

// walkFrom hands out the versions from a key on.
func (t *table) walkFrom(from []byte, each func(version) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading panicked: %v", p)
		}
	}()
	it, err := t.r.NewIter(sstable.NoTransforms, nil, nil, sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, it.Close()) }()
	for kv := it.SeekGE(from, 0); kv != nil; kv = it.Next() {
		value, _, err := kv.Value(nil)
		if err != nil {
			return err
		}
		kind := kv.Kind()
		if kind != pebble.InternalKeyKindSet && kind != pebble.InternalKeyKindDelete && kind != pebble.InternalKeyKindSetWithDelete {
			return fmt.Errorf("a change of a kind that no journal writes: %s", kind)
		}
		v := version{key: kv.K.UserKey, value: value, number: uint64(kv.SeqNum()), deleted: kind == pebble.InternalKeyKindDelete}
		if err := each(v); err != nil {
			return err
		}
	}
	return it.Error()
}

// after is the first key behind last that can be read again, where the next one
// cannot. What is in the way is known by what reading it ends with. The table's keys
// are the jobs', whose order is that of their Seq, and behind them the meta, the
// documents and the settings, which are few.
func (t *table) after(last []byte) []byte {
	read := func(key []byte) string {
		if err := t.walkFrom(key, func(version) error { return errStopWalk }); !errors.Is(err, errStopWalk) && err != nil {
			return err.Error()
		}
		return ""
	}
	next := append(last[:len(last):len(last)], 0)
	complaint := read(next)
	if complaint == "" {
		return next
	}
	low := uint64(0)
	if len(last) == jobKeySize && last[0] == keyJob {
		low, _ = jobSeq(last)
	}
	if last[0] <= keyJob && read(jobKey(math.MaxUint64)) != complaint {
		high := uint64(math.MaxUint64)
		for low+1 < high {
			if mid := low + (high-low)/2; read(jobKey(mid)) == complaint {
				low = mid
			} else {
				high = mid
			}
		}
		return jobKey(high)
	}
	for _, key := range [][]byte{{keyMeta}, {keyDocument}, {keySetting}} {
		if string(key) > string(last) && read(key) != complaint {
			return key
		}
	}
	return nil
}
