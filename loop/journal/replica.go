package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Position is a place in the log of a cluster: the index of an entry and the term of the leader that wrote it.
type Position struct{ Index, Term uint64 }

// Replica is the data directory of a cluster's node: a store, and logs of records beside it, in which package cluster
// keeps the entries of Raft. The store has the groups of all entries up to Applied. Append, Restart and Replace are
// called by one goroutine at a time; the other methods by any goroutine.
//
// A record is synced when Append returns. A record that the end of the process interrupts is left out at the next
// opening. Unreadable bytes with a record behind them are damage, because each record is written after the one before
// it was synced.
type Replica struct {
	options Options
	dir     *dataDir
	disk    *failFS
	log     *logWriter // owned by the caller of Append

	applying sync.Mutex // held while the store changes, is read as a whole, or is replaced
	db       *pebble.DB

	mu      sync.Mutex
	applied Position
	members []byte
	full    []fullReplicaLog // oldest first
}

// fullReplicaLog is a closed log, with the highest index of the entries in it.
type fullReplicaLog struct {
	name string
	last uint64
}

const (
	raftName = "raft" // directory of a node's logs in a store
	nodeName = "NODE" // note in the data directory of a cluster's node
)

// The first byte of a record in a node's logs.
const (
	nextRecord = iota
	baseRecord // the records before it no longer count
)

// OpenReplica locks the data directory of a node, creates it if it is missing, and calls each with the payloads of its
// records, in order, from the last base record on. The caller must call Restart next, and Close at the end. fresh
// reports whether the directory is new to the cluster. Of the options Dir, FS, LogSize, BatchSize, Adopt and Log
// count.
func OpenReplica(o Options, each func(record []byte) error) (r *Replica, fresh bool, err error) {
	if err := o.fill(); err != nil {
		return nil, false, err
	}
	d, err := awaitLock(o.FS, o.Dir, o.Log)
	if err != nil {
		return nil, false, err
	}
	r = &Replica{options: o, dir: d, disk: newFailFS(o.FS)}
	if fresh, err = r.open(); err == nil {
		err = r.readLogs(each)
	}
	if err != nil {
		if r.db != nil {
			err = errors.Join(err, closeStore(r.db))
		}
		return nil, false, errors.Join(err, d.close())
	}
	return r, fresh, nil
}

// open opens the store. It refuses the directory of a single server that was ever used, or adopts it as Options.Adopt
// says.
func (r *Replica) open() (fresh bool, err error) {
	d := r.dir
	node, err := exists(r.options.FS, d.path(nodeName))
	if err != nil {
		return false, err
	}
	if err := d.ensureStore(); err != nil {
		return false, fmt.Errorf("cannot prepare the data directory %q: %w", d.root, cause(err))
	}
	logs, err := exists(r.options.FS, d.fs.PathJoin(d.store(), raftName))
	switch {
	case err != nil:
		return false, err
	case node && !logs:
		return false, fmt.Errorf("the data directory %q has lost the log of its cluster: it can no longer be this node", d.root)
	}
	s, err := d.checkAndConvert(r.options.Log)
	if err != nil {
		return false, err
	}
	if used := s.chain.last.group > 0 || len(s.logs) > 0; !node && used {
		if !r.options.Adopt {
			return false, fmt.Errorf("the data directory %q is of a single server: it becomes a cluster's when it starts as the only node, and the others are added to it", d.root)
		}
		err = r.adopt(s)
	} else {
		r.db, err = openStore(d, r.disk, &r.options)
	}
	if err != nil {
		return false, err
	}
	if r.applied, err = readApplied(r.db); err == nil {
		r.members, err = readMembers(r.db)
	}
	return !node, err
}

// adopt opens the store of a single server, and brings its logs into it. The directory stays that of a single server
// until it has the note NODE.
func (r *Replica) adopt(s *survey) error {
	j := newJournal(r.options, r.dir)
	j.disk = r.disk
	if err := j.openStore(); err != nil {
		return err
	}
	r.db = j.db
	if err := j.openLogs(s); err != nil {
		return err
	}
	r.options.Log.Info("the data directory of a single server becomes that of a node", "dir", r.dir.root)
	return j.log.close()
}

// refuseNode returns an error for the data directory of a cluster's node.
func (d *dataDir) refuseNode() error {
	node, err := exists(d.fs, d.path(nodeName))
	if err == nil && node {
		err = fmt.Errorf("the data directory %q is of a node of a cluster: only treadle serve --cluster can use it", d.root)
	}
	return err
}

func (d *dataDir) raftLogs() string { return d.fs.PathJoin(d.store(), raftName) }

// readApplied returns the position that a store has, or zero for a new one.
func readApplied(db pebble.Reader) (p Position, err error) {
	b, done, err := db.Get([]byte{keyApplied})
	if errors.Is(err, pebble.ErrNotFound) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	if len(b) != 16 {
		err = decodeError{fmt.Errorf("the position of the store has %d bytes", len(b))}
	} else {
		p = Position{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
	}
	return p, firstError(err, done.Close())
}

// readMembers returns what Apply has stored as the members, or nil.
func readMembers(db pebble.Reader) ([]byte, error) {
	b, done, err := db.Get([]byte{keyMembers})
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return slices.Clone(b), done.Close()
}

// readLogs calls each with the records of all logs, and makes the writer, whose next log follows.
func (r *Replica) readLogs(each func(record []byte) error) error {
	f, dir := r.options.FS, r.dir.raftLogs()
	names, err := f.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	slices.SortFunc(names, func(a, b string) int { return int(fileNumber(a)) - int(fileNumber(b)) })
	var number uint64
	var records [][]byte
	var gap error
	for _, name := range names {
		number = max(number, fileNumber(name))
		if !strings.HasSuffix(name, logSuffix) {
			continue
		}
		path := f.PathJoin(dir, name)
		var head headError
		_, err := scanLog(f, path, presentFormat, func(p logPart) error {
			switch {
			case !p.whole || len(p.data) == 0:
				if gap == nil {
					gap = fmt.Errorf("the log %q cannot be read from offset %d on, although records follow", path, p.offset)
				}
			case p.data[0] == baseRecord:
				gap, records = nil, [][]byte{slices.Clone(p.data[1:])}
			case gap != nil:
				return gap
			default:
				records = append(records, slices.Clone(p.data[1:]))
			}
			return nil
		})
		if errors.As(err, &head) {
			if head.used {
				gap = fmt.Errorf("the log %q cannot be read: %w", path, err)
			}
			err = nil
		}
		if err != nil {
			return fmt.Errorf("the log of this node is damaged: %w", err)
		}
		r.full = append(r.full, fullReplicaLog{name: name})
	}
	if gap != nil {
		r.options.Log.Warn("the end of the node's log is left out: an interrupted write, or damage", "why", gap)
	}
	r.log = newLogWriter(r.disk, dir, &r.options, number, func(string) {})
	for _, record := range records {
		if err := each(record); err != nil {
			return fmt.Errorf("the log of this node in %q is damaged: %w", dir, err)
		}
	}
	return nil
}

// Restart begins a new log with a record that stands for all before it, and removes the earlier logs. last is the
// highest index of the entries in it, 0 if there are none.
func (r *Replica) Restart(last uint64, record []byte) error {
	if err := errors.Join(r.disk.MkdirAll(r.dir.raftLogs(), 0o700), syncDir(r.disk, r.dir.store())); err != nil {
		return err
	}
	if err := r.append(baseRecord, last, record); err != nil {
		return err
	}
	names, err := r.options.FS.List(r.dir.raftLogs())
	for _, name := range names {
		if err == nil && fileNumber(name) < r.log.number {
			err = r.disk.Remove(r.options.FS.PathJoin(r.dir.raftLogs(), name))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full = slices.DeleteFunc(r.full, func(l fullReplicaLog) bool { return fileNumber(l.name) < r.log.number }) // a large record fills its log
	return firstError(err, r.disk.failure())
}

// Append writes a record and syncs it. last is the highest index of the entries in it, 0 if there are none.
func (r *Replica) Append(last uint64, record []byte) error { return r.append(nextRecord, last, record) }

// append appends a record of a kind and syncs it. It closes a log that is full.
func (r *Replica) append(kind byte, last uint64, record []byte) error {
	err := r.log.append(append([]byte{kind}, record...), false, r.disk.down)
	if err == nil {
		err = r.log.sync()
	}
	if err = firstError(err, r.disk.failure()); err != nil {
		return fmt.Errorf("cannot write the log of the cluster: %w", err)
	}
	r.log.highest = max(r.log.highest, last)
	if r.log.size < r.log.limit {
		return nil
	}
	highest := r.log.highest
	r.log.highest = 0
	if err := r.log.finish(r.disk.down); err != nil {
		return err
	}
	full := <-r.log.full
	r.mu.Lock()
	r.full = append(r.full, fullReplicaLog{full.name, highest})
	r.mu.Unlock()
	return r.disk.failure()
}

// Applied returns the position of the last entry whose group is in the store.
func (r *Replica) Applied() Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied
}

// Members returns Applied, and the members as of that position.
func (r *Replica) Members() (Position, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied, r.members
}

// FullLogs returns the number of closed logs. All but the newest are removed once the store has their entries, see
// Apply.
func (r *Replica) FullLogs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.full)
}

// Apply writes groups that a majority has on disk to the store. each calls add with the batches behind Applied, in
// order, and with the position of each; a batch is empty where an entry has no group. The parts of a group reach the
// store together: Applied is then the last entry that no missing part precedes. members returns what Members returns
// from then on, as of that position. Apply also removes the logs that hold nothing newer.
func (r *Replica) Apply(each func(add func(at Position, batch []byte) error) error, members func(at Position) []byte) error {
	r.applying.Lock()
	defer r.applying.Unlock()
	err := apply(r.db, r.options.BatchSize, 0, func(a *applier) error {
		w := wholeGroups{a: a}
		if err := each(w.add); err != nil {
			return err
		}
		if w.whole.Index > 0 {
			a.mark = append([]byte{opSet, 1, keyApplied, 16}, appendPosition(nil, w.whole)...)
			b := members(w.whole)
			a.mark = append(binary.AppendUvarint(append(a.mark, opSet, 1, keyMembers), uint64(len(b))), b...)
		}
		return nil
	})
	if err = firstError(err, r.disk.failure()); err != nil {
		return fmt.Errorf("cannot apply the log of the cluster to the store: %w", cause(err))
	}
	p, err := readApplied(r.db)
	b, missing := readMembers(r.db)
	if err = firstError(err, missing); err != nil {
		return err
	}
	r.mu.Lock()
	r.applied, r.members = p, b
	var done []string
	for len(r.full) > 1 && r.full[0].last <= p.Index { // the newest may be the only one with a record
		done, r.full = append(done, r.full[0].name), r.full[1:]
	}
	r.mu.Unlock()
	for _, name := range done {
		if err := r.log.retire(name); err != nil {
			return err
		}
	}
	return r.disk.failure()
}

func appendPosition(dst []byte, p Position) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, p.Index), p.Term)
}

// wholeGroups passes the batches of whole groups on to an applier.
type wholeGroups struct {
	a     *applier
	last  meta
	parts [][]byte // of a group that still lacks parts; it may be one that its leader did not finish
	whole Position // of the last entry that no part of parts precedes
}

// add takes the next batch, or an entry without one. It checks the batch's checksum.
func (w *wholeGroups) add(at Position, batch []byte) error {
	if len(batch) == 0 {
		if len(w.parts) == 0 {
			w.whole = at
		}
		return nil
	}
	m, err := batchMeta(batch)
	switch {
	case err != nil:
		return err
	case !intact(batch, &m):
		return fmt.Errorf("group %d has a wrong checksum", m.group)
	case m.part == 0:
		w.parts = nil
	case len(w.parts) == 0 || m.group != w.last.group || m.epoch != w.last.epoch || m.part != w.last.part+1:
		return fmt.Errorf("part %d of group %d lacks the parts before it", m.part, m.group)
	}
	w.last = m
	if m.more {
		w.parts = append(w.parts, batch)
		return nil
	}
	for _, part := range append(w.parts, batch) {
		if err := w.a.add(part); err != nil {
			return err
		}
	}
	w.parts, w.whole = nil, at
	return nil
}

// Failed returns a channel that is closed when a write has failed. Nothing is written after that.
func (r *Replica) Failed() <-chan struct{} { return r.disk.down }

// Failure returns why a write failed, or nil.
func (r *Replica) Failure() error { return r.disk.failure() }

// noteEnd is the last line of a note: the CRC-32C of what stands before it.
const noteEnd = "checksum %08x\n"

// Note returns a note of the data directory, "" if there is none. A damaged one is an error.
func (r *Replica) Note(name string) (string, error) { return r.dir.note(name) }

// note implements Replica.Note.
func (d *dataDir) note(name string) (string, error) {
	path := d.path(name)
	b, err := readFile(d.fs, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	text := string(b[:max(0, len(b)-len(fmt.Sprintf(noteEnd, 0)))])
	if string(b) != text+endOfNote(text) {
		return "", fmt.Errorf("the file %s is damaged: it does not end with the checksum of what it says", path)
	}
	return text, nil
}

// SetNote writes a note, which is whole on the disk when SetNote returns. A directory with the note NODE is a node's.
func (r *Replica) SetNote(name, text string) error {
	return writeWhole(r.options.FS, r.dir.path(name), text+endOfNote(text))
}

func endOfNote(text string) string {
	return fmt.Sprintf(noteEnd, crc32.Checksum([]byte(text), castagnoli))
}

// Close closes the logs and the store, and unlocks the directory.
func (r *Replica) Close() error {
	r.applying.Lock()
	defer r.applying.Unlock()
	failed := r.disk.failure()
	err := errors.Join(r.log.close(), closeStore(r.db), r.dir.close())
	if failed != nil {
		return failed
	}
	return err
}
