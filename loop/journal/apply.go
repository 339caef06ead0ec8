package journal

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// applyWindow is how much of a log's operations are looked at together: all of an ordinary
// log, and a part of one that a large group has made longer.
const applyWindow = 2 * maxLog

// applier brings what groups come to into a store.
type applier struct {
	db        *pebble.DB
	batchSize int
	compactor compactor
	meta      []byte // the last group's, as an operation; empty: no group was added
}

// apply brings the groups that fill adds, of about so many bytes if that is known, into a store
// and syncs it. The last thing that is written is the last group's meta: where it is, everything is. Otherwise the log is there
// still, and doing all of it again comes to the same.
func apply(db *pebble.DB, batchSize int, size int64, fill func(*applier) error) error {
	before, err := readMeta(db)
	if err != nil {
		return err
	}
	a := &applier{db: db, batchSize: batchSize, compactor: compactor{ops: make([]byte, 0, min(size, applyWindow)), maxStored: before.maxSeq, maxSeen: before.maxSeq}}
	if err := fill(a); err != nil || len(a.meta) == 0 {
		return err
	}
	if err := a.write(a.meta); err != nil {
		return err
	}
	return db.Flush()
}

// add takes a group or a part of one, a sealed batch.
func (a *applier) add(batch []byte) error {
	a.compactor.add(batch[operationsAt:])
	a.meta = append(a.meta[:0], batch[batchHeader:operationsAt]...)
	if len(a.compactor.ops) < applyWindow {
		return nil
	}
	return a.write(nil)
}

// write writes what the operations since the last time come to, and the operation last if
// there is one.
func (a *applier) write(last []byte) error {
	for rest := a.compactor.ops; ; {
		var count int
		batch := make([]byte, batchHeader, min(len(rest), a.batchSize)+batchHeader+metaOpSize)
		batch, count, rest = appendLive(batch, rest, a.batchSize)
		if len(rest) == 0 && len(last) > 0 {
			batch, count = append(batch, last...), count+1
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

// netting keeps of operations the last of each job, and nothing of a job that is new to the
// store and gone again.
type compactor struct {
	ops       []byte // those that are undone are marked dead
	index     index
	maxStored uint64 // the highest Seq that may be in the store
	maxSeen   uint64 // the highest Seq seen
}

// add takes a group's operations.
func (c *compactor) add(ops []byte) {
	at := len(c.ops)
	c.ops = append(c.ops, ops...)
	for at < len(c.ops) {
		op := c.ops[at:]
		if op[1] == jobKeySize && op[2] == keyJob {
			c.job(at, op[0], binary.BigEndian.Uint64(op[3:]))
		}
		at += opSize(op)
	}
}

// job notes the operation on a job that is at n.ops[at:].
func (c *compactor) job(at int, kind byte, seq uint64) {
	c.maxSeen = max(c.maxSeen, seq)
	e := c.index.find(seq)
	fresh := e == nil && kind == opSet && seq > c.maxStored || e != nil && e.fresh()
	if e != nil {
		c.ops[e.at()] |= opDead
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
