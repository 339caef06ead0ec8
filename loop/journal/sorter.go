package journal

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// sorter sorts any number of versions on disk, in a temporary store. Its key is the length of the
// version's key, that key, and the inverted version number, so the newest version of a key comes
// first.
type sorter struct {
	fs    vfs.FS
	disk  *failFS
	dir   string
	db    *pebble.DB
	batch *pebble.Batch
	key   []byte
	value []byte
}

// sorterBatch is the number of bytes that are committed to the store together.
const sorterBatch = 1 << 20

// openSorter makes an empty temporary store in dir, which sorts versions by their key.
func openSorter(f vfs.FS, dir string) (*sorter, error) {
	if err := f.RemoveAll(dir); err != nil {
		return nil, err
	}
	disk := newFailFS(f)
	o := storeOptions(disk, 0, storeLog{log: silentLog().log, trip: disk.trip}, storeEvents(disk))
	db, err := openDB(dir, o)
	if failed := disk.failure(); failed != nil {
		if err == nil {
			_ = closeStore(db) // the failure is the cause
		}
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return &sorter{fs: f, disk: disk, dir: dir, db: db, batch: db.NewBatch()}, nil
}

// add adds a version. Later versions of a key sort before earlier ones.
func (s *sorter) add(v tableEntry) error {
	s.key = binary.BigEndian.AppendUint32(s.key[:0], uint32(len(v.key)))
	s.key = binary.BigEndian.AppendUint64(append(s.key, v.key...), ^v.number)
	s.value = append(s.value[:0], opSet)
	if v.deleted {
		s.value[0] = opDelete
	}
	s.value = append(s.value, v.value...)
	if err := s.batch.Set(s.key, s.value, nil); err != nil {
		return err
	}
	if s.batch.Len() < sorterBatch {
		return nil
	}
	return s.flush()
}

func (s *sorter) flush() error {
	err := s.batch.Commit(pebble.NoSync)
	s.batch = s.db.NewBatch()
	return errors.Join(err, s.disk.failure())
}

// each calls each with the newest version of every key, except deletions.
func (s *sorter) each(each func(key, value []byte) error) error {
	if err := s.flush(); err != nil {
		return err
	}
	var last []byte
	return scan(s.db, nil, func(k, value []byte) error {
		key := k[4 : len(k)-8]
		if last != nil && bytes.Equal(key, last) {
			return nil
		}
		last = append(last[:0], key...)
		if value[0] == opDelete {
			return nil
		}
		return each(key, value[1:])
	})
}

// close removes the temporary store.
func (s *sorter) close() error {
	err := errors.Join(s.batch.Close(), closeStore(s.db))
	if failed := s.disk.failure(); failed != nil {
		err = failed
	}
	return errors.Join(err, s.fs.RemoveAll(s.dir))
}
