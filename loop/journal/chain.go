package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// chain is the sequence of groups in the tables and the logs, up to the first gap.
type chain struct {
	last meta // the last whole group
	// partial is the last part read of a group that still lacks parts. partialAt is where the
	// group's first part is.
	partial   *meta
	partialAt logOffset
	// missingSynced reports whether a synced group is missing.
	missingSynced bool
}

// logOffset is an offset in a log.
type logOffset struct {
	log    int // index in survey.logs
	offset int64
}

// headError reports a log whose head cannot be read.
type headError struct {
	error
	used bool // data follows the head
}

// scanLog calls each with the parts of a log, in order. closed reports whether the log has its end
// mark.
func scanLog(f vfs.FS, path string, format int, each func(logPart) error) (closed bool, err error) {
	file, err := f.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = firstError(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	number, size := fileNumber(f.PathBase(path)), info.Size()
	if format == 2 {
		return format2Framing(number).scan(file, size, each)
	}
	head := make([]byte, min(size, logStart+chunkHead))
	if _, err := file.ReadAt(head, 0); err != nil && size > 0 {
		return false, err
	}
	key, err := parseHead(head, number)
	if err != nil {
		return false, headError{err, size > logStart && notZero(head[logStart:])}
	}
	return key.framing().scan(file, size, each)
}

// logWalk follows the chain of groups through one log.
type logWalk struct {
	*survey
	file     string
	latest   bool     // no later log exists
	stopped  bool     // the rest of the log is ignored
	gap      *logPart // the unreadable bytes that have no verdict yet
	followed meta     // the last part that followed the chain
	lastRead meta     // the last part in the log
}

// readLog follows the chain through a log. last reports whether no later log exists.
//
// An unreadable gap is damage when a later group records that the groups before it were synced.
// Without such a record the gap is a write that the crash interrupted: it was never acknowledged.
func (s *survey) readLog(name string, last bool) error {
	saved := *s
	s.logs = append(s.logs, surveyedLog{name: name})
	w := logWalk{survey: s, file: filepath.Join(logsName, name), latest: last}
	_, err := scanLog(s.dir.fs, s.dir.log(name), s.format, w.part)
	var head headError
	switch {
	case errors.Is(err, errStopWalk): // the rest belongs to the file's earlier log
	case errors.As(err, &head) && head.used:
		s.addDamage(w.file, 0, logStart, "%v", err)
		s.logs = saved.logs
		return nil
	case err != nil && !errors.As(err, &head):
		return fmt.Errorf("cannot read the log %q: %w", s.dir.log(name), cause(err))
	}
	if w.lastRead.group == 0 && w.gap == nil || w.lastRead.group > 0 && !s.inTables.precedes(&w.lastRead) { // the tables hold all of it
		*s = saved
		s.redundant = append(s.redundant, name)
		return nil
	}
	w.end()
	return nil
}

// part takes the next part of the log.
func (w *logWalk) part(p logPart) error {
	var m meta
	err := errNotGroup
	if p.data != nil {
		m, err = batchMeta(p.data)
	}
	if err == nil && w.format == 2 && w.gap == nil && !followsInFormat2(&w.followed, &m) {
		return errStopWalk
	}
	if err == nil && w.lastRead.precedes(&m) {
		w.lastRead = m
	}
	if err == nil && w.gap != nil && !w.judgeGap(&m) {
		err = errNotGroup
	}
	if w.stopped {
		return errStopWalk
	}
	switch {
	case p.whole && err == nil:
		w.follow(p, m)
	case p.whole && w.gap == nil:
		w.addDamage(w.file, p.offset, p.end-p.offset, "%v", err)
	case w.gap == nil:
		w.gap = &logPart{offset: p.offset, end: p.end}
	default:
		w.gap.end = p.end
	}
	return nil
}

// judgeGap decides from a part behind the gap whether the gap is damage. It reports whether the chain
// continues at that part.
func (w *logWalk) judgeGap(m *meta) bool {
	old := m.group <= w.chain.last.group
	switch {
	case m.part > 0:
		return false
	case old || m.previous <= w.chain.last.group && w.format > 2: // no group is missing
	case m.prevSynced:
		w.addDamage(w.file, w.gap.offset, w.gap.end-w.gap.offset, "cannot be read, although group %d behind it records that it was synced", m.group)
		w.chain.last.group, w.chain.partial, w.chain.missingSynced = m.previous, nil, true // the gap is reported once
		w.stopped = w.format == 2 && w.latest
	default:
		return false
	}
	w.gap = nil
	return !w.stopped
}

// follow checks a whole part against the part before it.
func (w *logWalk) follow(p logPart, m meta) {
	c, l := &w.chain, len(w.logs)-1
	previous := &c.last
	if c.partial != nil {
		previous = c.partial
	}
	switch {
	case !intact(p.data, &m):
		w.addDamage(w.file, p.offset, p.end-p.offset, "group %d has a wrong checksum", m.group)
	case !previous.precedes(&m): // the tables hold it
	case m.lacksPart(previous) && w.listed:
		w.addDamage(w.file, p.offset, 0, "a part of group %d is missing before this part of group %d", previous.group, m.group)
	case m.part == 0 && m.previous > previous.group && w.listed:
		c.missingSynced = true
		w.addDamage(w.file, p.offset, 0, "groups %d to %d are missing before group %d", previous.group+1, m.previous, m.group)
	}
	w.logs[l].end, w.followed = p.end, m
	switch {
	case !m.more:
		if !m.precedes(&c.last) {
			c.last = m
		}
		c.partial = nil
	default:
		if c.partial == nil || m.part == 0 {
			c.partialAt = logOffset{l, p.offset}
		}
		c.partial = &m
	}
}

// end decides about a gap at the end of the log. In the last log the gap is dropped, together with
// a group that lacks parts before it.
func (w *logWalk) end() {
	switch {
	case w.gap == nil:
	case !w.latest:
		w.addDamage(w.file, w.gap.offset, w.gap.end-w.gap.offset, "cannot be read, in a log that was complete")
	default:
		if c := &w.chain; c.partial != nil && c.partialAt.log == len(w.logs)-1 {
			w.gap.offset = c.partialAt.offset
			w.cutPartialGroup()
		}
		w.addDropped(w.file, w.gap.offset, w.gap.end-w.gap.offset, "cannot be read: an unfinished group, which was not acknowledged, or damage")
	}
}

func (s *survey) addDropped(file string, offset, length int64, what string) {
	s.dropped = append(s.dropped, Damage{File: filepath.Join(storeName, file), Offset: offset, Length: length, What: what})
}

// dropPartialGroup drops the group that still lacks parts after all logs are read.
func (s *survey) dropPartialGroup() {
	c := &s.chain
	if c.partial == nil {
		return
	}
	l := s.logs[c.partialAt.log]
	s.addDropped(filepath.Join(logsName, l.name), c.partialAt.offset, l.end-c.partialAt.offset,
		fmt.Sprintf("group %d lacks parts: it was unfinished when the server ended, and was not acknowledged", c.partial.group))
	s.cutPartialGroup()
}

// cutPartialGroup ends the logs before the group that lacks parts.
func (s *survey) cutPartialGroup() {
	c := &s.chain
	s.logs[c.partialAt.log].end = c.partialAt.offset
	for i := c.partialAt.log + 1; i < len(s.logs); i++ {
		s.logs[i].end = 0
	}
	c.partial = nil
}

// eachGroup calls each with the parts of a log's groups, up to the end of the chain.
func (s *survey) eachGroup(l surveyedLog, each func(logPart) error) error {
	_, err := scanLog(s.dir.fs, s.dir.log(l.name), s.format, func(p logPart) error {
		if p.offset >= l.end {
			return errStopWalk
		}
		if !p.whole { // no group is missing in this gap
			return nil
		}
		return each(p)
	})
	if errors.Is(err, errStopWalk) {
		return nil
	}
	return err
}

// guessFormat determines the format of a store without a readable FORMAT file. A log of the present
// format begins with logMagic, a log of format 2 with its first chunk.
func (d *dataDir) guessFormat() (int, error) {
	names, err := d.fs.List(d.log(""))
	if errors.Is(err, fs.ErrNotExist) {
		return presentFormat, nil
	}
	found := 0
	for _, name := range names {
		b := make([]byte, len(logMagic))
		file, err := d.fs.Open(d.log(name))
		if err != nil {
			return 0, err
		}
		n, _ := file.ReadAt(b, 0) // a log that is too short tells nothing
		if err := file.Close(); err != nil {
			return 0, err
		}
		switch {
		case string(b[:n]) == logMagic:
			return presentFormat, nil
		case notZero(b[:n]):
			found = 2
		}
	}
	return cmp.Or(found, presentFormat), err
}
