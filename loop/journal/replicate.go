package journal

import (
	"errors"
	"fmt"
)

// Replicator makes the groups of a Journal durable in a cluster.
type Replicator interface {
	// Append proposes a sealed batch, which is a group or a part of one, as the next entry. It keeps the batch. It may
	// wait while much is proposed and not yet committed.
	Append(batch []byte) error
	// Sync waits until a majority of the nodes has all appended batches on disk. After an error nobody knows whether
	// they are committed, and the journal must end.
	Sync() error
	// Store brings all committed batches into the store of the Replica.
	Store() error
}

// replicatedLog is the groupLog of a cluster's leader.
type replicatedLog struct {
	to    Replicator
	dirty bool
}

func (l *replicatedLog) append(batch []byte, _ bool, _ <-chan struct{}) error {
	l.dirty = true
	return l.to.Append(append([]byte(nil), batch...))
}

func (l *replicatedLog) sync() error {
	if !l.dirty {
		return nil
	}
	if err := l.to.Sync(); err != nil {
		return err
	}
	l.dirty = false
	return nil
}

func (l *replicatedLog) unsynced() bool { return l.dirty }

func (l *replicatedLog) cut(<-chan struct{}) error { return nil }

func (l *replicatedLog) close() error { return nil }

// openReplicated opens the journal of a cluster's leader on a replica whose store has every committed group.
func openReplicated(o Options) (*Journal, error) {
	if o.Sync != Always {
		return nil, fmt.Errorf("a cluster acknowledges what a majority has synced: the journal's mode is %v, not %v", Always, o.Sync)
	}
	if o.Replicator == nil {
		return nil, errors.New("a journal on a replica needs a Replicator")
	}
	o.FS = o.Replica.options.FS
	j := newJournal(o, o.Replica.dir)
	j.db, j.log = o.Replica.db, &replicatedLog{to: o.Replicator}
	return j, j.begin()
}
