package journal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Report is the result of Check and Repair.
type Report struct {
	Format int    // of the data directory; 0: unknown
	Group  uint64 // the last readable group
	Epoch  uint64 // the last opening
	// Jobs, Documents and Settings count what can be read or, after a repair, what was kept. Jobs
	// counts all numbered records.
	Jobs, Documents, Settings int64
	Tables, Logs              int // files in use
	Size                      uint64
	Damage                    []Damage // empty: the directory is undamaged
	// Dropped are the ends of logs that the next start leaves out: writes that were interrupted
	// when the server ended without closing the store. They were not acknowledged, unless the disk
	// damaged acknowledged ones.
	Dropped []Damage
	// Kept is the name, in the data directory, under which a repair keeps the damaged store; empty
	// if nothing was damaged.
	Kept string
	// Duplicates counts the jobs that a repair left out because a later job has their queue and
	// name. The JSON report keeps the older member name.
	Duplicates int64 `json:"Namesakes"`

	maxSeq uint64 // the highest Seq ever put
}

// Check reads a data directory that no server uses, and reports its contents and its damage. It
// changes nothing. Damage is reported in Report, not as an error. A nil f is the disk.
func Check(dir string, f vfs.FS) (Report, error) {
	d, err := openReadOnly(orDefaultFS(f), dir)
	if err != nil {
		return Report{}, err
	}
	r, s, err := d.check(nil)
	if err == nil {
		err = d.count(s, &r)
	}
	return r, errors.Join(err, d.close())
}

func orDefaultFS(f vfs.FS) vfs.FS {
	if f == nil {
		return vfs.Default
	}
	return f
}

// check reads every table and log and calls each with every readable version.
func (d *dataDir) check(each func(tableEntry) error) (Report, *survey, error) {
	if err := d.needStore(exists(d.fs, d.store())); err != nil {
		return Report{}, nil, err
	}
	format, ferr := d.readFormat()
	if format != 0 && ferr != nil {
		return Report{}, nil, ferr
	}
	guess := format
	if format == 0 {
		var err error
		if guess, err = d.guessFormat(); err != nil {
			return Report{}, nil, err
		}
	}
	s, err := d.survey(guess)
	if err != nil {
		return Report{}, nil, err
	}
	var damaged *DamageError
	switch {
	case errors.As(ferr, &damaged):
		s.damage = append(s.damage, damaged.Damage...)
	case ferr != nil:
		s.addDamage(formatName, -1, 0, "%v", ferr)
	}
	c := versionReader{survey: s, each: each, last: s.chain.last}
	if err := c.readTables(); err != nil {
		return Report{}, nil, err
	}
	if err := c.readLogs(); err != nil {
		return Report{}, nil, err
	}
	slices.SortFunc(s.damage, func(a, b Damage) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.What, b.What))
	})
	return Report{
		Format: format, Group: c.last.group, Epoch: c.last.epoch, maxSeq: c.last.maxSeq,
		Tables: len(s.tables), Logs: len(s.logs),
		Size: treeSize(d.fs, d.root), Damage: slices.Compact(s.damage), Dropped: s.dropped,
	}, s, nil
}

// count fills in the number of jobs, documents and settings, and reports duplicate jobs as damage.
// For a damaged store it sorts the keys in memory.
func (d *dataDir) count(s *survey, r *Report) error {
	if len(r.Damage) == 0 {
		return d.read(s, func(db pebble.Reader) error {
			m, err := readMeta(db)
			if err == nil {
				r.Damage, err = duplicatesDamage(db, m.records, func(*Record) { r.Jobs++ })
			}
			return firstError(err,
				scan(db, documentKeys(), func(_, _ []byte) error { r.Documents++; return nil }),
				scan(db, settingKeys(), func(_, _ []byte) error { r.Settings++; return nil }))
		})
	}
	keys, err := openSorter(vfs.NewMem(), "keys")
	if err != nil {
		return err
	}
	_, _, err = d.check(func(v tableEntry) error {
		v.value = nil
		return keys.add(v)
	})
	if err == nil {
		err = keys.each(func(key, _ []byte) error { r.tally(key); return nil })
	}
	return errors.Join(err, keys.close())
}

// tally counts the record of a key, and keeps the highest sequence number of the jobs.
func (r *Report) tally(key []byte) {
	switch key[0] {
	case keyRecord:
		r.Jobs++
		if seq, err := recordSeq(key); err == nil {
			r.maxSeq = max(r.maxSeq, seq)
		}
	case keyDocument:
		r.Documents++
	case keySetting:
		r.Settings++
	}
}

// read opens the store read-only, with the contents of the logs on top.
func (d *dataDir) read(s *survey, use func(pebble.Reader) error) error {
	return d.readTables(func(db *pebble.DB) error {
		with := db.NewIndexedBatch()
		err := addLogs(s, with)
		if err == nil {
			err = use(with)
		}
		return firstError(err, with.Close())
	})
}

// readTables opens the store read-only, without the logs.
func (d *dataDir) readTables(use func(*pebble.DB) error) error {
	o := storeOptions(d.fs, 0, silentLog(), nil)
	o.ReadOnly, o.ErrorIfNotExists = true, true
	db, err := pebble.Open(d.store(), o)
	if err != nil {
		return fmt.Errorf("cannot open the store in %q: %w", d.root, err)
	}
	return firstError(use(db), db.Close())
}

// addLogs adds the groups in the logs to a batch.
func addLogs(s *survey, to *pebble.Batch) error {
	for _, l := range s.logs {
		err := s.eachGroup(l, func(p logPart) error {
			var group pebble.Batch
			if err := group.SetRepr(p.data); err != nil {
				return decodeError{err}
			}
			return to.Apply(&group, nil)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// versionReader calls each with every version in the live tables and the logs.
type versionReader struct {
	*survey
	each    func(tableEntry) error
	last    meta
	changes uint64 // versions read from the logs
}

// readTables reads all versions of the tables, in the order of their names, and notes their damage.
func (c *versionReader) readTables() error {
	for _, name := range slices.Sorted(maps.Keys(c.tables)) {
		t, err := openTable(c.dir.fs, c.dir.fs.PathJoin(c.dir.store(), name))
		if err != nil {
			c.addTableDamage(name, err)
			continue
		}
		err = t.walk(c.take(name, -1), func(err error) { c.addTableDamage(name, err) })
		t.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// addTableDamage reports the error that ended reading a table.
func (c *versionReader) addTableDamage(name string, err error) {
	d := damageOf(err)
	d.File = filepath.Join(storeName, name)
	c.damage = append(c.damage, c.dir.locate(d))
}

// readLogs reads the whole groups of all logs. It reports damage instead of failing, unless a file cannot be read at
// all.
func (c *versionReader) readLogs() error {
	for i, l := range c.logs {
		end := int64(math.MaxInt64)
		if c.format == 2 && i == len(c.logs)-1 {
			end = l.end // bytes behind it may be a client's
		}
		whole, err := c.wholeGroups(l)
		if err != nil {
			return fmt.Errorf("cannot read the log %q: %w", c.dir.log(l.name), cause(err))
		}
		_, err = scanLog(c.dir.fs, c.dir.log(l.name), c.format, func(p logPart) error {
			if len(whole) == 0 || p.offset >= end {
				return errStopWalk
			}
			if p.offset != whole[0] {
				return nil
			}
			whole = whole[1:]
			take := c.take(filepath.Join(logsName, l.name), p.offset)
			return walkBatch(p.data, func(v tableEntry) error {
				c.changes++
				v.number = firstLogNumber + c.changes
				return take(v)
			})
		})
		if err != nil && !errors.Is(err, errStopWalk) {
			return err
		}
	}
	return nil
}

// wholeGroups returns the offsets of the parts of complete groups. A group of format 2 may continue
// in the next log, so there every whole part counts.
func (c *versionReader) wholeGroups(l surveyedLog) (whole []int64, err error) {
	var open []int64
	var last meta
	_, err = scanLog(c.dir.fs, c.dir.log(l.name), c.format, func(p logPart) error {
		m, err := meta{}, errNotGroup
		if p.whole {
			m, err = batchMeta(p.data)
		}
		follows := len(open) > 0 && m.group == last.group && m.part == last.part+1
		if err != nil || !intact(p.data, &m) || m.part > 0 && !follows && c.format > 2 {
			open = open[:0]
			return nil
		}
		if m.part == 0 {
			open = open[:0]
		}
		if open, last = append(open, p.offset), m; !m.more || c.format == 2 {
			whole, open = append(whole, open...), open[:0]
		}
		return nil
	})
	return whole, err
}

// firstLogNumber is higher than the number of any version in the tables, because versions in the
// logs are later.
const firstLogNumber = 1 << 60

// take returns a function that validates a version and calls each with it.
func (c *versionReader) take(file string, offset int64) func(tableEntry) error {
	return func(v tableEntry) error {
		if err := c.validate(v); err != nil {
			c.addDamage(file, offset, 0, "%v", err)
			return nil
		}
		if c.each == nil {
			return nil
		}
		return c.each(v)
	}
}

// validate returns an error if a version is not a record, setting or group of the store. It keeps the last group.
func (c *versionReader) validate(v tableEntry) error {
	switch {
	case len(v.key) == 1 && v.key[0] == keyMeta:
		m, err := parseMeta(v.value)
		if err == nil && !m.precedes(&c.last) {
			c.last = m
		}
		return err
	case len(v.key) > 0 && v.key[0] == keySetting, len(v.key) == 1 && (v.key[0] == keyApplied || v.key[0] == keyMembers):
		return nil
	case len(v.key) > 0 && v.key[0] == keyDocument:
		_, err := parseDocument(v.key, v.value)
		return err
	case len(v.key) > 0 && v.key[0] == keyRecord:
		_, err := recordSeq(v.key)
		if err == nil && !v.deleted {
			var r Record
			err = parseStoredRecord(v.key, v.value, &r)
		}
		return err
	default:
		return fmt.Errorf("an unknown key: %q", v.key)
	}
}

// walkBatch calls each with the versions in a batch.
func walkBatch(b []byte, each func(tableEntry) error) error {
	head, ok := batchrepr.ReadHeader(b)
	r := batchrepr.Read(b)
	for i := range head.Count {
		kind, key, value, more, err := r.Next()
		if !ok || !more || err != nil {
			return fmt.Errorf("a batch ends after %d of %d changes", i, head.Count)
		}
		if err := each(tableEntry{key: key, value: value, deleted: kind == pebble.InternalKeyKindDelete}); err != nil {
			return err
		}
	}
	return nil
}
