//go:build invariants

package sim

import (
	"fmt"
	"net/url"
	"slices"

	"treadle/codec/admin"
)

// A worker over HTTP holds its jobs under leases, which end by themselves and survive the server. Each reserve has a
// Conn without a peer, which holds the jobs that the reserve was given. A hand-out passes no boundary that the
// ledger watches, so the ledger asks the server for all leased jobs, see seeLeases.

// Lease is the hold of a reserve on one job.
type Lease struct {
	conn  *Conn
	job   *Job
	run   *Run
	token string // empty until the worker reads the answer to its reserve
	group int    // the group of changes with the hand-out
	until int64  // Mono at which the lease ends, to the millisecond
	shown int64  // Wall of the end that the server shows

	reported  bool // the worker has reported the run
	unsure    bool // the run may have been reported, or the job removed
	forgotten bool // the lease ended while the server was down, or before
	expired   bool // the time of the lease passed
	removed   bool // the job was removed

	disk       certainty  // whether a crash leaves the lease
	ends       []leaseEnd // all ends that the lease has had, the present one last
	durableEnd int        // index in ends of the oldest end that a crash may leave
}

// leaseEnd is the end of a lease as the journal has it, and by Mono, which a clock that is set does not change.
type leaseEnd struct{ wall, length, mono int64 }

// lease returns the lease under which a job is held; nil: it is under none.
func (j *Job) lease() *Lease {
	if j.holder == nil {
		return nil
	}
	return j.holder.leases[j]
}

// over reports whether a lease has ended, or may have.
func (x *Lease) over() bool { return x.expired || x.reported || x.unsure || x.forgotten || x.removed }

// doubtLease notes that the lease of a job may end unseen.
func (j *Job) doubtLease() {
	if x := j.lease(); x != nil {
		x.unsure, x.disk = true, min(x.disk, maybe)
	}
}

// isLive reports whether a lease holds its job for sure.
func (l *Ledger) isLive(x *Lease) bool {
	return x.job.lease() == x && x.job.inServer != maybe && !x.over() && l.clock().Mono < x.until
}

// durable reports whether a job, and a lease of it, survives the server.
func (j *Job) durable() bool { return j.by == ofPeriodic || j.by == ofBeanstalk || j.by == ofFaktory }

// leased notes that a reserve, or a worker of Faktory, was given a job. until is the end of its lease by the wall
// clock, length is how long it is, or more.
func (l *Ledger) leased(c *Conn, j *Job, queue, name string, until, length int64) *Lease {
	l.isIn(j, queue)
	x := &Lease{conn: c, job: j, run: l.runBegun(c, j, queue), group: l.group(), until: l.leaseUntil(until), shown: until}
	c.runs, c.unreadRuns = nil, nil
	j.run = x.run
	x.ends = []leaseEnd{{until, length, x.until}}
	if j.durable() {
		x.disk = maybe
	}
	if !l.serving(c, j.queue) {
		l.trace.Failf("c%d is given %v of q%d, which it does not do", c.id, j, j.queue)
	}
	if most := l.clock().Wall + length; until > most || until <= l.clock().Wall {
		l.trace.Failf("c%d is given %v until %d, although it is %d", c.id, j, until, l.clock().Wall)
	}
	l.assigned(c, j, queue, name)
	c.leases[j] = x
	l.granted = append(l.granted, x)
	if c.reserve != nil {
		c.reserve.got++
	}
	return x
}

// leaseUntil returns the Mono at which a lease ends.
func (l *Ledger) leaseUntil(wall int64) int64 {
	now := l.clock()
	return roundUp(now.Mono + max(wall-now.Wall, 0))
}

// leasesExpired notes, when time has passed, the leases that have ended.
func (l *Ledger) leasesExpired() {
	for _, x := range l.granted {
		j := x.job
		if x.over() && !x.unsure || l.clock().Mono < x.until {
			continue
		}
		l.noteRemoved(x)
		if x.disk = min(x.disk, maybe); x.removed {
			continue
		}
		x.unsure = x.unsure || j.inServer == maybe // the job may have been removed
		if x.expired = true; j.lease() != x {
			continue
		}
		l.trace.Logf("the lease of %v ends", j)
		j.failures++
		if j.inServer == no || j.by == ofDisbatch { // its owner has left, or it has no second run
			l.end(j)
			continue
		}
		l.freed(j)
		j.forgetPlace()
	}
}

// noteRemoved notes the end of a lease if its job was removed.
func (l *Ledger) noteRemoved(x *Lease) {
	if j := x.job; !x.over() && j.inServer == no && j.lease() != x {
		x.removed, x.unsure = j.by != ofGloom, j.by == ofGloom // a Gloom job whose master has left runs on
	}
}

// seenJob is a job as the server shows it.
type seenJob struct {
	admin.JobDetails
	job  *Job
	conn *Conn // the reserve that holds it, see seeLeases
}

// seeJobs asks the server for all jobs that a filter means. A page ends early when the machine is slow.
func (s *Simulator) seeJobs(filter string) (all []seenJob) {
	for after := ""; ; {
		var page admin.Jobs
		s.get("/api/v1/jobs?limit=1000&filter="+url.QueryEscape(filter)+"&after="+after, &page)
		for _, one := range page.Jobs {
			seen := seenJob{}
			if !s.getIfThere("/api/v1/job?id="+one.ID, &seen.JobDetails) || seen.State != one.State { // a Tick has ended its run, and perhaps the job
				continue
			}
			if seen.Workload == nil {
				s.trace.Failf("%q of %q is shown with the bytes %q, want its workload as text", one.Name, one.Queue, seen.WorkloadBytes)
			}
			seen.job = s.ledger.jobOf([]byte(*seen.Workload), "a job that the server shows")
			all = append(all, seen)
		}
		if after = page.Next; after == "" {
			return all
		}
	}
}

// httpLeaser and faktoryWorker are in front of a connection's number in what the server calls the worker of a lease.
const httpLeaser, faktoryWorker = "http:c", "faktory c"

// seeLeases asks the server for all jobs that are leased to workers of some protocols.
func (s *Simulator) seeLeases(workers ...string) (all []seenJob) {
	for _, worker := range workers {
		for _, seen := range s.seeJobs(fmt.Sprintf("state:running worker:%q", worker)) {
			var number int
			if _, err := fmt.Sscanf(seen.Worker, worker+"%d", &number); err != nil {
				continue // only the job's earlier worker was one of these
			}
			if seen.conn = s.net.leaseHolders[number]; seen.conn == nil {
				s.trace.Failf("%q of %q is held by %s, which no worker is", seen.Name, seen.Queue, seen.Worker)
			}
			all = append(all, seen)
		}
	}
	return all
}

// lookAtReserves finds out which jobs the reserves were given that wait for the disk now.
func (s *Simulator) lookAtReserves() {
	s.adoptFetched()
	var fresh []*Conn
	for _, call := range s.net.http.open {
		if r := call.reserve; r != nil && !r.seen && call.peer != nil && !call.peer.Waits() {
			r.seen = true
			fresh = append(fresh, r.conn)
		}
	}
	if fresh == nil {
		return
	}
	for _, seen := range s.seeLeases(httpLeaser) {
		if seen.conn.leases[seen.job] == nil {
			s.ledger.leased(seen.conn, seen.job, seen.Queue, seen.Name, seen.Until, seen.conn.reserve.length)
		}
	}
	for _, c := range fresh {
		s.ledger.checkReserved(c)
	}
}

// auditLeases compares all leases of the server with the ledger.
func (s *Simulator) auditLeases() {
	there := map[*Lease]bool{}
	for _, seen := range s.seeLeases(httpLeaser, faktoryWorker) {
		x, j := seen.conn.leases[seen.job], seen.job
		if x != nil && x.unsure {
			if i := slices.IndexFunc(x.ends, func(e leaseEnd) bool { return e.wall == seen.Until }); i >= 0 {
				x.shown, x.until, x.expired = seen.Until, x.ends[i].mono, false
			}
		}
		if x == nil || x.over() && !x.unsure || seen.Until != x.shown {
			s.trace.Failf("%v: the server shows a lease of c%d until %d at %+v, want %+v", j, seen.conn.id, seen.Until, s.server.Now(), x)
		}
		if there[x] = true; j.holder == nil && (j.inServer == sure || j.by == ofGloom) { // that was in doubt
			j.holder, j.run, j.holderUnknown, x.unsure = x.conn, x.run, false, false
		}
	}
	for _, x := range s.ledger.granted {
		if s.ledger.isLive(x) && !there[x] {
			s.trace.Failf("%v: the server shows no lease, want that of c%d", x.job, x.conn.id)
		}
		if !there[x] && !x.over() && x.job.lease() != x { // that was in doubt
			x.unsure = true
		}
	}
}

// leasesCrashed notes that the server has ended.
func (l *Ledger) leasesCrashed() {
	for _, x := range l.granted {
		x.expired = x.expired || l.clock().Mono >= x.until
	}
}

// leasesRecovered compares the leases of a server that has started with the ledger.
func (s *Simulator) leasesRecovered() {
	now := s.server.Now()
	there := map[*Lease]bool{}
	for _, seen := range s.seeLeases(httpLeaser, faktoryWorker) {
		x, j := seen.conn.leases[seen.job], seen.job
		if x == nil || x.disk == no || j.inServer == no {
			s.trace.Failf("%v: the server shows a lease of c%d after the restart, want none", j, seen.conn.id)
		}
		end, earlier := x.endSeen(now.Wall, seen.Until), x
		for _, y := range s.ledger.granted { // the journal may have an earlier hold of the same worker
			if end == nil && y.conn == x.conn && y.job == j && y.disk != no {
				end, earlier = y.endSeen(now.Wall, seen.Until), y
			}
		}
		if end == nil {
			s.trace.Failf("the lease of %v: got the end %d after the restart at %d, want one of %v", j, seen.Until, now.Wall, x.ends[x.durableEnd:])
		}
		x, seen.conn.leases[j] = earlier, earlier
		there[x] = true
		x.reported, x.unsure, x.forgotten, x.expired, x.removed = false, false, false, false, false
		x.durableEnd, x.until, x.shown = 0, s.ledger.leaseUntil(seen.Until), seen.Until
		x.ends = []leaseEnd{{end.wall, end.length, x.until}} // the journal still has an earlier end
		j.inServer, j.holder, j.run, j.turn = sure, x.conn, x.run, s.ledger.turn
		s.trace.Logf("%v is held by c%d still", j, x.conn.id)
	}
	for _, x := range slices.Concat(s.ledger.granted, s.net.http.leases) {
		if there[x] {
			continue
		}
		if x.disk != no {
			x.job.record.schedKnown = false // the lease may have ended at the start
			x.job.failures++
		}
		mayBeOver := slices.ContainsFunc(x.ends[x.durableEnd:], func(e leaseEnd) bool { return e.wall <= now.Wall })
		if x.disk == sure && x.job.inServer == sure && !mayBeOver {
			s.trace.Failf("the lease of %v by c%d is not there after the restart: want it until one of %v", x.job, x.conn.id, x.ends[x.durableEnd:])
		}
		x.forgotten, x.disk = true, no
	}
	s.ledger.noteGivenUp()
}

// endSeen returns the end that a server shows at its start, of those of the lease that a crash may leave; nil: none.
func (x *Lease) endSeen(start, until int64) (last *leaseEnd) {
	for i := x.durableEnd; i < len(x.ends); i++ {
		if e := &x.ends[i]; min(e.wall, start+e.length) == until {
			last = e
		}
	}
	return last
}

// leasesCut notes that a job is replaced by a new one of its name. The leases of the earlier job are over.
func (l *Ledger) leasesCut(j *Job) {
	for _, x := range l.granted {
		x.removed = x.removed || x.job == j && !x.over()
	}
}

// leasesCommitted notes that everything is on disk.
func (l *Ledger) leasesCommitted() {
	for _, x := range l.granted {
		if l.noteRemoved(x); !x.unsure {
			x.durableEnd = len(x.ends) - 1
		}
		switch {
		case x.unsure || x.job.inServer == maybe:
		case x.job.durable() && l.isLive(x):
			x.disk = sure
		default:
			x.disk = no
		}
	}
	l.granted = slices.DeleteFunc(l.granted, func(x *Lease) bool { return x.disk == no && x.over() && (!x.unsure || x.expired) })
}
