package journal

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Snapshot is a copy of a node's store, to be sent to another node. It must be closed.
type Snapshot struct {
	*storeCopy
	Position
	Members []byte // as of Position, see Replica.Members
}

// Snapshot copies the store. There is at most one Snapshot at a time.
func (r *Replica) Snapshot() (*Snapshot, error) {
	r.applying.Lock()
	defer r.applying.Unlock()
	c, err := copyStore(r.dir, sentName, r.db, r.disk)
	if err != nil {
		return nil, err
	}
	return &Snapshot{c, r.applied, r.members}, nil // they change under applying alone
}

// Incoming is a store that another node sends. It replaces that of the Replica when it is complete.
type Incoming struct{ r *Replica }

// Receive begins an empty store beside the present one. There is at most one Incoming at a time.
func (r *Replica) Receive() (*Incoming, error) {
	in := &Incoming{r}
	if err := in.Close(); err != nil {
		return nil, err
	}
	return in, makeDir(r.options.FS, r.dir.path(newName))
}

// Close removes a store that is not installed.
func (in *Incoming) Close() error { return in.r.options.FS.RemoveAll(in.r.dir.path(newName)) }

// Write adds a file to the store: exactly size bytes of from.
func (in *Incoming) Write(name string, size int64, from io.Reader) error {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") || name == formatName || name == logsName || name == raftName {
		return fmt.Errorf("a store has no file called %.100q", name)
	}
	f := in.r.options.FS
	file, err := f.Create(f.PathJoin(in.r.dir.path(newName), name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.CopyN(file, from, size)
	return errors.Join(err, file.Sync(), file.Close())
}

// Check returns an error if the received store is not whole, or does not have position at.
func (in *Incoming) Check(at Position) error {
	d := *in.r.dir
	d.name = newName
	if err := in.check(&d, at); err != nil {
		return fmt.Errorf("the snapshot is refused: %w", err)
	}
	return nil
}

// Install replaces the store of the Replica and its logs, in one step, by the one that was received. record is the base
// record of the new logs. Check was called before. No Journal may use the Replica.
func (in *Incoming) Install(at Position, record []byte) (err error) {
	r := in.r
	r.applying.Lock()
	defer r.applying.Unlock()
	d := *r.dir
	d.name = newName
	f := r.options.FS
	if err := makeDir(f, d.raftLogs()); err != nil {
		return err
	}
	log := newLogWriter(r.disk, d.raftLogs(), &r.options, r.log.number, func(string) {})
	err = log.append(append([]byte{baseRecord}, record...), false, r.disk.down)
	if err = firstError(err, log.close(), r.disk.failure()); err != nil {
		return err
	}
	if err := writeFormat(f, d.store()); err != nil {
		return err
	}
	if err := errors.Join(r.log.close(), closeStore(r.db), r.dir.replace()); err != nil {
		return err
	}
	r.log = newLogWriter(r.disk, r.dir.raftLogs(), &r.options, log.number, func(string) {})
	if r.db, err = openStore(r.dir, r.disk, &r.options); err != nil {
		return err
	}
	members, err := readMembers(r.db)
	r.mu.Lock()
	r.applied, r.members, r.full = at, members, []fullReplicaLog{{name: logName(log.number)}}
	r.mu.Unlock()
	return err
}

// check opens the received store and compares its position.
func (in *Incoming) check(d *dataDir, at Position) error {
	db, err := openStore(d, newFailFS(in.r.options.FS), &in.r.options) // damage in it is none of the Replica
	if err != nil {
		return err
	}
	p, err := readApplied(db)
	if err == nil && p != at {
		err = fmt.Errorf("it has position %v instead of %v", p, at)
	}
	return errors.Join(err, closeStore(db))
}
