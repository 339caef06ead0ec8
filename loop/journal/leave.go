package journal

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
)

// leavingNote is the text of the note NODE while Leave runs: the directory is no longer that of a node, and not yet
// that of a single server.
const leavingNote = "leaving\n"

// Leave makes the data directory of a stopped node that of a single server. open opens the directory as OpenReplica
// does, and applies all entries of its log to the store. notes are the other notes of the node besides NODE. Leave
// completes a Leave that was interrupted, and then calls open only if it must. Of the options it uses Dir, FS and Log.
func Leave(o Options, notes []string, open func() (*Replica, error)) error {
	if err := o.fill(); err != nil {
		return err
	}
	begun, err := leaveBegun(&o)
	if err == nil && !begun {
		err = beginLeave(open)
	}
	if err != nil {
		return err
	}
	d, err := lockDataDir(o.FS, o.Dir, false)
	if err != nil {
		return err
	}
	return errors.Join(d.leave(&o, notes), d.close())
}

// leaveBegun reports whether a node's directory has the leavingNote. It returns an error if the directory is not a
// node's.
func leaveBegun(o *Options) (begun bool, err error) {
	d, err := lockDataDir(o.FS, o.Dir, false)
	if err != nil {
		return false, err
	}
	note, err := d.note(nodeName)
	if err == nil && note == "" {
		err = fmt.Errorf("the data directory %q is not that of a node of a cluster: a single server can use it as it is", o.Dir)
	}
	return note == leavingNote, errors.Join(err, d.close())
}

// beginLeave opens the directory and writes the leavingNote.
func beginLeave(open func() (*Replica, error)) error {
	r, err := open()
	if err != nil {
		return err
	}
	return errors.Join(r.SetNote(nodeName, leavingNote), r.Close())
}

// leave removes everything of the cluster from a directory with the leavingNote, and that note last.
func (d *dataDir) leave(o *Options, notes []string) error {
	if err := d.forgetCluster(o); err != nil {
		return err
	}
	if err := errors.Join(o.FS.RemoveAll(d.raftLogs()), syncDir(o.FS, d.store())); err != nil {
		return err
	}
	for _, name := range append(notes, nodeName) {
		if err := o.FS.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := syncDir(o.FS, d.root); err != nil {
			return err
		}
	}
	return nil
}

// forgetCluster removes what the store of a node has beside that of a single server.
func (d *dataDir) forgetCluster(o *Options) error {
	db, err := openStore(d, newFailFS(o.FS), o)
	if err != nil {
		return err
	}
	b := db.NewBatch()
	err = errors.Join(b.Delete([]byte{keyApplied}, nil), b.Delete([]byte{keyMembers}, nil))
	if err == nil {
		err = b.Commit(pebble.NoSync)
	}
	if err == nil {
		err = db.Flush()
	}
	if err = firstError(err, closeStore(db)); err != nil {
		return fmt.Errorf("cannot change the store in %q: %w", o.Dir, cause(err))
	}
	return nil
}
