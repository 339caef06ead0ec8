package cluster

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"treadle/loop/journal"
)

const testDir = "/data"

func testJournal(fs vfs.FS) journal.Options { return journal.Options{Dir: testDir, FS: fs} }

// threeMembers are the nodes a, b and c.
func threeMembers() *members { return firstMembers(testOptions("a").Peers) }

func mustOpen(t *testing.T, fs vfs.FS) *storage {
	t.Helper()
	s, fresh, err := openStorage(testJournal(fs), threeMembers())
	if err == nil && fresh {
		err = s.replica.SetNote(identityNote, "x")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.replica.Close() })
	return s
}

// entries returns entries from index first on, one for each term. Their data say where they come from.
func entries(first uint64, terms ...uint64) (all []*pb.Entry) {
	for i, term := range terms {
		index := first + uint64(i)
		all = append(all, &pb.Entry{Index: &index, Term: &term, Data: fmt.Appendf(nil, "%d of %d", index, term)})
	}
	return all
}

func state(term, vote, commit uint64) *pb.HardState {
	return &pb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

// content returns the entries behind the compacted ones as index:term:data, with the state in front.
func (s *storage) content(t *testing.T) string {
	t.Helper()
	hard, all, err := s.InitialState()
	if err != nil || !reflect.DeepEqual(all.GetVoters(), []uint64{1, 2, 3}) {
		t.Fatal(all, err)
	}
	text := fmt.Sprintf("%d/%d/%d", hard.GetTerm(), hard.GetVote(), hard.GetCommit())
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	if last < first {
		return text
	}
	got, err := s.Entries(first, last+1, noLimit)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range got {
		text += fmt.Sprintf(" %d:%d:%s", e.GetIndex(), e.GetTerm(), e.GetData())
	}
	return text
}

// TestStorageRestart: state and entries survive a kill, and entries that a new leader has replaced do not come back.
func TestStorageRestart(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	crash := func() { fs = fs.CrashClone(vfs.CrashCloneCfg{}) }
	s := mustOpen(t, fs)
	save := func(hard *pb.HardState, all []*pb.Entry) {
		t.Helper()
		if err := s.save(hard, all, true); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got := s.content(t); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	expect("0/0/1") // the members are entry 1
	save(state(1, 2, 1), nil)
	save(state(1, 2, 1), entries(2, 1, 1, 1, 1))
	crash()
	s = mustOpen(t, fs)
	expect("1/2/1 2:1:2 of 1 3:1:3 of 1 4:1:4 of 1 5:1:5 of 1")
	save(state(3, 1, 1), entries(4, 2, 3)) // entries 4 and 5 of term 1 conflict
	expect("3/1/1 2:1:2 of 1 3:1:3 of 1 4:2:4 of 2 5:3:5 of 3")
	save(state(4, 3, 1), entries(3, 4)) // the log becomes shorter
	want := "4/3/1 2:1:2 of 1 3:4:3 of 4"
	expect(want)
	crash()
	s = mustOpen(t, fs)
	expect(want)
	crash() // twice: the log begins anew at each start
	s = mustOpen(t, fs)
	expect(want)
	save(state(5, 1, 1), nil) // a vote alone
	crash()
	s = mustOpen(t, fs)
	expect("5/1" + want[len("4/3"):])
}

// TestStorageGap: entries that do not follow the log are refused at the next start.
func TestStorageGap(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	s := mustOpen(t, fs)
	r := record{hard: state(1, 1, 0), entries: entries(3, 1)}
	r.before = journal.Position{Index: 2, Term: 1}
	if err := s.replica.Append(3, appendRecord(nil, &record{hard: r.hard})); err != nil {
		t.Fatal(err)
	}
	if err := s.replica.Append(3, appendRecord(nil, &r)); err != nil {
		t.Fatal(err)
	}
	_, _, err := openStorage(testJournal(fs.CrashClone(vfs.CrashCloneCfg{})), threeMembers())
	if err == nil || !strings.Contains(err.Error(), "entry 3 does not follow entry 2 of term 1") {
		t.Error(err)
	}
}

func TestLogRecord(t *testing.T) {
	t.Parallel()
	r := record{state(1<<40, 3, 77), journal.Position{Index: 300, Term: 9}, entries(301, 9, 10, 10)}
	r.entries[1].Type = pb.EntryConfChange.Enum()
	b := appendRecord(nil, &r)
	got, err := parseRecord(b)
	if err != nil || len(got.entries) != 3 || got.entries[2].GetIndex() != 303 || got.entries[1].GetType() != pb.EntryConfChange || !bytes.Equal(appendRecord(nil, &got), b) {
		t.Errorf("%v, %v", got, err)
	}
	for n := range b {
		if _, err := parseRecord(b[:n:n]); err == nil {
			t.Errorf("%d of %d bytes are a record", n, len(b))
		}
	}
	if _, err := parseRecord(append(b, 0)); err == nil {
		t.Error("a record with one byte more is a record")
	}
}

// batches is a journal.Replicator that keeps what it is given.
type batches struct{ all [][]byte }

func (b *batches) Append(batch []byte) error { b.all = append(b.all, batch); return nil }
func (b *batches) Sync() error               { return nil }
func (b *batches) Store() error              { return nil }

// TestStorageRemoves: a log from which the beginning was removed can be opened again, also when what is left of it has
// no entries.
func TestStorageRemoves(t *testing.T) {
	t.Parallel()
	fs := vfs.NewCrashableMem()
	open := func() *storage {
		o := testJournal(fs)
		o.LogSize = 64 << 10
		s, fresh, err := openStorage(o, threeMembers())
		if err == nil && fresh {
			err = s.replica.SetNote(identityNote, "x")
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.replica.Close() })
		return s
	}
	s := open()
	b := &batches{}
	j, err := journal.Open(journal.Options{Dir: testDir, Replica: s.replica, Replicator: b})
	if err != nil {
		t.Fatal(err)
	}
	put(t, j, 0, strings.Repeat("x", 4<<10))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	index := firstPosition.Index
	more := func(n int) {
		t.Helper()
		for range n {
			all := entries(index+1, 1)
			index++
			all[0].Data = b.all[1]
			if err := s.save(nil, all, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	more(20) // a restart begins with a record that fills a log
	fs = fs.CrashClone(vfs.CrashCloneCfg{})
	s = open()
	for range 3 {
		if more(20); s.replica.FullLogs() == 0 {
			t.Fatal("no log is full")
		}
		for full := s.replica.FullLogs(); s.replica.FullLogs() == full; { // the last log ends with an entry
			more(1)
		}
		for range 20 << 10 { // and those behind it have none
			if s.replica.FullLogs() > 3 {
				break
			}
			if err := s.save(state(index, 2, index), nil, true); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.apply(index); err != nil || s.replica.Applied().Index != index {
			t.Fatal(s.replica.Applied(), err)
		}
		if s.replica.FullLogs() != 1 {
			t.Fatalf("%d logs are left", s.replica.FullLogs())
		}
		names, err := fs.List(testDir + "/store/raft")
		if err != nil {
			t.Fatal(err)
		}
		if names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasSuffix(name, ".log") }); len(names) > 1 {
			t.Fatalf("the logs %q are left, want the full one: the next one begins with the next record", names)
		}
		want := s.content(t)
		fs = fs.CrashClone(vfs.CrashCloneCfg{})
		s = open()
		if got := s.content(t); s.replica.Applied().Index != index || !strings.HasPrefix(want, got) {
			t.Fatalf("applied %v, state %s", s.replica.Applied(), got)
		}
	}
}
