package journal

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
)

// countsPart is the flag, in the stored kind, of a record with counts. A server without such jobs writes none, and its
// directory stays good for the program before.
const countsPart = 0x40

// Counts say what has happened to a job that is known by its number.
type Counts struct {
	Submitted int64  `json:"submitted"` // milliseconds since the Unix epoch
	Delay     uint32 `json:"delay"`     // seconds, the last one that was asked for
	Runs      uint32 `json:"runs"`
	TimedOut  uint32 `json:"timed_out"`
	Released  uint32 `json:"returned"`
	Buried    uint32 `json:"buried"`
	Kicked    uint32 `json:"kicked"`
}

func (c *Counts) hasCounts() bool { return *c != Counts{} }

// all returns the counts in their order on disk.
func (c *Counts) all() [6]*uint32 {
	return [...]*uint32{&c.Delay, &c.Runs, &c.TimedOut, &c.Released, &c.Buried, &c.Kicked}
}

func (c *Counts) appendCounts(dst []byte) []byte {
	dst = binary.AppendVarint(dst, c.Submitted)
	for _, n := range c.all() {
		dst = binary.AppendUvarint(dst, uint64(*n))
	}
	return dst
}

func (c *Counts) countsSize() int {
	size := varintSize(c.Submitted)
	for _, n := range c.all() {
		size += uvarintSize(uint64(*n))
	}
	return size
}

// counts reads what appendCounts has appended.
func (p *parser) counts(c *Counts) {
	c.Submitted = p.varint()
	for _, n := range c.all() {
		v := p.uvarint()
		p.bad = p.bad || v > 1<<32-1
		*n = uint32(v)
	}
	p.bad = p.bad || !c.hasCounts() // a record without counts has no flag
}

var countsNames = []string{"submitted", "delay", "runs", "timed_out", "returned", "buried", "kicked"}

// counts writes what a record says of counts.
func (l *jsonLine) counts(c *Counts) {
	if !c.hasCounts() {
		return
	}
	l.name("counts")
	l.b = fmt.Appendf(l.b, `{"submitted":%d`, c.Submitted)
	for i, n := range c.all() {
		l.number(countsNames[i+1], int64(*n))
	}
	l.b = append(l.b, '}')
}

// counts reads the counts of a line of an export, which may have none.
func counts(line []byte) (c Counts, err error) {
	if len(line) == 0 {
		return c, nil
	}
	names, err := memberNames(line)
	if err == nil {
		err = firstError(checkMembers(names, countsNames), json.Unmarshal(line, &c))
	}
	return c, err
}
