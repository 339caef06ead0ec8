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

// convert builds a store of the present format beside the surveyed one and replaces that in one
// step. Until then the old store is unchanged, so an interruption leaves one of the two whole.
func (d *dataDir) convert(s *survey, log *slog.Logger) error {
	to := d.path(newName)
	if err := d.fs.RemoveAll(to); err != nil {
		return err
	}
	if err := buildStore(d.fs, to, s.upgrade); err != nil {
		return err
	}
	if len(s.dropped) == 0 {
		return d.replace()
	}
	kept, err := d.keepDamaged() // a person may need the dropped ends
	if err == nil {
		log.Warn("the old store is kept, because the end of a log is left out", "store", kept)
	}
	return err
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
			return walkBatch(p.data, func(v version) error {
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
