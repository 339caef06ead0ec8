package journal

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// applyWindow is how many bytes of a log's operations are compacted together. An ordinary log fits;
// a log that a large group made longer is compacted in several windows.
const applyWindow = 2 * defaultLogSize

// applier compacts groups and writes the result to a store.
type applier struct {
	db        *pebble.DB
	batchSize int
	compactor compactor
	meta      []byte // the last group's meta, as an operation; empty before the first group
	mark      []byte // operations that are written with meta; empty: none
}

// apply writes the groups that fill adds to a store and syncs the store. size is the expected
// number of bytes; 0: unknown. The last group's meta is written last, so a store that has the meta
// has every group before it. After a crash without the meta the log still exists, and applying it
// again gives the same result.
func apply(db *pebble.DB, batchSize int, size int64, fill func(*applier) error) error {
	before, err := readMeta(db)
	if err != nil {
		return err
	}
	a := &applier{db: db, batchSize: batchSize,
		compactor: compactor{ops: make([]byte, 0, min(size, applyWindow)), maxStored: before.maxSeq, maxSeen: before.maxSeq}}
	if err := fill(a); err != nil || len(a.meta)+len(a.mark) == 0 {
		return err
	}
	if err := a.write(append(a.meta, a.mark...)); err != nil {
		return err
	}
	return db.Flush()
}

// add takes a sealed batch, which is a group or a part of one.
func (a *applier) add(batch []byte) error {
	a.compactor.add(batch[operationsAt:])
	a.meta = append(a.meta[:0], batch[batchHeader:operationsAt]...)
	if len(a.compactor.ops) < applyWindow {
		return nil
	}
	return a.write(nil)
}

// write compacts the operations added since the last write and writes them, then the operations last
// if there are any.
func (a *applier) write(last []byte) error {
	for rest := a.compactor.ops; ; {
		var count int
		batch := make([]byte, batchHeader, min(len(rest), a.batchSize)+batchHeader+metaOpSize)
		batch, count, rest = appendLive(batch, rest, a.batchSize)
		if len(rest) == 0 && len(last) > 0 {
			batch = append(batch, last...)
			for ; len(last) > 0; last = last[opSize(last):] {
				count++
			}
		}
		binary.LittleEndian.PutUint32(batch[8:], uint32(count))
		var b pebble.Batch
		if err := b.SetRepr(batch); err != nil {
			return err
		}
		if err := a.db.Apply(&b, pebble.NoSync); err != nil {
			return err
		}
		if len(rest) == 0 {
			break
		}
	}
	a.compactor = compactor{ops: a.compactor.ops[:0], maxStored: a.compactor.maxSeen, maxSeen: a.compactor.maxSeen}
	return nil
}

// compactor keeps the last operation of each job. It drops every operation of a job that is both
// created and deleted within the window.
type compactor struct {
	ops       []byte // superseded operations are marked dead
	index     index
	maxStored uint64 // the highest Seq that may be in the store
	maxSeen   uint64 // the highest Seq added so far
}

// add takes a group's operations.
func (c *compactor) add(ops []byte) {
	at := len(c.ops)
	c.ops = append(c.ops, ops...)
	for at < len(c.ops) {
		op := c.ops[at:]
		if op[1] == recordKeySize && op[2] == keyRecord {
			c.operation(at, op[0], binary.BigEndian.Uint64(op[3:]))
		}
		at += opSize(op)
	}
}

// operation records the operation on a record at c.ops[at:].
func (c *compactor) operation(at int, kind byte, seq uint64) {
	c.maxSeen = max(c.maxSeen, seq)
	e := c.index.find(seq)
	fresh := e == nil && kind == opSet && seq > c.maxStored || e != nil && e.fresh()
	if e != nil {
		c.ops[e.offset()] |= opDead
	} else {
		e = c.index.add(seq)
	}
	if kind == opDelete && fresh {
		c.ops[at] |= opDead
		c.index.remove(seq)
		return
	}
	e.set(at, fresh)
}
