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
	if err := h.convert(s); err != nil {
		return nil, fmt.Errorf("cannot convert the data directory %q from format %d to %d: %w", h.dir, format, Format, cause(err))
	}
	return h.verify(Format)
}

// convert makes a store of the present format beside the one that was surveyed, and puts it
// in its place in one step. The old one is not changed before that: an interruption leaves
// either.
func (h *home) convert(s *survey) error {
	to := h.path(newName)
	if err := first(h.fs.RemoveAll(to), h.fs.MkdirAll(to, 0o700)); err != nil {
		return err
	}
	if err := h.copyStore(to); err != nil {
		return err
	}
	err := fillStore(h.fs, to, func(db *pebble.DB) error {
		for _, l := range s.logs {
			parts, err := s.groups(l)
			if err != nil {
				return err
			}
			if len(parts) == 0 {
				continue
			}
			if err := apply(db, parts, maxBatch); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return h.replace()
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
		copyFile := vfs.Copy
		if strings.HasSuffix(name, ".sst") {
			copyFile = vfs.LinkOrCopy
		}
		if err := copyFile(h.fs, h.fs.PathJoin(h.store(), name), h.fs.PathJoin(to, name)); err != nil {
			return err
		}
	}
	return syncDir(h.fs, to)
}
