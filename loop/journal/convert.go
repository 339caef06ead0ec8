package journal

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// ready checks the store and, when it is of an older format, converts it.
func (h *home) ready(log *slog.Logger) (*survey, error) {
	format, err := h.readFormat()
	if err != nil {
		return nil, err
	}
	s, err := h.verify(format)
	if err != nil || format == Format {
		return s, err
	}
	log.Info("converting the data directory", "from", format, "to", Format)
	if err := h.convert(s, log); err != nil {
		return nil, fmt.Errorf("cannot convert the data directory %q from format %d to %d: %w", h.dir, format, Format, cause(err))
	}
	dropped := s.dropped
	if s, err = h.verify(Format); err == nil {
		s.dropped = append(dropped, s.dropped...)
	}
	return s, err
}

// convert makes a store of the present format beside the one that was surveyed, and puts it
// in its place in one step. The old one is not changed before that: an interruption leaves
// either.
func (h *home) convert(s *survey, log *slog.Logger) error {
	to := h.path(newName)
	if err := first(h.fs.RemoveAll(to), h.fs.MkdirAll(to, 0o700)); err != nil {
		return err
	}
	if err := h.copyStore(to); err != nil {
		return err
	}
	err := fillStore(h.fs, to, func(db *pebble.DB) error {
		return apply(db, maxBatch, 0, func(a *applier) error {
			for _, l := range s.logs {
				if err := s.eachGroup(l, func(p logPart) error { return a.add(p.data) }); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if len(s.dropped) == 0 {
		return h.replace()
	}
	kept, err := h.keepDamaged() // what was left out may be needed
	if err == nil {
		log.Warn("the store is kept as it was, because the end of a log is left out", "store", kept)
	}
	return err
}

// copyStore copies a store's files, without the logs, to another directory. Tables never
// change, so they are linked where the file system can.
func (h *home) copyStore(to string) error {
	names, err := h.fs.List(h.store())
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == logsName || name == closedName || strings.HasPrefix(name, formatName) || strings.HasSuffix(name, ".tmp") {
			continue
		}
		from, to := h.fs.PathJoin(h.store(), name), h.fs.PathJoin(to, name)
		if strings.HasSuffix(name, ".sst") && h.fs.Link(from, to) == nil {
			continue
		}
		if err := vfs.Copy(h.fs, from, to); err != nil {
			return fmt.Errorf("copying %s: %w", from, cause(err))
		}
	}
	return syncDir(h.fs, to)
}
