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

// table reads one table file of the store without opening the store.
type table struct {
	r    *sstable.Reader
	file *damagedFile
}

// damagedFile fails reads of offsets that are known to be damaged. Otherwise the store's reader
// spends a quarter of a second on each such read, searching for a single wrong bit.
type damagedFile struct {
	vfs.File
	badOffsets []int64
}

func (s *damagedFile) ReadAt(p []byte, at int64) (int, error) {
	for _, bad := range s.badOffsets {
		if at <= bad && bad < at+int64(len(p)) {
			return 0, fmt.Errorf("damaged at %d", bad)
		}
	}
	return s.File.ReadAt(p, at)
}

// openTable opens a table of the store for reading. The reader notes damage of the file.
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

// tableEntry is one version of one key.
type tableEntry struct {
	key, value []byte
	number     uint64 // higher is later
	deleted    bool
}

// errStopWalk ends a walk early.
var errStopWalk = errors.New("enough")

// meta returns the newest meta in the table.
func (t *table) meta() (m meta, err error) {
	err = pebble.ErrNotFound
	stop := t.walkFrom([]byte{keyMeta}, func(v tableEntry) error {
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

// walk calls each with every readable version in the table, and bad with the damage between them.
// The version's bytes are valid until each returns.
func (t *table) walk(each func(tableEntry) error, bad func(error)) error {
	from := []byte{0}
	for {
		last := from
		err := t.walkFrom(from, func(v tableEntry) error {
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
			t.file.badOffsets = append(t.file.badOffsets, d.Offset)
		}
		if from = t.after(last); from == nil {
			return nil
		}
	}
}

// walkFrom calls each with the versions from a key on.
func (t *table) walkFrom(from []byte, each func(tableEntry) error) (err error) {
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
			return fmt.Errorf("a change of an unknown kind: %s", kind)
		}
		v := tableEntry{key: kv.K.UserKey, value: value, number: uint64(kv.SeqNum()), deleted: kind == pebble.InternalKeyKindDelete}
		if err := each(v); err != nil {
			return err
		}
	}
	return it.Error()
}

// after returns the first readable key behind last, or nil, when the next key cannot be read. A
// different read error means a different damaged block. The keys are the jobs' in the order of
// their Seq, so it searches by bisection; the few keys of meta, documents and settings follow.
func (t *table) after(last []byte) []byte {
	read := func(key []byte) string {
		if err := t.walkFrom(key, func(tableEntry) error { return errStopWalk }); !errors.Is(err, errStopWalk) && err != nil {
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
	if len(last) == recordKeySize && last[0] == keyRecord {
		low, _ = recordSeq(last)
	}
	if last[0] <= keyRecord && read(recordKey(math.MaxUint64)) != complaint {
		high := uint64(math.MaxUint64)
		for low+1 < high {
			if mid := low + (high-low)/2; read(recordKey(mid)) == complaint {
				low = mid
			} else {
				high = mid
			}
		}
		return recordKey(high)
	}
	for _, key := range [][]byte{{keyMeta}, {keyDocument}, {keySetting}} {
		if string(key) > string(last) && read(key) != complaint {
			return key
		}
	}
	return nil
}
