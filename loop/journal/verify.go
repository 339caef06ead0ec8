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

	"github.com/cockroachdb/pebble/v2"
)

// survey is what is found in a store before it is opened for writing. The store
// itself opens without a word when the middle of a log or of its manifest is
// damaged, drops everything behind the damage and deletes the tables that it no
// longer knows; so the survey looks first.
type survey struct {
	home   *home
	damage []Damage

	listed bool             // the manifest was read: tables are what it names
	tables map[string]int64 // the live tables and their sizes
	stored meta             // the last group, or part of one, that is in the tables
	last   meta             // the last group, as far as they are unbroken
	logs   []surveyedLog    // those with groups that are not in the tables, in order
	done   []string         // logs that the tables hold whole, and were about to be let go
	spares []string         // files that wait to be used as logs again
	number uint64           // the highest of a log or a spare
}

// surveyedLog is a log as a start finds it.
type surveyedLog struct {
	name string // in the directory of the logs
	end  int64  // of what was synced, as far as anybody can tell
}

// groups reads the log's groups.
func (l surveyedLog) groups(h *home) ([]logPart, error) {
	b, err := readFile(h.fs, h.log(l.name))
	if err != nil {
		return nil, err
	}
	parts, _ := scanLog(b, fileNumber(l.name))
	n := 0
	for n < len(parts) && parts[n].whole && parts[n].offset < l.end {
		n++
	}
	return parts[:n], nil
}

func (s *survey) add(file string, offset, length int64, format string, args ...any) {
	s.damage = append(s.damage, Damage{
		File: filepath.Join(storeName, file), Offset: offset, Length: length, What: fmt.Sprintf(format, args...),
	})
}

// verify refuses a store that has lost committed changes.
func (h *home) verify() (*survey, error) {
	s, err := h.survey()
	if err == nil && len(s.damage) > 0 {
		err = &DamageError{Dir: h.dir, Damage: s.damage}
	}
	return s, err
}

// survey reads the manifest and the logs, and follows the chain of groups from the
// tables through the logs.
func (h *home) survey() (*survey, error) {
	s := &survey{home: h, tables: map[string]int64{}}
	if err := s.readManifest(); err != nil {
		return nil, err
	}
	if err := s.list(); err != nil {
		return nil, err
	}
	s.stored = s.last
	logs, err := s.listLogs()
	if err != nil {
		return nil, err
	}
	for i, name := range logs {
		if err := s.readLog(name, i == len(logs)-1); err != nil {
			return nil, err
		}
	}
	s.checkTables()
	if s.listed {
		return s, s.strayTables()
	}
	return s, nil
}

// listLogs is the names of the logs, in order.
func (s *survey) listLogs() (logs []string, err error) {
	dir := s.home.fs.PathJoin(s.home.store(), logsName)
	if ok, err := exists(s.home.fs, dir); err != nil || !ok {
		return nil, err
	}
	names, err := s.home.fs.List(dir)
	for _, name := range names {
		switch {
		case strings.HasSuffix(name, logSuffix):
			logs = append(logs, name)
		case strings.HasSuffix(name, spareSuffix):
			s.spares = append(s.spares, name)
		default:
			continue
		}
		s.number = max(s.number, fileNumber(name))
	}
	slices.SortFunc(logs, func(a, b string) int { return cmp.Compare(fileNumber(a), fileNumber(b)) })
	return logs, err
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

// list asks the store which tables are live, and reads the last group that is in them.
// Without a good manifest it takes all there are.
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
		if !s.listed && strings.HasSuffix(name, ".sst") {
			s.tables[name] = -1
		}
	}
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

// ask opens the store to read.
func (s *survey) ask() (err error) {
	o := storeOptions(s.home.fs, 0, quiet(), nil)
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
	s.last, err = readMeta(db)
	return err
}

// readLog follows the chain of groups through one log.
//
// A gap is damage when a group behind it says that everything before it had been
// synced. Without such a witness it is the end of what was written when the machine
// stopped, and was never acknowledged.
func (s *survey) readLog(name string, last bool) error {
	b, err := readFile(s.home.fs, s.home.log(name))
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, cause(err))
	}
	parts, _ := scanLog(b, fileNumber(name))
	if s.holds(parts) {
		s.done = append(s.done, name)
		return nil
	}
	file := filepath.Join(logsName, name)
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
			s.add(file, p.offset, p.end-p.offset, "%v", err)
		}
		if err != nil {
			continue
		}
		if m.settled {
			for _, g := range gaps {
				if g.offset < p.offset {
					s.add(file, g.offset, g.end-g.offset, "cannot be read, and group %d behind it says that it was synced", m.group)
					s.skipTo(&m)
				}
			}
			gaps = gaps[:0]
			if !p.whole {
				gaps = append(gaps, p)
			}
		}
		if p.whole && len(gaps) == 0 {
			s.follow(file, p, m)
		}
	}
	end := int64(len(b))
	if len(gaps) > 0 {
		if end = gaps[0].offset; !last {
			s.add(file, end, gaps[0].end-end, "cannot be read, in a log that was complete")
		}
	}
	s.logs = append(s.logs, surveyedLog{name, end})
	return nil
}

// holds reports whether the tables hold all groups of a log.
func (s *survey) holds(parts []logPart) bool {
	var last meta
	for _, p := range parts {
		if m, err := batchMeta(p.data); err == nil && last.before(&m) {
			last = m
		}
	}
	return last.group > 0 && !s.stored.before(&last)
}

// skipTo goes on with m behind a gap that is told: what was in it is not told again.
func (s *survey) skipTo(m *meta) {
	if m.previous >= s.last.group {
		s.last.group, s.last.part, s.last.more = m.previous, max(m.part, 1)-1, false
	}
}

// follow checks one whole group against the one before.
func (s *survey) follow(name string, p logPart, m meta) {
	switch {
	case !intact(p.data, &m):
		s.add(name, p.offset, p.end-p.offset, "group %d has a wrong sum", m.group)
	case m.previous > s.last.group && s.listed:
		s.add(name, p.offset, 0, "groups %d to %d are missing before group %d", s.last.group+1, m.previous, m.group)
	case m.lacksPart(&s.last) && s.listed:
		s.add(name, p.offset, 0, "a part of group %d is missing before this part of group %d", s.last.group, m.group)
	}
	if !m.before(&s.last) {
		s.last = m
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
		if err == nil && s.last.before(&m) {
			s.add(name, -1, 0, "has groups up to %d, of which the manifest knows nothing", m.group)
		}
	}
	return nil
}
