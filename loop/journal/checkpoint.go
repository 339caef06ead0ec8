package journal

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// checkpointLoop brings full logs into the store, one after the other, until the
// committer has ended or the journal is broken.
func (j *Journal) checkpointLoop() {
	for {
		select {
		case name, more := <-j.log.full:
			if !more {
				return
			}
			if err := j.checkpointFull(name); err != nil {
				j.guard.trip(fmt.Errorf("cannot bring %s into the store: %w", name, err))
				return
			}
		case <-j.guard.failed:
			return
		}
	}
}

// checkpointFull brings one full log into the store and lets go of it.
func (j *Journal) checkpointFull(name string) error {
	b, err := readFile(j.options.FS, j.home.log(name))
	if err != nil {
		return cause(err)
	}
	parts, closed, err := scanLog(b, fileNumber(name))
	if err != nil || !closed || slices.ContainsFunc(parts, func(p logPart) bool { return !p.whole }) {
		return fmt.Errorf("its %d bytes cannot be read back", len(b))
	}
	if err := j.checkpoint(parts); err != nil {
		return err
	}
	if err := j.guard.failure(); err != nil {
		return err
	}
	return j.retire(name)
}

// retire makes a log that is in the store the next to be used again, or removes it: when one
// waits already, or when a large group has made it longer than others.
func (j *Journal) retire(name string) error {
	path := j.home.log(name)
	info, err := j.options.FS.Stat(path)
	if err != nil {
		return err
	}
	if len(j.log.spares) == cap(j.log.spares) || info.Size() > logStart+2*max(j.options.LogSize, maxBatch) {
		return j.guard.Remove(path)
	}
	spare := strings.TrimSuffix(name, logSuffix) + spareSuffix
	if err := j.guard.Rename(path, j.home.log(spare)); err != nil {
		return err
	}
	if err := j.log.syncDir(); err != nil { // a log that is half cleared would be damaged
		return err
	}
	if err := clearHeads(j.guard, j.home.log(spare), info.Size()); err != nil {
		return err
	}
	j.log.spares <- spare // only the checkpointer fills it
	return nil
}

// clearHeads writes zeros where a log of that size may have its head and, in each block, its
// first chunk's. What is written there later is told from what never was, and how much the
// end of a damaged log takes is known to a block.
func clearHeads(f vfs.FS, name string, size int64) error {
	file, err := f.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	zeros := make([]byte, logStart+chunkHead)
	_, err = file.WriteAt(zeros[:min(size, int64(len(zeros)))], 0)
	for at := int64(logBlock); at < size && err == nil; at += logBlock {
		_, err = file.WriteAt(zeros[:min(chunkHead, size-at)], at)
	}
	return first(err, file.Sync(), file.Close())
}

// recover brings what the logs hold into the store and lets go of them. What it reads is
// synced first: a crash must not take back what is in the store by then. The store's own
// manifest is: opening the store wrote a new one.
func (j *Journal) recover(s *survey) error {
	for _, l := range s.logs {
		if err := j.syncLog(l.name); err != nil {
			return err
		}
		parts, err := s.groups(l)
		if err == nil && len(parts) > 0 {
			err = j.checkpoint(parts)
		}
		if err != nil {
			return fmt.Errorf("cannot bring %s into the store: %w", l.name, cause(err))
		}
	}
	for _, name := range slices.Concat(s.done, s.spares) {
		if err := j.guard.Remove(j.home.log(name)); err != nil {
			return err
		}
	}
	for i := len(s.logs) - 1; i >= 0; i-- {
		if err := j.retire(s.logs[i].name); err != nil {
			return err
		}
	}
	if err := j.log.syncDir(); err != nil {
		return err
	}
	return j.guard.failure()
}

// syncLog syncs a log that an earlier process may have left unsynced.
func (j *Journal) syncLog(name string) error {
	name = j.home.log(name)
	f, err := j.options.FS.OpenReadWrite(name, vfs.WriteCategoryUnspecified) // unguarded: not even mode Never is lazy here
	if err != nil {
		return err
	}
	j.guard.change("sync", name, f.Sync)
	return first(f.Close(), j.guard.failure())
}

// checkpoint brings what a log's groups came to into the store and syncs it.
func (j *Journal) checkpoint(parts []logPart) (err error) {
	defer func() {
		if p := recover(); p != nil {
			j.wedged = true
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return apply(j.db, parts, j.options.BatchSize)
}

// apply brings what groups came to into a store and syncs it. The last thing that is
// written is the last group's meta: where it is, everything is. Otherwise the log is there
// still, and doing all of it again comes to the same.
func apply(db *pebble.DB, parts []logPart, batchSize int) error {
	before, err := readMeta(db)
	if err != nil {
		return err
	}
	n := netting{top: before.top}
	size := 0
	for _, p := range parts {
		size += len(p.data)
	}
	n.ops = make([]byte, 0, size)
	for _, p := range parts {
		n.add(p.data[operationsAt:])
	}
	last := parts[len(parts)-1].data
	for rest := n.ops; ; {
		var count int
		batch := make([]byte, batchHeader, min(len(rest), batchSize)+batchHeader+metaOpSize)
		batch, count, rest = appendLive(batch, rest, batchSize)
		if len(rest) == 0 {
			batch, count = append(batch, last[batchHeader:operationsAt]...), count+1
		}
		binary.LittleEndian.PutUint32(batch[8:], uint32(count))
		var b pebble.Batch
		if err := b.SetRepr(batch); err != nil {
			return err
		}
		if err := db.Apply(&b, pebble.NoSync); err != nil {
			return err
		}
		if len(rest) == 0 {
			return db.Flush()
		}
	}
}

// netting keeps of a log's operations the last of each job, and nothing of a job that is
// new to the store and gone again.
type netting struct {
	ops   []byte // those that are undone are marked dead
	index index
	top   uint64 // the highest Seq before the log
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
