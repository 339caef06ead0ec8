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

// survey is the state of a store as read before the store is opened for writing. When the middle of
// a log or of its manifest is damaged, the store opens without an error, drops everything behind
// the damage and deletes tables that it no longer knows. The survey detects this first.
type survey struct {
	dir    *dataDir
	format int
	damage []Damage
	// dropped are ends of logs that cannot be read or hold a group that lacks parts. They hold no
	// acknowledged group, unless the disk damaged one.
	dropped []Damage

	listed    bool             // the manifest was read, so tables is its list
	tables    map[string]int64 // the live tables and their sizes; -1: unknown
	inTables  meta             // the last group in the tables
	chain     chain
	logs      []surveyedLog // logs with groups that the tables lack, in order
	redundant []string      // logs whose groups are all in the tables
	spares    []string      // files to reuse as logs
	number    uint64        // the highest of any log or spare
}

// surveyedLog is a log that recovery will apply.
type surveyedLog struct {
	name string // name in the log directory
	end  int64  // end of its last whole group
}

func (s *survey) addDamage(file string, offset, length int64, format string, args ...any) {
	s.damage = append(s.damage, Damage{
		File: filepath.Join(storeName, file), Offset: offset, Length: length, What: fmt.Sprintf(format, args...),
	})
}

// verify surveys the store and returns a DamageError if it has lost committed changes.
func (d *dataDir) verify(format int) (*survey, error) {
	s, err := d.survey(format)
	if err == nil && len(s.damage) > 0 {
		err = &DamageError{Dir: d.root, Damage: s.damage}
	}
	return s, err
}

// survey reads the manifest, the tables and the logs, and follows the chain of groups through them.
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
	s.dropPartialGroup()
	if err := s.checkClosed(); err != nil {
		return nil, err
	}
	s.checkTables()
	node, err := exists(d.fs, d.path(nodeName))
	if err != nil || node || !s.listed {
		return s, err
	}
	return s, s.strayTables()
}

// listLogs returns the names of the logs, in order.
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

// readManifest detects gaps in the manifest. The store syncs each record before it writes the next,
// so a gap before a record is damage.
func (s *survey) readManifest() error {
	desc, err := pebble.Peek(s.dir.store(), s.dir.fs)
	if err != nil {
		return fmt.Errorf("cannot read the store in %q: %w", s.dir.root, cause(err))
	}
	if !desc.Exists {
		s.addDamage("", -1, 0, "the marker that names the manifest is missing")
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
	readable := false // the manifest begins with a record
	_, err = manifests.scan(bytes.NewReader(b), int64(len(b)), func(p logPart) error {
		readable = readable || p.offset == 0 && p.data != nil
		if p.data != nil {
			for _, gap := range bad {
				s.addDamage(name, gap.offset, gap.end-gap.offset, "cannot be read, although records behind it can")
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

// listTables determines the live tables and the last group in them. Without a readable manifest all
// tables count as live.
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

// checkTables compares the sizes of the live tables with the manifest.
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

// fileNumber returns the number in a file's name.
func fileNumber(name string) uint64 {
	n, _ := strconv.ParseUint(name[:strings.IndexByte(name+".", '.')], 10, 64)
	return n
}

// readTableList reads the live tables and the last group from the store.
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

// strayTables detects tables that the manifest does not list although they hold missing groups or
// later ones: the manifest has lost its end. A table that was being written when the server was
// killed is not damage, because the logs hold its groups. Those of a cluster's node are in Raft's log, from the entry
// on that the listed tables have, or package cluster refuses the directory.
//
// The groups stand in the tables of the other keys, which the store writes anew with each checkpoint and
// beside the tables of the records (ownTables). So when the manifest has lost its end, all the tables that it does
// not list count as live: they hold the records of these groups.
func (s *survey) strayTables() error {
	names, err := s.dir.fs.List(s.dir.store())
	if err != nil {
		return err
	}
	var strays, unfinished []string
	lostEnd := false
	for _, name := range names {
		if _, known := s.tables[name]; known || !strings.HasSuffix(name, ".sst") {
			continue
		}
		t, err := openTable(s.dir.fs, s.dir.fs.PathJoin(s.dir.store(), name))
		if err != nil {
			unfinished = append(unfinished, name)
			continue
		}
		strays = append(strays, name)
		m, err := t.meta()
		t.close()
		if err == nil && (s.chain.last.precedes(&m) || s.chain.missingSynced && s.inTables.precedes(&m)) {
			s.addDamage(name, -1, 0, "has groups up to %d, but the manifest does not list it", m.group)
			lostEnd = true
		}
	}
	if lostEnd {
		for _, name := range append(strays, unfinished...) {
			s.tables[name] = -1 // an unfinished one may be a damaged one, which the reader reports
		}
	}
	return nil
}
