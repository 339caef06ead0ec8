package kts46

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// testHost is a server for the protocol alone, with or without a journal.
type testHost struct {
	protocol.Host // methods that the protocol does not call
	sched         *sched.Scheduler
	clock         func() sched.Time
	log           *slog.Logger
	unsent        int
	journal       *journal.Journal // nil: nothing is journaled

	commits *sync.Cond
	failure error // guarded by commits.L

	reasons [protocol.Reasons]atomic.Uint64
	full    bool
}

const testShards = 4

// newHost returns a host. Its journal, if any, is not open yet.
func newHost(clock func() sched.Time, journaled bool) *testHost {
	s := &testHost{clock: clock, log: slog.New(slog.DiscardHandler), unsent: 8 * 64 << 20, commits: sync.NewCond(new(sync.Mutex))}
	o := sched.Options{Shards: testShards, Rules: protocol.TableOf(Spaces()...).Rules()}
	if journaled {
		o.Journal = s
	}
	s.sched = sched.New(o)
	return s
}

// open opens the journal on a disk and restores its content.
func (s *testHost) open(d *disk, p *Protocol) (err error) {
	s.journal, err = journal.Open(journal.Options{Dir: "data", Shards: testShards, FS: d, Committed: func(uint64) { s.wake(nil) }, Failed: s.wake})
	if err != nil {
		return err
	}
	now := s.clock()
	err = s.journal.Replay(journal.ReplayFuncs{
		Setting: p.Restore,
		Document: func(d *journal.Document) error {
			return p.RestoreDocument(&protocol.Document{Kind: protocol.DocumentKind(d.Kind - journal.KindProject), Project: d.Project, Name: d.Name, Value: d.Value})
		},
		Record: func(r *journal.Record) error {
			j := sched.Saved{Kind: sched.Kind(r.Kind), Holder: string(r.Holder), Revision: r.Revision, After: r.After, Task: r.Task}
			j.Job = sched.Job{
				Ref: sched.JobRef{Seq: r.Seq}, Space: sched.Space(r.Space), Queue: string(r.Queue), Name: r.Name, Workload: r.Workload,
				SchedAt: r.SchedAt, Due: r.Due, Priority: r.Priority, Count: r.Count, Timeout: r.Timeout,
			}
			for _, e := range r.Log {
				j.Log = append(j.Log, sched.Event(e))
			}
			return s.sched.Restore(now, &j)
		},
	})
	if err != nil {
		return err
	}
	s.sched.Resume(now, s.journal.LastSeq(), func(_ sched.Space, name string) *sched.Peer { return p.Holder(name) }, s.NewSink())
	return p.Restored()
}

// wake makes Await look again; failed is the error that ended the journal.
func (s *testHost) wake(failed error) {
	s.commits.L.Lock()
	defer s.commits.L.Unlock()
	if failed != nil {
		s.failure = errors.New("the journal failed: " + failed.Error())
	}
	s.commits.Broadcast()
}

// Save implements sched.Journal, under a shard's lock.
func (s *testHost) Save(shard int, j *sched.Saved) {
	r := journal.Record{
		Kind: journal.Kind(j.Kind), Seq: j.Ref.Seq, Space: uint8(j.Space), Queue: []byte(j.Queue), Name: j.Name, Workload: j.Workload,
		SchedAt: j.SchedAt, Due: j.Due, Priority: j.Priority, Count: j.Count, Timeout: j.Timeout,
		Holder: []byte(j.Holder), Revision: j.Revision, After: j.After, Task: j.Task,
	}
	for _, e := range j.Log {
		r.Log = append(r.Log, journal.Event(e))
	}
	s.journal.Put(shard, &r)
}

// Drop implements sched.Journal.
func (s *testHost) Drop(shard int, seq uint64) { s.journal.Delete(shard, seq) }

// Begin implements sched.Journal.
func (s *testHost) Begin(shard int) { s.journal.Begin(shard) }

// End implements sched.Journal.
func (s *testHost) End(shard int) { s.journal.End(shard) }

// Sched implements protocol.Host.
func (s *testHost) Sched() *sched.Scheduler { return s.sched }

// Now implements protocol.Host.
func (s *testHost) Now() sched.Time { return s.clock() }

// Log implements protocol.Host.
func (s *testHost) Log() *slog.Logger { return s.log }

// LogLimited implements protocol.Host.
func (s *testHost) LogLimited(level slog.Level, message string, args ...any) {
	s.log.Log(context.Background(), level, message, args...)
}

// CountRefusal implements protocol.Host.
func (s *testHost) CountRefusal(_ string, why protocol.Reason) { s.reasons[why].Add(1) }

// CheckCapacity implements protocol.Host.
func (s *testHost) CheckCapacity() error {
	if s.full {
		return protocol.ErrDisk
	}
	return nil
}

// CommitGroupAll implements protocol.Host.
func (s *testHost) CommitGroupAll() (group uint64, wait bool) {
	if s.journal == nil {
		return 0, false
	}
	group = s.journal.SettingsGroup()
	for i := range testShards {
		group = max(group, s.journal.Group(i))
	}
	return group, group > s.journal.Committed()
}

// Flush implements protocol.Host.
func (s *testHost) Flush(acknowledgements int) {
	if s.journal != nil {
		s.journal.Flush(acknowledgements)
	}
}

// Await implements protocol.Host.
func (s *testHost) Await(group uint64) error {
	s.commits.L.Lock()
	defer s.commits.L.Unlock()
	for s.failure == nil && s.journal.Committed() < group {
		s.commits.Wait()
	}
	if s.journal.Committed() < group {
		return s.failure
	}
	return nil
}

// PutSetting implements protocol.Host.
func (s *testHost) PutSetting(key string, value []byte) {
	if s.journal != nil {
		s.journal.PutSetting(key, value)
	}
}

// PutDocument implements protocol.Host.
func (s *testHost) PutDocument(d *protocol.Document) {
	if s.journal != nil {
		s.journal.PutDocument(&journal.Document{Kind: journal.KindProject + journal.Kind(d.Kind), Project: d.Project, Name: d.Name, Value: d.Value})
	}
}

// DropDocument implements protocol.Host.
func (s *testHost) DropDocument(d *protocol.Document) {
	if s.journal != nil {
		s.journal.DeleteDocument(&journal.Document{Kind: journal.KindProject + journal.Kind(d.Kind), Project: d.Project, Name: d.Name, Value: d.Value})
	}
}

// NewSink implements protocol.Host.
func (s *testHost) NewSink() protocol.Sink { return testSink{} }

// testSink ignores deliveries to event loops.
type testSink struct{}

// Deliver implements sched.Sink.
func (testSink) Deliver(d *sched.Delivery) { panic("kts46 delivers nothing") }

// Wake implements protocol.Sink.
func (testSink) Wake() {}

// Limits implements protocol.Host.
func (s *testHost) Limits() protocol.Limits {
	return protocol.Limits{LargeOutput: 256 << 10, MaxUnsent: s.unsent, HandshakeTimeout: 10 * time.Second, FrameTimeout: 100 * time.Second}
}

// Guard implements protocol.Host.
func (s *testHost) Guard() *web.Guard {
	guard, err := web.NewGuard(web.GuardOptions{})
	if err != nil {
		panic(err)
	}
	return guard
}

// Listen implements protocol.Host.
func (s *testHost) Listen(_, _, address string) (net.Listener, error) {
	return net.Listen("tcp", address)
}

// disk is a disk in memory whose syncs can wait or fail.
type disk struct {
	vfs.FS
	gate sync.RWMutex // held for writing, syncs wait
	fail atomic.Bool  // syncs return EIO
}

func newDisk() *disk { return newDiskOn(vfs.NewMem()) }

func newDiskOn(f vfs.FS) *disk {
	d := &disk{}
	d.FS = errorfs.Wrap(f, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			d.gate.RLock()
			defer d.gate.RUnlock()
			if d.fail.Load() {
				return syscall.EIO
			}
		}
		return nil
	}))
	return d
}

// GetDiskUsage implements vfs.FS.
func (d *disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: 1 << 40, TotalBytes: 1 << 41}, nil
}

// newDiskHub is newTestHub with a journal on a disk and a clock.
func newDiskHub(t testing.TB, d *disk, clock sched.Time) *testHub {
	t.Helper()
	r := newTestHubOn(t, Options{}, true)
	r.clock = clock
	if err := r.server.open(d, r.Protocol); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	return r
}

// end closes the journal once.
func (r *testHub) end() {
	if err := r.server.journal.Close(); err != nil {
		r.t.Error(err)
	}
}

const quoted = `"success"`
