package journal

import (
	"bytes"
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
	dir    *dataDir
	format int
	damage []Damage
	// dropped are ends of logs that cannot be read, or hold a group that lacks parts. What
	// was acknowledged is not in them, unless the disk damaged it.
	dropped []Damage

	listed    bool             // the manifest was read: tables are what it names
	tables    map[string]int64 // the live tables and their sizes
	inTables  meta             // the last group that is in the tables
	chain     chain
	logs      []surveyedLog // those with groups that are not in the tables, in order
	redundant []string      // logs that the tables hold whole, or that hold nothing
	spares    []string      // files that wait to be used as logs again
	number    uint64        // the highest of a log or a spare
}

// surveyedLog is a log as a start finds it.
type surveyedLog struct {
	name string // in the directory of the logs
	end  int64  // of its last whole group
}

func (s *survey) addDamage(file string, offset, length int64, format string, args ...any) {
	s.damage = append(s.damage, Damage{
		File: filepath.Join(storeName, file), Offset: offset, Length: length, What: fmt.Sprintf(format, args...),
	})
}

// verify refuses a store that has lost committed changes.
func (d *dataDir) verify(format int) (*survey, error) {
	s, err := d.survey(format)
	if err == nil && len(s.damage) > 0 {
		err = &DamageError{Dir: d.root, Damage: s.damage}
	}
	return s, err
}

// survey reads the manifest and the logs, and follows the chain of groups from the
// tables through the logs.
func (d *dataDir) survey(format int) (*survey, error) {
	s := &survey{dir: d, format: format, tables: map[string]int64{}}
	if err := s.readManifest(); err != nil {
		return nil, err
	}
	if err := s.listTables(); err != nil {
		return nil, err
	}
	s.chain.last = s.inTables
	logs, err := s.listLogs()
	if err != nil {
		return nil, err
	}
	for i, name := range logs {
		if err := s.readLog(name, i == len(logs)-1); err != nil {
			return nil, err
		}
	}
	s.dropOpenGroup()
	if err := s.checkClosed(); err != nil {
		return nil, err
	}
	s.checkTables()
	if s.listed {
		return s, s.strayTables()
	}
	return s, nil
}

// listLogs is the names of the logs, in order.
func (s *survey) listLogs() (logs []string, err error) {
	dir := s.dir.fs.PathJoin(s.dir.store(), logsName)
	if ok, err := exists(s.dir.fs, dir); err != nil || !ok {
		return nil, err
	}
	names, err := s.dir.fs.List(dir)
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
	desc, err := pebble.Peek(s.dir.store(), s.dir.fs)
	if err != nil {
		return fmt.Errorf("cannot read the store in %q: %w", s.dir.root, cause(err))
	}
	if !desc.Exists {
		s.addDamage("", -1, 0, "the store's marker of its manifest is missing")
		return nil
	}
	name := s.dir.fs.PathBase(desc.ManifestFilename)
	b, err := readFile(s.dir.fs, desc.ManifestFilename)
	if errors.Is(err, fs.ErrNotExist) {
		s.addDamage(name, -1, 0, "missing")
		return nil
	}
	if err != nil {
		return err
	}
	var bad []logPart
	readable := false // it begins with a record
	_, err = manifests.scan(bytes.NewReader(b), int64(len(b)), func(p logPart) error {
		readable = readable || p.offset == 0 && p.data != nil
		if p.data != nil {
			for _, gap := range bad {
				s.addDamage(name, gap.offset, gap.end-gap.offset, "cannot be read, and what is behind it can")
			}
			bad = bad[:0]
		}
		if !p.whole {
			bad = append(bad, logPart{offset: p.offset, end: p.end})
		}
		return nil
	})
	if !readable {
		s.addDamage(name, 0, 0, "cannot be read")
	}
	return err
}

// list asks the store which tables are live, and reads the last group that is in them.
// Without a good manifest it takes all there are.
func (s *survey) listTables() error {
	names, err := s.dir.fs.List(s.dir.store())
	if err != nil {
		return err
	}
	if len(s.damage) == 0 {
		if err := s.readTableList(); err != nil {
			d := damageOf(err)
			if d.File == "" {
				d.File = storeName
			}
			s.damage = append(s.damage, s.dir.locate(d))
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
		info, err := s.dir.fs.Stat(s.dir.fs.PathJoin(s.dir.store(), name))
		switch want := s.tables[name]; {
		case errors.Is(err, fs.ErrNotExist):
			s.addDamage(name, -1, 0, "missing")
		case err != nil:
			s.addDamage(name, -1, 0, "cannot be read: %v", cause(err))
		case want >= 0 && info.Size() != want:
			s.addDamage(name, min(want, info.Size()), 0, "has %d bytes instead of %d", info.Size(), want)
		}
	}
}

// fileNumber is the number in a file's name.
func fileNumber(name string) uint64 {
	n, _ := strconv.ParseUint(name[:strings.IndexByte(name+".", '.')], 10, 64)
	return n
}

// ask opens the store to read.
func (s *survey) readTableList() (err error) {
	o := storeOptions(s.dir.fs, 0, silentLog(), nil)
	o.ReadOnly, o.ErrorIfNotExists, o.DisableConsistencyCheck = true, true, true
	db, err := pebble.Open(s.dir.store(), o)
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, db.Close()) }()
	levels, err := db.SSTables()
	if err != nil {
		return err
	}
	for _, level := range levels {
		for _, t := range level {
			s.tables[fmt.Sprintf("%s.sst", t.BackingSSTNum)] = int64(t.Size)
		}
	}
	s.inTables, err = readMeta(db)
	return err
}

// strayTables looks for tables that the manifest does not know although they hold groups that
// are missing, or later ones than all that it knows: the manifest has lost its end. A table
// that was being made when the server was killed is none of these: the logs hold its groups.
func (s *survey) strayTables() error {
	names, err := s.dir.fs.List(s.dir.store())
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, known := s.tables[name]; known || !strings.HasSuffix(name, ".sst") {
			continue
		}
		t, err := openTable(s.dir.fs, s.dir.fs.PathJoin(s.dir.store(), name))
		if err != nil {
			continue // it was never finished
		}
		m, err := t.meta()
		t.close()
		if err == nil && (s.chain.last.before(&m) || s.chain.missingSynced && s.inTables.before(&m)) {
			s.addDamage(name, -1, 0, "has groups up to %d, of which the manifest knows nothing", m.group)
			s.tables[name] = -1
		}
	}
	return nil
}
