//go:build invariants

package sim

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/fuzz/sim/disk"
	"treadle/fuzz/sim/play"
	"treadle/loop"
)

// A server crashes, and is started on what is left of its disk.

// settings are the options of the server.
func (s *Simulator) settings() loop.Options {
	return loop.Options{
		Loops: 2, Shards: s.ledger.setup.shards,
		Periodic: loop.PeriodicOptions{CRC: s.ledger.setup.periodicVersion, Grab: s.ledger.setup.periodicGrab, Shutdown: s.ledger.setup.periodicShutdown},
		MaxFrame: s.ledger.setup.frame, Gloom: loop.GloomOptions{MaxFrame: s.ledger.setup.frame}, MaxOutbound: s.ledger.setup.frame,
		Kts46: loop.Kts46Options{RestartAfter: s.ledger.setup.kts46RestartAfter}, Admin: loop.AdminOptions{Rules: s.ledger.policy.policyFile()},
		Dwork: loop.DworkOptions{Stop: s.ledger.setup.dworkStop, Complete: s.ledger.setup.dworkComplete, Restart: s.ledger.setup.dworkRestart,
			Remember: s.ledger.setup.dworkRemember, Lease: s.ledger.setup.dworkLease},
	}
}

// firstRun returns the number from which a server counts its runs. It is above all numbers of the previous server. The
// distance lets the scheduler remember the ended leases of both.
func (s *Simulator) firstRun() uint64 { return uint64(s.serverEnds+1)<<32 + uint64(s.serverEnds)<<14 }

// start starts a server on a disk. In one case of three the disk has a fault during a first start, and the server is
// started once more on what that has left.
func (s *Simulator) start(mem *vfs.MemFS, in loop.Environment) {
	in.SchedBatch, in.FirstRun = s.ledger.setup.schedBatch, s.firstRun()
	in.LogSize, in.BatchSize, in.Pick = s.ledger.setup.logSize, s.ledger.setup.batch, func(n int) int { return s.rng.IntN(n) }
	f, faulty := s.drawFault(), s.rng.IntN(3) == 0
	if faulty {
		mem = s.startBadly(mem, in, f)
	}
	s.ledger.disk = disk.New(mem)
	in.Disk = s.ledger.disk
	settings := s.settings()
	settings.Log = slog.New(s.ledger.disk.LogHandler())
	server, err := loop.NewOfflineIn(settings, in)
	if s.server = server; err != nil {
		s.server = nil
		s.trace.Failf("the server does not start on a disk without faults: %v", err)
	}
	s.ledger.clock, s.ledger.policy.clock = server.Now, server.Now
	s.ledger.policy.lockTimeout = func() int64 { return 1000 * int64(s.ledger.config[lockTimeoutSetting].now()) }
	s.fill(s.ledger.full)
	s.ledger.began = s.server.Now().Wall
	s.ledger.wall = max(s.ledger.wall, s.ledger.began)
}

// startBadly starts a server on a disk with a fault, and returns the disk as the fault leaves it. Everything on the
// disk is synced, so nothing that the ledger knows depends on where the fault hits.
func (s *Simulator) startBadly(mem *vfs.MemFS, in loop.Environment, f *disk.Fault) *vfs.MemFS {
	mounted := disk.New(mem)
	mounted.InjectFault(f)
	in.Disk = mounted
	server, err := loop.NewOfflineIn(s.settings(), in)
	if err != nil && !f.Hit() {
		s.trace.Failf("the server does not start on a disk without faults: %v", err)
	}
	left := mounted.AfterFault(f)
	if err == nil {
		mounted.Abandon()
		server.Abandon()
	}
	return left
}

// logReads is about the number of operations that reading the logs at a start takes.
const logReads = 12

// drawFault draws a fault, sooner rather than later. Read errors hit the logs for the most part, because only they have
// the changes that were acknowledged last.
func (s *Simulator) drawFault() *disk.Fault {
	f := &disk.Fault{Kind: disk.FaultKind(s.rng.IntN(int(disk.FaultKinds))), KeepPercent: 100 * s.rng.IntN(2)}
	left := s.rng.Int64N(1 << s.rng.IntN(9))
	if f.Logs = f.Kind == disk.ReadError && s.rng.IntN(4) > 0; f.Logs {
		left = s.rng.Int64N(logReads)
	}
	return f.Skip(left)
}

// abandon ends the server's goroutines after a play.
func (s *Simulator) abandon() {
	if s.server != nil {
		s.ledger.disk.Abandon()
		s.server.Abandon()
	}
}

// processEnd is how a server's process ends.
type processEnd string

const (
	endsInSync   processEnd = "in the middle of a sync"
	endsByFault  processEnd = "by a fault of the disk"
	endsWorn     processEnd = "by a fault after much writing"
	endsSuddenly processEnd = "at rest"
)

// endings has endsInSync twice: one row of its whole weight in the place of the first would change the play of each
// seed.
var endings = play.NewTable(play.Of(1, endsInSync), play.Of(2, endsByFault), play.Of(1, endsWorn), play.Of(1, endsSuddenly), play.Of(2, endsInSync))

// crash ends the server's process, and with it all connections: in the middle of a sync, by a disk error, or at rest.
// Another server starts on what is left of the disk.
func (s *Simulator) crash() {
	s.settle()
	how, keeps, chance := endings.Draw(s.rng), disk.Remains(s.rng.IntN(int(disk.RemainsKinds))), s.rng.Uint64()
	s.trace.Logf("crash %s, %d", how, keeps)
	if how == endsWorn {
		s.commit()
	}
	s.serverEnds++ // calls over HTTP have no answers from here on
	var left *vfs.MemFS
	switch how {
	case endsInSync:
		s.commitSlowly()
		s.ledger.kts = s.ledger.kts46Saved.next // nothing that came later
	case endsByFault:
		s.commitBadly()
	case endsWorn:
		left = s.wear()
	}
	if left == nil {
		left = s.ledger.disk.AfterCrash(keeps, chance)
	}
	s.abandon()
	s.startAgain(left)
}

// startAgain starts a server on a disk, a little later. In one case of four the clock was set meanwhile.
func (s *Simulator) startAgain(left *vfs.MemFS) {
	now, down := s.server.Now(), time.Duration(s.rng.IntN(5000))*time.Millisecond
	if s.rng.IntN(4) == 0 {
		down = time.Duration(s.rng.IntN(7200)-3600) * time.Second
	}
	now.Wall += down.Milliseconds()
	now.WallMicros += down.Microseconds()
	s.trace.Logf("another server starts after %v", down)
	s.ledger.crashed()
	s.start(left, loop.Environment{Now: now})
	s.recovered()
}

// commitBadly commits with a fault in the log. The server must stop, and acknowledge nothing.
func (s *Simulator) commitBadly() {
	f := (&disk.Fault{Kind: disk.FaultKind(s.rng.IntN(int(disk.PowerLoss))), Logs: true}).Skip(s.rng.Int64N(5))
	s.ledger.disk.InjectFault(f)
	if s.server.Commit() && f.Hit() {
		s.trace.Failf("a commit succeeds, although the log had a fault of kind %d: want the server stopped", f.Kind)
	}
}

// wearing is the number of groups written to wear a disk: enough to fill several small logs.
const wearing = 30

// wear writes to the journal, on which all is committed, until a fault hits, in a checkpoint too. It returns what is
// left of the disk. Only one setting changes meanwhile, and the ledger notes no more of it than what was acknowledged,
// because the goroutines of the store decide where the fault hits.
func (s *Simulator) wear() (left *vfs.MemFS) {
	f, after := s.drawFault(), s.rng.Uint64()
	s.ledger.disk.InjectFault(f)
	v, k := s.probe(s.server), s.ledger.config[wornSetting]
	for going := true; going && len(k.values) < wearing; {
		id, acknowledged := v.set(k, k.now()+1)
		going = s.server.Commit()
		if v.answer(id) != nil {
			acknowledged()
		} else if going {
			s.trace.Failf("a CONFIG_SET has no answer, although it is committed")
		}
	}
	s.rng = rand.New(rand.NewPCG(after, 0)) // how many numbers were drawn until the fault depends on the journal's goroutines
	return s.ledger.disk.AfterFault(f)
}

// recovered compares the server with the ledger after a restart.
func (s *Simulator) recovered() {
	s.leasesRecovered()
	s.changesRecovered()
	s.ledger.endTurn()
	s.checkSettings(true)
	s.kts46Crashed()
	for _, w := range s.net.kts.peers {
		w.waiting = nil // the connection has ended
	}
	if !s.audit() {
		s.trace.Failf("after a restart: a DUMP has no answer: want one")
	}
	s.policyRecovered()
	s.cronLook()
}
