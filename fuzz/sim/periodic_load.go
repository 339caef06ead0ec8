//go:build invariants

package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"treadle/codec/periodic"
	"treadle/fuzz/sim/disk"
	"treadle/loop"
)

// load sends a LOAD.
func (s *Simulator) load(c *Conn, jobs []*Job, at []int64) { s.loadAs(c, jobs, at, &loadEnd{}) }

// loadAs sends a LOAD with something behind its jobs. Each job is there when its own bytes are, unless the disk is
// full then.
func (s *Simulator) loadAs(c *Conn, jobs []*Job, at []int64, b *loadEnd) {
	args := binary.BigEndian.AppendUint64(nil, uint64(len(jobs)+b.more))
	r, fills := &Request{cmd: periodic.Load, loaded: jobs, silent: b.badSum}, s.ledger.fills
	var fronts []mark
	for i, j := range jobs {
		args = append(args, s.record(j, at[i])...)
		onArrival := func() {
			if fills == s.ledger.fills && !b.badSum {
				s.ledger.unlessFull(r, func() { s.ledger.submitted(j, at[i]) })
				return
			}
			r.doubtful, s.ledger.underWay = true, true // the jobs that the LOAD would replace are in doubt, too
			s.ledger.submitted(j, at[i])
			s.ledger.doubt(j)
		}
		fronts = append(fronts, mark{len(args), &Request{silent: true, job: j, onArrival: onArrival}})
	}
	r.onArrival = func() {
		if b.more != 0 {
			r.refused, r.doubtful = true, false
		}
	}
	start, args := len(c.outgoing), append(args, b.tail...)
	c.ask(r, args)
	if b.badSum {
		c.outgoing[start+sumAt] ^= 1
		c.garbled = true
	}
	last := c.marks[len(c.marks)-1]
	for i := range fronts {
		fronts[i].at += last.at - len(args)
	}
	c.marks = append(append(c.marks[:len(c.marks)-1], fronts...), last)
	s.trace.Logf("c%d loads %v at %d, %d more and %q, with a wrong sum: %v", c.id, jobs, at, b.more, b.tail, b.badSum)
}

// maxLoaded limits the jobs of a dump that are loaded at once.
const maxLoaded = 8

// loadDump loads some jobs of the last dump again, with workloads of their own.
func (s *Simulator) loadDump(c *Conn) {
	if s.ledger.lastDump == nil {
		return
	}
	all := s.ledger.parseDump(s.ledger.lastDump)
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b periodic.Job) int { return bytes.Compare(a.Workload, b.Workload) }) // a dump's order is the server's affair
	from := s.rng.IntN(len(all))
	var jobs []*Job
	var at []int64
	for _, old := range all[from:min(from+maxLoaded, len(all))] {
		j := s.ledger.newJob(ofPeriodic, s.ledger.jobOf(old.Workload, "a job of a dump").queue, string(old.Name))
		j.timeout, j.record.least, j.record.most = int64(old.Timeout)*1000, old.Count, old.Count
		jobs, at = append(jobs, j), append(at, old.SchedAt)
	}
	s.load(c, jobs, at)
}

// loadCopy loads a dump into another, empty server, which crashes as soon as it has acknowledged that. Its dump after a
// restart must have the same jobs.
func (s *Simulator) loadCopy() {
	s.settle()
	before := s.dump(s.server, s.ledger.setup.periodicVersion)
	if before == nil {
		return
	}
	settings := s.settings()
	settings.Periodic.CRC, settings.Admin.Rules = periodicVersions[s.rng.IntN(len(periodicVersions))], nil // a rule may refuse jobs
	in := loop.Environment{LogSize: s.ledger.setup.logSize, Now: s.server.Now(), Pick: func(n int) int { return s.rng.IntN(n) }}
	start := func(mem *vfs.MemFS) (*loop.Offline, *disk.Disk) {
		mounted := disk.New(mem)
		in.Disk = mounted
		o, err := loop.NewOfflineIn(settings, in)
		if err != nil {
			s.trace.Failf("another server does not start: %v", err)
		}
		return o, mounted
	}
	o, mounted := start(vfs.NewCrashableMem())
	v := s.probe(o)
	id := v.send(periodic.Load, before)
	o.Commit()
	if body := v.answer(id); len(body) != 1 || body[0] != byte(periodic.Success) {
		s.trace.Failf("a dump is loaded into an empty server, which answers %x", body)
	}
	left := mounted.AfterCrash(disk.Remains(s.rng.IntN(int(disk.RemainsKinds))), s.rng.Uint64())
	mounted.Abandon()
	o.Abandon()
	o, mounted = start(left)
	defer o.Abandon()
	defer mounted.Abandon()
	after := s.dump(o, settings.Periodic.CRC)
	sorted := func(body []byte) (lines []string) {
		for _, j := range s.ledger.parseDump(body) {
			lines = append(lines, fmt.Sprintf("%q %q %q at %d, count %d, time-out %d", j.Func, j.Name, j.Workload, j.SchedAt, j.Count, j.Timeout))
		}
		slices.Sort(lines)
		return lines
	}
	was, is := sorted(before), sorted(after)
	if !slices.Equal(was, is) {
		s.trace.Failf("a dump of\n%q is loaded into an empty server, whose dump is\n%q", was, is)
	}
	s.trace.Logf("a copy has %d jobs", len(is))
}
