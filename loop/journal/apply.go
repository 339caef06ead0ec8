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
	netting   netting
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
	a := &applier{db: db, batchSize: batchSize, netting: netting{ops: make([]byte, 0, min(size, applyWindow)), top: before.top, high: before.top}}
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
	a.netting.add(batch[operationsAt:])
	a.meta = append(a.meta[:0], batch[batchHeader:operationsAt]...)
	if len(a.netting.ops) < applyWindow {
		return nil
	}
	return a.write(nil)
}

// write writes what the operations since the last time come to, and the operation last if
// there is one.
func (a *applier) write(last []byte) error {
	for rest := a.netting.ops; ; {
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
	a.netting = netting{ops: a.netting.ops[:0], top: a.netting.high, high: a.netting.high}
	return nil
}

// netting keeps of operations the last of each job, and nothing of a job that is new to the
// store and gone again.
type netting struct {
	ops   []byte // those that are undone are marked dead
	index index
	top   uint64 // the highest Seq that may be in the store
	high  uint64 // the highest Seq seen
}

// add takes a group's operations.
func (n *netting) add(ops []byte) {
	at := len(n.ops)
	n.ops = append(n.ops, ops...)
	for at < len(n.ops) {
		op := n.ops[at:]
		if op[1] == jobKeySize && op[2] == keyJob {
			n.job(at, op[0], binary.BigEndian.Uint64(op[3:]))
		}
		at += opSize(op)
	}
}

// job notes the operation on a job that is at n.ops[at:].
func (n *netting) job(at int, kind byte, seq uint64) {
	n.high = max(n.high, seq)
	e := n.index.find(seq)
	fresh := e == nil && kind == opSet && seq > n.top || e != nil && e.fresh()
	if e != nil {
		n.ops[e.at()] |= opDead
	} else {
		e = n.index.add(seq)
	}
	if kind == opDelete && fresh {
		n.ops[at] |= opDead
		n.index.remove(seq)
		return
	}
	e.set(at, fresh)
}
