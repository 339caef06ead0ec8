package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// survey is what is found in a store before it is opened for writing. The store
// itself opens without a word when the middle of a log or of its manifest is
// damaged, drops everything behind the damage and deletes the tables that it no
// longer knows; so the survey looks first.
type survey struct {
	home   *home
	damage []Damage

	listed bool             // the manifest was read: tables and logs are what it names
	tables map[string]int64 // the live tables and their sizes
	logs   []string         // the live logs, in order
	last   meta             // the last group, as far as they are unbroken
	// cut says where logs end that end in what was never synced.
	cut map[string]int64
}

func (s *survey) add(file string, offset, length int64, format string, args ...any) {
	s.damage = append(s.damage, Damage{
		File: filepath.Join(storeName, file), Offset: offset, Length: length, What: fmt.Sprintf(format, args...),
	})
}

// verify refuses a store that has lost committed changes.
func (h *home) verify() error {
	s, err := h.survey()
	if err != nil {
		return err
	}
	if len(s.damage) > 0 {
		return &DamageError{Dir: h.dir, Damage: s.damage}
	}
	for name, end := range s.cut {
		if err := h.cutLog(name, end); err != nil {
			return fmt.Errorf("cannot shorten %s: %w", name, cause(err))
		}
	}
	return nil
}

// survey reads the manifest and the logs, and follows the chain of groups from the
// tables through the logs.
func (h *home) survey() (*survey, error) {
	s := &survey{home: h, tables: map[string]int64{}, cut: map[string]int64{}}
	if err := s.readManifest(); err != nil {
		return nil, err
	}
	if err := s.list(); err != nil {
		return nil, err
	}
	for i, name := range s.logs {
		if err := s.readLog(name, i == len(s.logs)-1); err != nil {
			return nil, err
		}
	}
	s.checkTables()
	if s.listed {
		return s, s.strayTables()
	}
	return s, nil
}

// readManifest looks for gaps in the manifest. Each of its records is synced before
// the next is written, so a gap with a record behind it is damage.
func (s *survey) readManifest() error {
	desc, err := pebble.Peek(s.home.store(), s.home.fs)
	if err != nil {
		return fmt.Errorf("cannot read the store in %q: %w", s.home.dir, cause(err))
	}
	if !desc.Exists {
		s.add("", -1, 0, "the store's marker of its manifest is missing")
		return nil
	}
	name := s.home.fs.PathBase(desc.ManifestFilename)
	b, err := readFile(s.home.fs, desc.ManifestFilename)
	if errors.Is(err, fs.ErrNotExist) {
		s.add(name, -1, 0, "missing")
		return nil
	}
	if err != nil {
		return err
	}
	parts := scanManifest(b)
	var bad []logPart
	for _, p := range parts {
		if p.data != nil {
			for _, gap := range bad {
				s.add(name, gap.offset, gap.end-gap.offset, "cannot be read, and what is behind it can")
			}
			bad = bad[:0]
		}
		if !p.whole {
			bad = append(bad, p)
		}
	}
	if len(parts) == 0 || parts[0].data == nil {
		s.add(name, 0, 0, "cannot be read")
	}
	return nil
}

// list asks the store which tables and logs are live, and reads the last group that
// is in the tables. Without a good manifest it takes all files there are.
func (s *survey) list() error {
	names, err := s.home.fs.List(s.home.store())
	if err != nil {
		return err
	}
	if len(s.damage) == 0 {
		if err := s.ask(); err != nil {
			d := damageOf(err)
			if d.File == "" {
				d.File = storeName
			}
			s.damage = append(s.damage, s.home.locate(d))
		} else {
			s.listed = true
		}
	}
	for _, name := range names {
		switch {
		case s.listed:
		case strings.HasSuffix(name, ".log"):
			s.logs = append(s.logs, name)
		case strings.HasSuffix(name, ".sst"):
			s.tables[name] = -1
		}
	}
	slices.SortFunc(s.logs, func(a, b string) int { return cmp.Compare(fileNumber(a), fileNumber(b)) })
	return nil
}

// checkTables compares the sizes of the live tables with what the manifest says.
func (s *survey) checkTables() {
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		info, err := s.home.fs.Stat(s.home.fs.PathJoin(s.home.store(), name))
		switch want := s.tables[name]; {
		case errors.Is(err, fs.ErrNotExist):
			s.add(name, -1, 0, "missing")
		case err != nil:
			s.add(name, -1, 0, "cannot be read: %v", cause(err))
		case want >= 0 && info.Size() != want:
			s.add(name, min(want, info.Size()), 0, "has %d bytes instead of %d", info.Size(), want)
		}
	}
}

// fileNumber is the number in a file's name.
func fileNumber(name string) uint64 {
	n, _ := strconv.ParseUint(name[:strings.IndexByte(name+".", '.')], 10, 64)
	return n
}

// ask opens the store to read, with empty logs.
func (s *survey) ask() (err error) {
	view := &logless{FS: s.home.fs}
	o := storeOptions(view, 0, quiet(), nil)
	o.ReadOnly, o.ErrorIfNotExists, o.DisableConsistencyCheck = true, true, true
	db, err := pebble.Open(s.home.store(), o)
	if err != nil {
		return err
	}
	defer func() { err = first(err, db.Close()) }()
	levels, err := db.SSTables()
	if err != nil {
		return err
	}
	for _, level := range levels {
		for _, t := range level {
			s.tables[fmt.Sprintf("%s.sst", t.BackingSSTNum)] = int64(t.Size)
		}
	}
	s.logs = view.opened()
	s.last, err = readMeta(db)
	return err
}

// logless is a file system in which all logs are empty; it remembers which were
// opened, because a store opens the logs that are live.
type logless struct {
	vfs.FS
	mu   sync.Mutex
	logs []string
}

func (l *logless) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if !strings.HasSuffix(name, ".log") {
		return l.FS.Open(name, opts...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.logs = append(l.logs, l.PathBase(name))
	return vfs.NewMemFile(nil), nil
}

func (l *logless) opened() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.logs)
}

// readLog follows the chain of groups through one log.
//
// A gap is damage when a group behind it says that everything before it had been
// synced. Without such a witness it is the end of what was written when the machine
// stopped, and was never acknowledged.
func (s *survey) readLog(name string, last bool) error {
	b, err := readFile(s.home.fs, s.home.fs.PathJoin(s.home.store(), name))
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, cause(err))
	}
	parts, closed := scanLog(b, fileNumber(name))
	var gaps []logPart
	for _, p := range parts {
		if p.data == nil || !p.whole {
			gaps = append(gaps, p)
		}
		if p.data == nil {
			continue
		}
		m, err := batchMeta(p.data)
		if err != nil && p.whole {
			s.add(name, p.offset, p.end-p.offset, "%v", err)
		}
		if err != nil {
			continue
		}
		if m.settled {
			for _, g := range gaps {
				if g.offset < p.offset {
					s.add(name, g.offset, g.end-g.offset, "cannot be read, and group %d behind it says that it was synced", m.group)
					s.last.group = max(s.last.group, m.previous) // the gap is told: what was in it is not told again
				}
			}
			gaps = gaps[:0]
			if !p.whole {
				gaps = append(gaps, p)
			}
		}
		if p.whole && len(gaps) == 0 {
			s.follow(name, p, m)
		}
	}
	s.unfinished(name, parts, gaps, closed || last)
	return nil
}

// follow checks one whole group against the one before.
func (s *survey) follow(name string, p logPart, m meta) {
	switch {
	case !intact(p.data, &m):
		s.add(name, p.offset, p.end-p.offset, "group %d has a wrong sum", m.group)
	case m.previous > s.last.group && s.listed:
		s.add(name, p.offset, 0, "groups %d to %d are missing before group %d", s.last.group+1, m.previous, m.group)
	}
	if m.group >= s.last.group {
		s.last = m
	}
}

// unfinished judges what a log ends with: gaps that no later group vouches for.
func (s *survey) unfinished(name string, parts, gaps []logPart, mayEnd bool) {
	if len(gaps) == 0 {
		return
	}
	g := gaps[0]
	if !mayEnd {
		s.add(name, g.offset, g.end-g.offset, "cannot be read, in a log that was complete")
		return
	}
	for _, p := range parts {
		if p.offset >= g.offset && (p.data != nil || p.torn) {
			s.cut[name] = g.offset
		}
	}
}

// strayTables looks for tables that the manifest does not know although they hold
// later groups than all that it knows: the manifest has lost its end.
func (s *survey) strayTables() error {
	names, err := s.home.fs.List(s.home.store())
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, known := s.tables[name]; known || !strings.HasSuffix(name, ".sst") {
			continue
		}
		t, err := openTable(s.home.fs, s.home.fs.PathJoin(s.home.store(), name))
		if err != nil {
			continue // it was never finished
		}
		m, err := t.meta()
		t.close()
		if err == nil && m.group > s.last.group {
			s.add(name, -1, 0, "has groups up to %d, of which the manifest knows nothing", m.group)
		}
	}
	return nil
}

// cutLog ends a log where its gap begins. The store would not read on from there
// either; but it might take the gap for damage, and it tries for up to a second to
// mend a torn chunk by turning each of its bits over.
func (h *home) cutLog(name string, end int64) error {
	name = h.fs.PathJoin(h.store(), name)
	b, err := readFile(h.fs, name)
	if err != nil {
		return err
	}
	f, err := h.fs.Create(name+".tmp", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b[:end])
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := h.fs.Rename(name+".tmp", name); err != nil {
		return err
	}
	return syncDir(h.fs, h.store())
}
