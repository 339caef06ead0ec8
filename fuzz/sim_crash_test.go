//go:build invariants

package fuzz

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/loop"
)

// How a server dies, and how it is started on what is left of its disk.

// settings are the server's.
func (s *sim) settings() loop.Options {
	return loop.Options{
		Loops: 2, Shards: s.shards, PeriodicCRC: s.era, PeriodicGrab: s.grab, PeriodicShutdown: s.stops, MaxFrame: s.frame, GloomMaxFrame: s.frame, MaxOutbound: s.frame,
		Kts46: loop.Kts46Options{RestartAfter: s.restartAfter},
		Dwork: loop.DworkOptions{Stop: s.stopped, Complete: s.complete, Restart: s.restart, Remember: s.remember, Lease: s.lease},
	}
}

// start starts a server on a disk. Now and then something goes wrong with the disk meanwhile:
// then the server is started once more on what that has left.
func (s *sim) start(mem *vfs.MemFS, in loop.Surroundings) {
	in.SchedBatch = s.schedBatch
	in.Seed, in.LogSize, in.BatchSize, in.Pick = s.seed, s.logSize, s.batch, func(n int) int { return s.rng.IntN(n) }
	f, faulty := s.anyFault(), s.rng.IntN(3) == 0
	if faulty {
		mem = s.startBadly(mem, in, f)
	}
	s.disk = newSimDisk(mem)
	in.Disk = s.disk
	settings := s.settings()
	settings.Log = slog.New(hurries{s.disk})
	server, err := loop.NewOfflineIn(settings, in)
	if s.server = server; err != nil {
		s.server = nil
		s.fail("the server does not start: %v", err)
	}
	s.fill(s.full)
	s.began = s.server.Now().Wall
	s.wall = max(s.wall, s.began)
}

// startBadly starts a server on a disk with a fault, and returns what it leaves. What a crash
// has left is all on disk, so nothing that the ledger knows of depends on where the fault hits.
func (s *sim) startBadly(mem *vfs.MemFS, in loop.Surroundings, f *fault) *vfs.MemFS {
	disk := newSimDisk(mem)
	disk.fault.Store(f)
	in.Disk = disk
	server, err := loop.NewOfflineIn(s.settings(), in)
	if err != nil && !f.hit.Load() {
		s.fail("the server does not start: %v", err)
	}
	left := disk.afterFault(f)
	if err == nil {
		disk.letGo()
		server.Abandon()
	}
	return left
}

// logReads is about as many operations as it takes to read the logs at a start.
const logReads = 12

// anyFault is a fault anywhere, sooner rather than later. One of reading is in the logs for the
// most part: of all that is read they alone have what was acknowledged last.
func (s *sim) anyFault() *fault {
	f := &fault{kind: s.rng.IntN(faultKinds), keeps: 100 * s.rng.IntN(2)}
	left := s.rng.Int64N(1 << s.rng.IntN(9))
	if f.logs = f.kind == readError && s.rng.IntN(4) > 0; f.logs {
		left = s.rng.Int64N(logReads)
	}
	f.left.Store(left)
	return f
}

// letGo ends what a play has left running.
func (s *sim) letGo() {
	if s.server != nil {
		s.disk.letGo()
		s.server.Abandon()
	}
}

// crash ends the server's process and all connections, in the middle of a sync, because the
// disk fails or at rest, and starts another on what is left of the disk.
func (s *sim) crash() {
	s.settle()
	s.crashes++
	how, keeps, chance := s.rng.IntN(7), s.rng.IntN(remains), s.rng.Uint64()
	s.say("crash %d, %d", how, keeps)
	var left *vfs.MemFS
	switch how {
	case 0, 5, 6:
		s.commitSlowly()
		s.kts = s.ktsNext // nothing that came later
	case 1, 2:
		s.commitBadly()
	case 3:
		left = s.wear()
	}
	if left == nil {
		left = s.disk.afterCrash(keeps, chance)
	}
	s.letGo()
	s.startAgain(left)
}

// startAgain starts a server on a disk, a little later. Now and then the clock was set meanwhile.
func (s *sim) startAgain(left *vfs.MemFS) {
	now, down := s.server.Now(), time.Duration(s.rng.IntN(5000))*time.Millisecond
	if s.rng.IntN(4) == 0 {
		down = time.Duration(s.rng.IntN(7200)-3600) * time.Second
	}
	now.Wall += down.Milliseconds()
	now.Micros += down.Microseconds()
	s.say("another server starts after %v", down)
	s.crashed()
	s.start(left, loop.Surroundings{Now: now})
	s.recovered()
}

// commitBadly commits, and something goes wrong with the log. Then the server stops, and
// whoever would have been told that all is well is not.
func (s *sim) commitBadly() {
	f := &fault{kind: s.rng.IntN(powerLoss), logs: true}
	f.left.Store(s.rng.Int64N(5))
	s.disk.fault.Store(f)
	if s.server.Commit() && f.hit.Load() {
		s.fail("something has gone wrong with the log, %d, and the server goes on", f.kind)
	}
}

// wearing is how many groups a disk is worn with: enough to fill several logs when they are
// small.
const wearing = 30

// wear has the journal write and write until something goes wrong, anywhere, in a checkpoint
// too, and returns what that leaves. Meanwhile one setting changes and nothing else, and no
// more is noted of it than what was acknowledged: where the fault hits depends on the store's
// goroutines.
func (s *sim) wear() (left *vfs.MemFS) {
	s.commit()
	f, after := s.anyFault(), s.rng.Uint64()
	s.disk.fault.Store(f)
	v, k := s.visit(s.server), s.config[wornSetting]
	for going := true; going && len(k.values) < wearing; {
		id, acknowledged := v.set(k, k.now()+1)
		going = s.server.Commit()
		if v.answer(id) != nil {
			acknowledged()
		} else if going {
			s.fail("a CONFIG_SET is committed, and not answered")
		}
	}
	s.rng = rand.New(rand.NewPCG(after, 0)) // of what was drawn meanwhile, nobody knows how often
	return s.disk.afterFault(f)
}

// recovered is what everybody finds when the server is back.
func (s *sim) recovered() {
	s.endTurn()
	s.checkSettings(true)
	s.ktsCrashed()
	for _, w := range s.ktsPeers {
		w.waiting = nil // the connection has ended
	}
	if !s.audit() {
		s.fail("a dump is not answered")
	}
}
