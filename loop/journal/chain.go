package journal

import (
	"fmt"
	"path/filepath"
)

// chain is how far the groups of the tables and the logs follow each other without a gap.
type chain struct {
	last meta // the last whole group
	// open is the latest part of a group that lacks others; at is where its first part stands.
	open *meta
	at   place
	// broken: a group that was synced is missing.
	broken bool
}

// place is a place in a log.
type place struct {
	log    int // in survey.logs
	offset int64
}

// readLog follows the chain of groups through one log.
//
// A gap is damage when a group behind it says that the groups in the gap were synced. Without
// such a witness it is what was being written when the machine stopped, and was never
// acknowledged.
func (s *survey) readLog(name string, last bool) error {
	b, err := readFile(s.home.fs, s.home.log(name))
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", name, cause(err))
	}
	file := filepath.Join(logsName, name)
	parts, _, err := s.home.scanLog(s.format, name, b)
	if err != nil && wasUsed(b) {
		s.add(file, 0, logStart, "%v", err)
		return nil
	}
	if err != nil || s.holds(parts) {
		s.done = append(s.done, name)
		return nil
	}
	s.logs = append(s.logs, surveyedLog{name: name})
	var gaps []logPart
	for _, p := range parts {
		if !p.whole {
			gaps = append(gaps, p)
		}
		if p.data == nil {
			continue
		}
		m, err := batchMeta(p.data)
		switch {
		case err != nil && p.whole:
			s.add(file, p.offset, p.end-p.offset, "%v", err)
			continue
		case err != nil, m.part > 0 && len(gaps) > 0:
			continue
		case len(gaps) > 0 && gaps[0].offset < p.offset:
			gaps = s.judge(file, gaps, p, &m)
		}
		if len(gaps) == 0 {
			s.follow(file, p, m)
		}
	}
	if len(gaps) > 0 && (s.format > 2 || !last) {
		from := gaps[0].offset
		if c := &s.chain; c.open != nil && c.at.log == len(s.logs)-1 { // its rest is in the gap
			from, s.logs[c.at.log].end, c.open = c.at.offset, c.at.offset, nil
		}
		s.dropEnd(file, from, parts[len(parts)-1].end, last)
	}
	return nil
}

// judge tells whether the gaps before a group's first part p are damage. It returns those
// that stand in the way of following the chain.
func (s *survey) judge(file string, gaps []logPart, p logPart, m *meta) []logPart {
	var own []logPart // p itself may lack its end
	if !p.whole {
		own = gaps[len(gaps)-1:]
	}
	switch {
	case m.previous <= s.chain.last.group && s.format > 2: // nothing is missing
	case m.group <= s.chain.last.group: // nor here
	case m.settled:
		for _, g := range gaps[:len(gaps)-len(own)] {
			s.add(file, g.offset, g.end-g.offset, "cannot be read, and group %d behind it says that it was synced", m.group)
		}
		s.chain.last.group, s.chain.open, s.chain.broken = m.previous, nil, true // what was in the gap is not told again
	default:
		return gaps
	}
	return own
}

// dropEnd takes note of the end of a log that cannot be read.
func (s *survey) dropEnd(file string, from, to int64, last bool) {
	if !last {
		s.add(file, from, to-from, "cannot be read, in a log that was complete")
		return
	}
	s.drop(file, from, to-from, "cannot be read: a group that was not complete when the server ended, and was not acknowledged, or damage")
}

func (s *survey) drop(file string, offset, length int64, what string) {
	s.dropped = append(s.dropped, Damage{File: filepath.Join(storeName, file), Offset: offset, Length: length, What: what})
}

// dropOpen leaves a group out that lacks parts when all logs are read.
func (s *survey) dropOpen() {
	c := &s.chain
	if c.open == nil {
		return
	}
	l := &s.logs[c.at.log]
	s.drop(filepath.Join(logsName, l.name), c.at.offset, l.end-c.at.offset, fmt.Sprintf("group %d lacks parts: it was not complete when the server ended, and was not acknowledged", c.open.group))
	l.end = c.at.offset
	for i := c.at.log + 1; i < len(s.logs); i++ {
		s.logs[i].end = 0
	}
	c.open = nil
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

// follow checks one part of a group, which is whole, against the one before.
func (s *survey) follow(file string, p logPart, m meta) {
	c := &s.chain
	l := len(s.logs) - 1
	before := &c.last
	if c.open != nil {
		before = c.open
	}
	switch {
	case !intact(p.data, &m):
		s.add(file, p.offset, p.end-p.offset, "group %d has a wrong sum", m.group)
	case !before.before(&m): // the tables hold it
	case m.lacksPart(before) && s.listed:
		s.add(file, p.offset, 0, "a part of group %d is missing before this part of group %d", before.group, m.group)
	case s.format == 2 && m.part == 0 && m.previous < before.group:
		return // it is left from another log
	case m.part == 0 && m.previous > before.group && s.listed:
		c.broken = true
		s.add(file, p.offset, 0, "groups %d to %d are missing before group %d", before.group+1, m.previous, m.group)
	}
	s.logs[l].end = p.end
	switch {
	case !m.more:
		if !m.before(&c.last) {
			c.last = m
		}
		c.open = nil
	default:
		if c.open == nil || m.part == 0 {
			c.at = place{l, p.offset}
		}
		c.open = &m
	}
}
