package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"treadle/loop/journal"
)

// namesIn returns the names of the jobs in the directory of a single server.
func namesIn(t *testing.T, disk vfs.FS) (names []string) {
	t.Helper()
	j, err := journal.Open(testJournal(disk))
	if err == nil {
		err = j.Replay(journal.ReplayFuncs{Record: func(r *journal.Record) error { names = append(names, string(r.Name)); return nil }})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	return names
}

// alone starts the only node of a cluster.
func alone(t *testing.T, disk vfs.FS) (*Node, *Leadership) {
	t.Helper()
	n, err := Start(soon(t), Options{Cluster: "test", ID: "a", Peers: []Peer{{"a", freeAddress(t)}}, Log: testLog(), Journal: testJournal(disk)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	lead, err := n.AwaitLeadership(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return n, lead
}

// atEveryOperation has one operation after the other of do fail on a copy of a disk, which then loses power, and
// calls after with what is left.
func atEveryOperation(t *testing.T, disk *vfs.MemFS, do func(vfs.FS) error, after func(disk vfs.FS, failed bool) error) {
	t.Helper()
	whole := vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}
	at, failures := 0, 0
	for passed := 0; passed < 50; at++ { // some operations may fail: the store repeats them, or does without
		one := disk.CrashClone(whole)
		failed := do(errorfs.Wrap(one, errorfs.ErrInjected.If(errorfs.OnIndex(int32(at))))) != nil
		if passed++; failed {
			passed = 0
			failures++
			one = one.CrashClone(vfs.CrashCloneCfg{})
		}
		if err := after(one, failed); err != nil {
			t.Fatalf("with an error at operation %d: %v", at, err)
		}
	}
	if t.Logf("%d operations, %d failures", at, failures); failures < 50 {
		t.Errorf("%d operations failed: too few are played", failures)
	}
}

// TestApplyLosesPower: a node whose power is lost while it brings entries into its store has all of them afterwards.
func TestApplyLosesPower(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	n, lead := alone(t, disk)
	j := openJournal(t, n, lead)
	put(t, j, 0, "one", "two")
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	lead.ReleaseStore()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	apply := func(disk vfs.FS) error {
		s, _, err := openStorage(testJournal(disk), nil)
		if err != nil {
			return err
		}
		last, _ := s.LastIndex()
		return errors.Join(s.apply(last), s.replica.Close())
	}
	atEveryOperation(t, disk, apply, func(disk vfs.FS, _ bool) error {
		if err := errors.Join(apply(disk), Leave(testJournal(disk))); err != nil {
			return err
		}
		if got, want := namesIn(t, disk), []string{"one", "two"}; !slices.Equal(got, want) {
			return fmt.Errorf("the jobs are %q, want %q", got, want)
		}
		return nil
	})
}

// TestLeave: a node's directory becomes that of a single server with all jobs, also those that no majority is known to
// have, and can begin another cluster. Power that is lost at any operation loses none, and another try ends it.
func TestLeave(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	n, lead := alone(t, disk)
	j := openJournal(t, n, lead)
	put(t, j, 0, "one", "two")
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	lead.ReleaseStore()
	if err := Leave(testJournal(disk)); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("of a node that runs: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{"one", "two"}
	atEveryOperation(t, disk, func(disk vfs.FS) error { return Leave(testJournal(disk)) }, func(disk vfs.FS, failed bool) error {
		if failed {
			if err := Leave(testJournal(disk)); err != nil && !strings.Contains(err.Error(), "is not that of a node") {
				return err
			}
		}
		if got := namesIn(t, disk); !slices.Equal(got, want) {
			return fmt.Errorf("the jobs are %q, want %q", got, want)
		}
		return nil
	})
	if err := Leave(testJournal(disk)); err != nil {
		t.Fatal(err)
	}
	if err := Leave(testJournal(disk)); err == nil || !strings.Contains(err.Error(), "is not that of a node") {
		t.Errorf("of a single server: %v", err)
	}
	n, lead = alone(t, disk)
	defer lead.ReleaseStore()
	if got := jobs(t, n, n.ownStatus().Commit); !slices.Equal(got, want) {
		t.Errorf("another cluster begins with %q, want %q", got, want)
	}
}
