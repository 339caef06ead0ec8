package journal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// openReplica opens a replica and returns its records as one text.
func openReplica(t *testing.T, f vfs.FS) (r *Replica, records string, err error) {
	t.Helper()
	var all []string
	r, _, err = OpenReplica(Options{Dir: testDir, FS: f, LogSize: 64 << 10}, func(b []byte) error {
		all = append(all, string(b[:min(len(b), 10)]))
		return nil
	})
	if err == nil {
		t.Cleanup(func() { _ = r.Close() })
	}
	return r, strings.Join(all, " "), err
}

// appendAll appends records, or fails the test.
func appendAll(t *testing.T, r *Replica, records ...string) {
	t.Helper()
	for i, record := range records {
		if err := r.Append(uint64(i+1), []byte(record)); err != nil {
			t.Fatal(err)
		}
	}
}

// logFile returns the path and the content of the newest log.
func (r *Replica) logFile(t *testing.T) (string, []byte) {
	t.Helper()
	name := r.options.FS.PathJoin(r.dir.raftLogs(), logName(r.log.number))
	b, err := readFile(r.options.FS, name)
	if err != nil {
		t.Fatal(err)
	}
	return name, b
}

// overwrite changes the content of a file from offset on.
func overwrite(t *testing.T, f vfs.FS, name string, offset int64, b []byte) {
	t.Helper()
	file, err := f.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = file.WriteAt(b, offset)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestReplicaLog: records survive a crash across several logs; the last one is left out when it is cut; damage before
// it is refused; what Restart replaces does not count.
func TestReplicaLog(t *testing.T) {
	t.Parallel()
	f := vfs.NewCrashableMem()
	crash := func() { f = f.CrashClone(vfs.CrashCloneCfg{}) }
	r, got, err := openReplica(t, f)
	if err != nil || got != "" {
		t.Fatal(got, err)
	}
	if err := r.Restart(0, []byte("base")); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("large", 10<<10)
	appendAll(t, r, "one", large, large, "two", "three")
	if r.FullLogs() == 0 {
		t.Error("all records are in one log")
	}
	crash()
	if r, got, err = openReplica(t, f); err != nil || got != "base one largelarge largelarge two three" {
		t.Fatal(got, err)
	}
	name, b := r.logFile(t)
	at := bytes.Index(b, []byte("three"))
	cut := f.CrashClone(vfs.CrashCloneCfg{})
	overwrite(t, cut, name, int64(at), make([]byte, 5))
	if cutLog, got, err := openReplica(t, cut); err != nil || got != "base one largelarge largelarge two" {
		t.Error(got, err)
	} else if err := cutLog.Restart(0, []byte("again")); err != nil {
		t.Error(err)
	}
	cut = cut.CrashClone(vfs.CrashCloneCfg{})
	if _, got, err := openReplica(t, cut); err != nil || got != "again" {
		t.Error(got, err)
	}
	crash()
	at = bytes.Index(b, []byte("two"))
	overwrite(t, f, name, int64(at), []byte("twx"))
	if _, got, err := openReplica(t, f); err == nil || !strings.Contains(err.Error(), "although records follow") {
		t.Error(got, err)
	}
}

// TestReplicaKinds: the directory of a single server is no node's, and that of a node no single server's.
func TestReplicaKinds(t *testing.T) {
	t.Parallel()
	single, node := vfs.NewMem(), vfs.NewMem()
	j, err := Open(Options{Dir: testDir, FS: single})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openReplica(t, single); err == nil || !strings.Contains(err.Error(), "is of a single server") {
		t.Error(err)
	}
	if j, err = Open(Options{Dir: testDir, FS: single}); err != nil { // it still is
		t.Fatal(err)
	}
	j.Put(0, &Record{Seq: 1, Space: 1, Queue: []byte("q"), Name: []byte("job")})
	j.Flush(1)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first node ends before it is one
		adopted, fresh, err := OpenReplica(Options{Dir: testDir, FS: single, Adopt: true}, func([]byte) error { return nil })
		if err != nil || !fresh {
			t.Fatal(fresh, err)
		}
		jobs := 0
		if err := scan(adopted.db, recordKeys(), func(_, _ []byte) error { jobs++; return nil }); err != nil || jobs != 1 {
			t.Error(jobs, err)
		}
		if err := adopted.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r, _, err := openReplica(t, node)
	if err == nil {
		err = errors.Join(r.Restart(0, nil), r.SetNote(nodeName, "x"), r.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	_, openErr := Open(Options{Dir: testDir, FS: node})
	_, checkErr := Check(testDir, node)
	_, repairErr := Repair(testDir, node)
	for what, err := range map[string]error{
		"open": openErr, "check": checkErr, "repair": repairErr,
		"import": importFrom(node, testDir, strings.NewReader(`{"treadle_journal":1}`), nil), "export": export(node, testDir, &strings.Builder{}, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "only treadle serve --cluster can use it") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := node.RemoveAll(node.PathJoin(testDir, storeName, raftName)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := openReplica(t, node); err == nil || !strings.Contains(err.Error(), "has lost the log of its cluster") {
		t.Error(err)
	}
}

// captured is a Replicator that keeps the batches, for the store of to.
type captured struct {
	batches [][]byte
	to      *Replica
}

func (c *captured) Append(b []byte) error { c.batches = append(c.batches, b); return nil }
func (c *captured) Sync() error           { return nil }
func (c *captured) Store() error {
	return c.to.Apply(func(add func(Position, []byte) error) error {
		for i, b := range c.batches {
			if err := add(Position{Index: uint64(i) + 1, Term: 1}, b); err != nil {
				return err
			}
		}
		return nil
	}, func(Position) []byte { return []byte("a b c") })
}

// TestReplicaApply: groups reach the store whole or not at all, and logs go when the store has what they hold.
func TestReplicaApply(t *testing.T) {
	t.Parallel()
	f := vfs.NewMem()
	r, _, err := openReplica(t, f)
	if err == nil {
		err = r.Restart(0, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &captured{}
	j, err := Open(Options{Dir: testDir, Replica: r, Replicator: c, BatchSize: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(3) {
		j.Put(0, &Record{Seq: seq + 1, Space: 1, Queue: []byte("q"), Name: fmt.Append(nil, seq), Workload: make([]byte, 2000)})
	}
	j.Flush(1)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if len(c.batches) < 4 {
		t.Fatalf("%d batches", len(c.batches))
	}
	large := strings.Repeat("large", 10<<10)
	appendAll(t, r, large, large, large, large, large)
	apply := func(first uint64, batches ...[]byte) (stored int) {
		t.Helper()
		err := r.Apply(func(add func(Position, []byte) error) error {
			for i, b := range batches {
				if err := add(Position{Index: first + uint64(i), Term: 1}, b); err != nil {
					return err
				}
			}
			return nil
		}, func(at Position) []byte { return fmt.Append(nil, "members at ", at.Index) })
		if err == nil {
			err = scan(r.db, recordKeys(), func(_, _ []byte) error { stored++; return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	last, before := len(c.batches)-1, r.FullLogs()
	if n := apply(1, c.batches[:last]...); n != 0 || r.Applied() != (Position{1, 1}) { // the first one is empty
		t.Errorf("%d jobs of a group that lacks a part, applied %v", n, r.Applied())
	}
	if n := apply(1, append(slices.Clone(c.batches[:last]), nil)...); n != 0 || r.Applied() != (Position{1, 1}) {
		t.Errorf("%d jobs, applied %v: an entry without a group passes parts", n, r.Applied())
	}
	if n := apply(2, c.batches[1:]...); n != 3 || r.Applied() != (Position{uint64(len(c.batches)), 1}) {
		t.Errorf("%d jobs, applied %v", n, r.Applied())
	}
	end := uint64(len(c.batches)) + 1
	if n := apply(end, nil); n != 3 || r.Applied() != (Position{end, 1}) {
		t.Errorf("%d jobs, applied %v: an entry without a group is not applied", n, r.Applied())
	}
	if at, b := r.Members(); string(b) != fmt.Sprint("members at ", at.Index) || at != r.Applied() {
		t.Errorf("%q at %v", b, at)
	}
	forged := slices.Clone(c.batches[1])
	forged[len(forged)-1] ^= 1
	if err := r.Apply(func(add func(Position, []byte) error) error { return add(Position{Index: 9, Term: 1}, forged) }, nil); err == nil {
		t.Error("a batch with a flipped bit is applied")
	}
	if apply(20, c.batches...); before < 2 || r.FullLogs() != 1 {
		t.Errorf("%d full logs, %d before", r.FullLogs(), before)
	}
}

// TestInstall: a received store replaces store and log in one step, in whichever moment the node is killed; one that is
// not what its sender says changes nothing. The logs behind it are removed as others are.
func TestInstall(t *testing.T) {
	t.Parallel()
	from, _, err := openReplica(t, vfs.NewMem())
	c := &captured{}
	if err == nil {
		err = from.Restart(0, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	j, err := Open(Options{Dir: testDir, Replica: from, Replicator: c})
	if err != nil {
		t.Fatal(err)
	}
	j.Put(0, &Record{Seq: 1, Space: 1, Queue: []byte("q"), Name: []byte("job")})
	j.Flush(1)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	at := Position{Index: 7, Term: 2}
	err = from.Apply(func(add func(Position, []byte) error) error {
		for _, b := range c.batches {
			if err := add(at, b); err != nil {
				return err
			}
		}
		return nil
	}, func(Position) []byte { return []byte("a b c") })
	if err != nil {
		t.Fatal(err)
	}
	s, err := from.Snapshot()
	if err != nil || s.Position != at || string(s.Members) != "a b c" {
		t.Fatal(s, err)
	}
	f := vfs.NewCrashableMem()
	to, _, err := openReplica(t, f)
	if err == nil {
		err = errors.Join(to.Restart(0, []byte("old")), to.SetNote(nodeName, "x"))
	}
	if err != nil {
		t.Fatal(err)
	}
	receive := func() *Incoming {
		in, err := to.Receive()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range s.Files {
			file, size, err := s.Open(name)
			if err == nil {
				err = errors.Join(in.Write(name, size, file), file.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return in
	}
	for _, name := range []string{"../x", "FORMAT", "raft", "", ".", "a/b"} {
		if err := receive().Write(name, 1, strings.NewReader("x")); err == nil {
			t.Errorf("a file %q is written", name)
		}
	}
	if err := receive().Write("short", 2, strings.NewReader("x")); err == nil {
		t.Error("a file that was cut is taken")
	}
	if err := receive().Check(Position{Index: 8, Term: 2}); err == nil || !strings.Contains(err.Error(), "it has position") {
		t.Error(err)
	}
	appendAll(t, to, "goes on")
	half := receive()
	if _, got, err := openReplica(t, f.CrashClone(vfs.CrashCloneCfg{})); err != nil || got != "old goes on" {
		t.Error(got, err)
	}
	if err := errors.Join(half.Check(at), half.Install(at, []byte("new"))); err != nil || to.Applied() != at {
		t.Fatal(to.Applied(), err)
	}
	appendAll(t, to, "later")
	again, got, err := openReplica(t, f.CrashClone(vfs.CrashCloneCfg{}))
	if err != nil || got != "new later" || again.Applied() != at {
		t.Fatal(got, err)
	}
	if _, b := again.Members(); string(b) != "a b c" {
		t.Errorf("the members are %q", b)
	}
	jobs := 0
	if err := scan(again.db, recordKeys(), func(_, _ []byte) error { jobs++; return nil }); err != nil || jobs != 1 {
		t.Error(jobs, err)
	}
	large := strings.Repeat("large", 10<<10)
	appendAll(t, to, large, large, large, large, large)
	full := to.FullLogs()
	nothing := func(func(Position, []byte) error) error { return nil }
	if err := to.Apply(nothing, nil); err != nil || full < 3 || to.FullLogs() != 1 {
		t.Errorf("%d of %d full logs are left after the store has them: %v", to.FullLogs(), full, err)
	}
}

// TestDamagedNote: a note with any byte changed, or without its end, is an error.
func TestDamagedNote(t *testing.T) {
	t.Parallel()
	f := vfs.NewMem()
	r, _, err := openReplica(t, f)
	if err != nil {
		t.Fatal(err)
	}
	path := f.PathJoin(testDir, nodeName)
	if text, err := r.Note(nodeName); text != "" || err != nil {
		t.Error(text, err)
	}
	for _, text := range []string{"", "number 1\norigin a b c\n"} {
		if err := r.SetNote(nodeName, text); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Note(nodeName); got != text || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		whole, err := readFile(f, path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range whole {
			bad := bytes.Clone(whole)
			bad[at] ^= 1
			for _, b := range [][]byte{bad, whole[:at]} {
				if err := writeWhole(f, path, string(b)); err != nil {
					t.Fatal(err)
				}
				if got, err := r.Note(nodeName); err == nil || !strings.Contains(err.Error(), "is damaged") {
					t.Errorf("%q is read as %q, %v", b, got, err)
				}
			}
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
