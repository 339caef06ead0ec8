package journal

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
)

// checkAndConvert verifies the store and converts it when its format is older.
func (d *dataDir) checkAndConvert(log *slog.Logger) (*survey, error) {
	format, err := d.readFormat()
	if err != nil {
		return nil, err
	}
	s, err := d.verify(format)
	if err != nil || format == presentFormat {
		return s, err
	}
	log.Info("converting the data directory", "from", format, "to", presentFormat)
	if err := d.convert(s, log); err != nil {
		return nil, fmt.Errorf("cannot convert the data directory %q from format %d to %d: %w", d.root, format, presentFormat, cause(err))
	}
	dropped := s.dropped
	if s, err = d.verify(presentFormat); err == nil {
		s.dropped = append(dropped, s.dropped...)
	}
	return s, err
}

// convert builds a store of the present format beside the surveyed one and replaces that in one step. It keeps the old
// store unchanged, under keptName, so an interruption leaves one of the two whole.
func (d *dataDir) convert(s *survey, log *slog.Logger) error {
	to := d.path(newName)
	if err := d.fs.RemoveAll(to); err != nil {
		return err
	}
	if err := buildStore(d.fs, to, s.upgrade); err != nil {
		return err
	}
	kept := fmt.Sprintf("%s-%d", keptName, s.format)
	if err := errors.Join(d.fs.RemoveAll(d.path(kept)), d.swap(kept)); err != nil {
		return err
	}
	log.Info("the old store is kept, for the way back to the earlier version: remove it when that is not needed", "store", d.path(kept))
	return nil
}

// upgrade copies the surveyed store to a new one in the present format: the tables first, then the
// groups in the logs, one part at a time.
func (s *survey) upgrade(db *pebble.DB) error {
	w := storeWriter{db: db, batch: db.NewBatch()}
	err := s.dir.readTables(func(from *pebble.DB) error { return scan(from, nil, w.upgrade) })
	for _, l := range s.logs {
		if err != nil {
			break
		}
		err = s.eachGroup(l, func(p logPart) error {
			return walkBatch(p.data, func(v tableEntry) error {
				if v.deleted {
					return w.remove(v.key)
				}
				return w.upgrade(v.key, v.value)
			})
		})
	}
	m := s.chain.last
	m = meta{group: m.group, previous: m.group, epoch: m.epoch, maxSeq: m.maxSeq, records: m.records, prevSynced: true}
	return errors.Join(err, w.finish(m))
}
