//go:build invariants

package sim

import (
	"fmt"
	"slices"
	"time"

	"treadle/codec/admin"
)

// Workers over HTTP ask for jobs of several queues at once, and hold them under leases.

// reserve is what a worker over HTTP has asked for.
type reserve struct {
	conn   *Conn // holder of the jobs that the reserve was given
	most   int   // largest number of jobs
	length int64 // milliseconds of each lease
	seen   bool  // the hand-out is complete, and the ledger knows its jobs
	got    int   // number of jobs that the reserve was given
}

// leaseLengths are the lengths of leases that workers ask for. Some leases outlive a server.
var leaseLengths = []time.Duration{3 * time.Second, 15 * time.Second, 40 * time.Second, 60 * time.Second}

// maxReserved is the largest number of jobs that a worker asks for.
const maxReserved = 3

// httpReserve lets a worker ask for jobs.
func (s *Simulator) httpReserve() {
	s.connsMade++
	c := &Conn{id: s.connsMade, peerKind: httpWorker, leaseConn: leaseConn{leases: map[*Job]*Lease{}}}
	length := leaseLengths[s.rng.IntN(len(leaseLengths))]
	c.reserve = &reserve{conn: c, most: 1 + s.rng.IntN(maxReserved), length: length.Milliseconds()}
	sent := &admin.Reserve{Jobs: c.reserve.most, Lease: admin.Duration(length), Worker: fmt.Sprintf("c%d", c.id)}
	if s.rng.IntN(3) > 0 {
		sent.Wait = admin.Duration(time.Duration(1+s.rng.IntN(20_000)) * time.Millisecond)
	}
	for _, queue := range jobQueues {
		if s.rng.IntN(2) == 0 || queue == graphQueue && len(sent.Queues) == 0 {
			c.servedQueues[queue] = true
			sent.Queues = append(sent.Queues, s.ledger.queues[queue])
		}
	}
	s.net.leaseHolders[c.id] = c
	call := &httpCall{path: "/api/v1/reserve", kind: jsonBody, body: s.httpBody(sent), reserve: c.reserve}
	call.onAnswer = func(status int, all []byte) { s.ledger.httpReserved(call, status, all) }
	s.trace.Logf("c%d asks over HTTP for %d jobs of %v, for leases of %v, and waits for %v", c.id, sent.Jobs, c.servedQueues, length, time.Duration(sent.Wait))
	s.httpAsk(call)
}

// httpReserved checks the answer to a reserve. The worker knows its tokens then.
func (l *Ledger) httpReserved(call *httpCall, status int, all []byte) {
	var answer admin.Leased
	l.httpRead(call, status, all, &answer)
	c := call.reserve.conn
	l.trace.Logf("h%d is answered with %d jobs", call.number, len(answer.Jobs))
	for _, seen := range answer.Jobs {
		if seen.Workload == nil || seen.Token == "" {
			l.trace.Failf("h%d: got %q, want jobs with their workloads as text and their tokens", call.number, all)
		}
		j := l.exactJobOf([]byte(*seen.Workload), "a job over HTTP")
		x := c.leases[j]
		if x == nil && call.reserve.seen { // the lease ended in the turn in which it began
			x = &Lease{conn: c, job: j, run: l.runBegun(c, j, seen.Queue), unsure: true, until: l.leaseUntil(seen.Until)}
			c.runs, c.unreadRuns = nil, nil
			if j.inServer == sure && j.turn < call.turn {
				l.trace.Failf("h%d is told of a lease of %v, which no worker had", call.number, j)
			}
		} else if x == nil { // nothing had to be synced
			x = l.leased(c, j, seen.Queue, seen.Name, seen.Until, c.reserve.length)
		}
		if x.token != "" || seen.Queue != l.queues[x.run.queue] || !l.hasName(j, seen.Name) || len(x.ends) > 0 && seen.Until != x.ends[0].wall {
			l.trace.Failf("h%d is given %v as %q of %q until %d, twice or not as it was leased", call.number, j, seen.Name, seen.Queue, seen.Until)
		}
		x.token = seen.Token
		l.leaseAcknowledged(call, x)
		l.net.http.leases = append(l.net.http.leases, x)
	}
	if !call.reserve.seen {
		call.reserve.seen = true
		l.checkReserved(c)
	}
}

// leaseAcknowledged notes that a worker was told of a lease: the lease is on disk, with its job.
func (l *Ledger) leaseAcknowledged(call *httpCall, x *Lease) {
	if x.job.durable() {
		l.checkOnDisk(x.group, "h%d is told of the lease of %v", call.number, x.job)
	}
	if l.isLive(x) && x.job.durable() {
		x.disk = sure
		if x.job.inServer == sure {
			x.job.onDisk = sure
		}
	}
}

// checkReserved checks that a reserve which was given jobs, or none, was given all that it could.
func (l *Ledger) checkReserved(c *Conn) {
	r := c.reserve
	if r.got > r.most {
		l.trace.Failf("c%d is given %[3]d jobs, want %[2]d at most", c.id, r.most, r.got)
	}
	if j := l.readyJob(c); j != nil && r.got < r.most && !l.underWay && !l.stopping {
		l.trace.Failf("c%d asked for %d jobs, got %d, although %v is ready for it", c.id, r.most, r.got, j)
	}
}

// reservesWait reports whether a worker over HTTP waits for jobs.
func (l *Ledger) reservesWait() bool {
	return slices.ContainsFunc(l.net.http.open, func(call *httpCall) bool { return call.reserve != nil && !call.reserve.seen })
}

// checkReservesIdle checks, at the end of a turn, that no worker over HTTP waits while a job is ready for it.
func (l *Ledger) checkReservesIdle() {
	for _, call := range l.net.http.open {
		if call.reserve == nil || call.hungUp || call.turn >= l.turn || !call.peer.Waits() {
			continue
		}
		if j := l.readyJob(call.reserve.conn); j != nil {
			l.trace.Failf("h%d waits for jobs, although %v of q%d is ready for it", call.number, j, j.queue)
		}
	}
}

// httpWorkers counts what a queue has as workers over HTTP: the reserves without an answer, and all leased jobs as one.
// unsure is one if it is not known whether a job is leased.
func (l *Ledger) httpWorkers(queue int) (n, unsure int) {
	for _, call := range l.net.http.open {
		n += oneIf(call.reserve != nil && call.reserve.conn.servedQueues[queue])
	}
	for _, x := range l.granted {
		switch {
		case x.run.queue != queue:
		case l.isLive(x):
			return n + 1, 0
		case x.unsure && !x.expired || x.job.inServer != no && !x.over():
			unsure = 1
		}
	}
	return n, unsure
}

// hungUp notes that the server had an answer with jobs for a worker that has hung up: they are ready again, and have
// not failed. The commit that the answer has waited for has them leased still.
func (l *Ledger) hungUp(r *reserve) {
	for _, x := range l.granted {
		if x.conn != r.conn || x.over() {
			continue
		}
		x.reported, x.unsure, x.disk = true, true, min(x.disk, maybe)
		if x.job.lease() == x {
			l.released(x.conn, heldJob{job: x.job, run: x.run})
			x.job.record.schedKnown = false
		}
	}
}

// released notes that a worker has given a job back unstarted.
func (l *Ledger) released(c *Conn, h heldJob) {
	j := h.job
	l.trace.Logf("c%d gives %v back", c.id, j)
	if l.freed(j); j.inServer != no { // else its owner has left
		l.dueNow(j)
	}
}

// hasName reports whether a job has a name in the server, which may have made it.
func (l *Ledger) hasName(j *Job, name string) bool {
	if j.nameless {
		j.name, j.nameless = name, false
		l.names[j.key()] = append(l.names[j.key()], j)
	}
	return j.name == name
}
