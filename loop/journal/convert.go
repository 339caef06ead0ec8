package journal

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
)

// ready checks the store and, when it is of an older format, converts it.
func (d *dataDir) checkAndConvert(log *slog.Logger) (*survey, error) {
	format, err := d.readFormat()
	if err != nil {
		return nil, err
	}
	s, err := d.verify(format)
	if err != nil || format == Format {
		return s, err
	}
	log.Info("converting the data directory", "from", format, "to", Format)
	if err := d.convert(s, log); err != nil {
		return nil, fmt.Errorf("cannot convert the data directory %q from format %d to %d: %w", d.root, format, Format, cause(err))
	}
	dropped := s.dropped
	if s, err = d.verify(Format); err == nil {
		s.dropped = append(dropped, s.dropped...)
	}
	return s, err
}

// convert makes a store of the present format beside the one that was surveyed, and puts it
// in its place in one step. The old one is not changed before that: an interruption leaves
// either.
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
	kept, err := d.keepDamaged() // what was left out may be needed
	if err == nil {
		log.Warn("the store is kept as it was, because the end of a log is left out", "store", kept)
	}
	return err
}

// upgrade fills a new store with what the one that was surveyed holds, in the present form: its
// tables first, then the groups in its logs, one part at a time.
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
	m = meta{group: m.group, previous: m.group, epoch: m.epoch, maxSeq: m.maxSeq, jobs: m.jobs, prevSynced: true}
	return errors.Join(err, w.finish(m))
}
