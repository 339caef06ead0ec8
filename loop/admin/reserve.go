package admin

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"net/http"
	"sync"
	"time"
	"unicode/utf8"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Bounds of a reserve.
const (
	defaultLease = time.Minute
	// maxReserveQueues bounds the queues of a reserve: the server looks into each.
	maxReserveQueues = 100
	// maxReserveBytes bounds the workloads of an answer: the job that reaches it is the last.
	maxReserveBytes = 4 << 20
	// usualJobs is for how many jobs there is room from the first on.
	usualJobs = 128
)

// pendingReserve is a reserve that waits for jobs.
type pendingReserve struct {
	spaces  *protocol.Spaces
	arrived chan struct{} // holds a token after a job has come
	maxJobs int           // jobs that it asks for

	mu    sync.Mutex
	seen  int
	jobs  []codec.LeasedJob
	runs  []sched.Run
	bytes int // of the workloads
}

// deliverJob takes a job for a reserve. It runs under a shard's lock.
func (api *API) deliverJob(d *sched.Delivery) {
	p, ok := api.reserves.get(d.Tag)
	if !ok {
		return
	}
	p.mu.Lock()
	p.add(&d.Job, d.Effect == sched.Broadcast)
	p.mu.Unlock()
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// add copies a job as the worker sees it. A broadcast has no run. Jobs beyond maxReserveBytes are left out: they get no
// lease, and the end of the request releases them.
func (p *pendingReserve) add(j *sched.Job, broadcast bool) {
	if p.seen++; p.bytes >= maxReserveBytes {
		return
	}
	workload := j.Workload
	if asText := p.spaces[j.Space].AsText; asText != nil {
		workload = asText(nil, j)
	}
	if p.jobs == nil {
		p.jobs, p.runs = make([]codec.LeasedJob, 0, min(p.maxJobs, usualJobs)), make([]sched.Run, 0, min(p.maxJobs, usualJobs))
	}
	one := codec.LeasedJob{Priority: j.Priority, Broadcast: broadcast}
	if !p.spaces[j.Space].NoTimes {
		one.At = j.SchedAt
	}
	one.Queue, one.QueueBytes = codec.Name(protocol.Unescape(j.Queue))
	one.Name, one.NameBytes = codec.Name(string(j.Name))
	if utf8.Valid(workload) {
		text := string(workload)
		one.Workload = &text
	} else {
		one.WorkloadBytes = bytes.Clone(workload)
	}
	p.jobs, p.runs, p.bytes = append(p.jobs, one), append(p.runs, j.Run()), p.bytes+len(workload)
}

// count returns how many jobs have come, including jobs that were too many.
func (p *pendingReserve) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// full reports whether no further job is added.
func (p *pendingReserve) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes >= maxReserveBytes
}

// postReserve answers with jobs that the worker holds from now on.
func (api *API) postReserve(r *http.Request) (any, error) {
	var ask codec.Reserve
	if err := decodeBody(r, &ask); err != nil {
		return nil, err
	}
	queues, err := queuesOf(&ask)
	if err != nil {
		return nil, err
	}
	if ask.Jobs == 0 {
		ask.Jobs = 1
	}
	if ask.Jobs < 1 || ask.Jobs > sched.MaxRequestJobs {
		return nil, badf("jobs is a number from 1 to %d", sched.MaxRequestJobs)
	}
	if time.Duration(ask.Wait) > maxWait {
		return nil, badf("the wait of %v is longer than %v", time.Duration(ask.Wait), maxWait)
	}
	terms := sched.LeaseTerms{Worker: "http:" + r.RemoteAddr}
	if ask.Worker != "" {
		if terms.Worker = "http:" + ask.Worker; len(terms.Worker) > sched.MaxWorkerName {
			return nil, badf("the name of the worker is longer than %d bytes", sched.MaxWorkerName-len("http:"))
		}
	}
	if terms.For, err = leaseLength(ask.Lease); err != nil {
		return nil, err
	}
	return api.reserve(r.Context(), queues, &ask, terms)
}

// leaseLength returns the milliseconds of a lease.
func leaseLength(d codec.Duration) (int64, error) {
	if d == 0 {
		return defaultLease.Milliseconds(), nil
	}
	ms := time.Duration(d).Milliseconds()
	if ms < 1 || ms > sched.MaxLease {
		return 0, badf("a lease lasts from 1ms to %v", sched.MaxLease*time.Millisecond)
	}
	return ms, nil
}

// queuesOf returns the queues of a reserve.
func queuesOf(ask *codec.Reserve) (all [][]byte, err error) {
	for _, q := range ask.Queues {
		all = append(all, []byte(q))
	}
	all = append(all, ask.QueuesBytes...)
	if len(all) < 1 || len(all) > maxReserveQueues {
		return nil, badf("name from 1 to %d queues", maxReserveQueues)
	}
	for n, q := range all {
		if len(q) == 0 || len(q) > maxName {
			return nil, badf("the name of a queue has from 1 to %d bytes", maxName)
		}
		all[n] = protocol.Queue(q)
	}
	return all, nil
}

// reserve takes jobs, or waits for one, and leases what came.
func (api *API) reserve(ctx context.Context, queues [][]byte, ask *codec.Reserve, terms sched.LeaseTerms) (any, error) {
	s, sink := api.host.Sched(), api.host.NewSink()
	one := &pendingReserve{spaces: api.host.Spaces(), arrived: make(chan struct{}, 1), maxJobs: ask.Jobs}
	tag := api.reserves.add(one)
	p := s.NewRequestPeer(api.reserver.Session(), terms.Worker)
	defer sink.Wake()
	defer api.reserves.remove(tag)
	defer func() { s.Disconnect(api.host.Now(), p, sink) }()
	for _, q := range queues {
		if err := s.Watch(api.host.Now(), p, q, false, sink); err != nil {
			return nil, api.countRefused(err)
		}
	}
	if err := api.collect(ctx, p, tag, one, ask, sink); err != nil {
		return nil, err
	}
	one.mu.Lock()
	jobs, runs := one.jobs, one.runs
	answer := &leased{Leased: codec.Leased{Jobs: jobs[:0]}, ctx: ctx, api: api, size: one.bytes + len(jobs)*jobText}
	one.mu.Unlock()
	if len(runs) == 0 {
		return answer, nil
	}
	var secret [8]byte
	_, _ = rand.Read(secret[:]) // never fails
	terms.Secret = binary.LittleEndian.Uint64(secret[:])
	now := api.host.Now()
	answer.tokens = s.Grant(now, p, runs, terms)
	for n, token := range answer.tokens {
		switch {
		case token != (sched.Token{}):
			jobs[n].Token, jobs[n].Until = token.String(), now.Wall+terms.For
		case !jobs[n].Broadcast: // its run has ended
			continue
		}
		answer.Jobs = append(answer.Jobs, jobs[n])
	}
	if err := api.commit(); err != nil {
		return nil, err
	}
	return answer, nil
}

// collect has the scheduler hand out jobs for a reserve. It returns without any when none came in time.
func (api *API) collect(ctx context.Context, p *sched.Peer, tag uint64, one *pendingReserve, ask *codec.Reserve, sink protocol.Sink) error {
	if err := api.takeReady(p, tag, one, ask.Jobs, sink); err != nil || one.count() > 0 || ask.Wait == 0 {
		return err
	}
	s := api.host.Sched()
	if err := s.Reserve(api.host.Now(), p, tag, sink); err != nil {
		return api.countRefused(err)
	}
	for s.Flushed(api.host.Now(), p, 0, sink) {
	}
	sink.Wake()
	if !api.host.Wait(ctx, api.closed, one.arrived, time.Duration(ask.Wait)) {
		return nil
	}
	return api.takeReady(p, tag, one, ask.Jobs-1, sink)
}

// takeReady takes up to n jobs that are ready and waits until they are in the request.
func (api *API) takeReady(p *sched.Peer, tag uint64, one *pendingReserve, n int, sink protocol.Sink) error {
	want := one.count()
	for n > 0 {
		got, more, err := api.host.Sched().TryReserveUpTo(api.host.Now(), p, tag, n, sink)
		if err != nil {
			return api.countRefused(err)
		}
		n, want = n-got, want+got
		for one.count() < want {
			<-one.arrived
		}
		if !more || one.full() {
			return nil
		}
	}
	return nil
}

// countRefused counts what the scheduler refuses, and returns an error that says so.
func (api *API) countRefused(err error) error {
	why := protocol.ReasonOf(err)
	api.host.CountRefusal(Name, why)
	return &refusal{err, why}
}

// leased is an answer with leases, which end when it cannot be sent: the worker has gone.
type leased struct {
	codec.Leased
	ctx    context.Context
	api    *API
	tokens []sched.Token
	size   int // about as many bytes as the text of the answer
}

// jobText is about the size of a job's text in an answer beside its workload: one with short names.
const jobText = 192

// unsent gives back the jobs of an answer that could not be sent.
func (l *leased) unsent() {
	sink := l.api.host.NewSink()
	for _, t := range l.tokens {
		_ = l.api.host.Sched().ReleaseLeased(l.api.host.Now(), t, sink) // one that has ended is no loss
	}
	sink.Wake()
	l.api.host.FlushLater()
}
