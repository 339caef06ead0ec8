package sched

// topic names a job whose data listeners receive. The job need not exist yet.
type topic struct {
	space       Space
	queue, name string
}

// owedProceed is a Proceed that a stalled publisher waits for.
type owedProceed struct {
	to  SessionID
	tag uint64
}

// Listen subscribes the peer to the data that the workers of a job publish. The data arrives as
// Chunks under tag until an End. It returns ErrNoWorker when no peer serves the queue.
func (s *Scheduler) Listen(p *Peer, space Space, queueName, name []byte, tag uint64) error {
	sh := s.shardOf(queueName)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	q := sh.byName[string(queueName)]
	if q == nil || q.workers == 0 {
		return ErrNoWorker
	}
	t := topic{space, q.name, string(name)}
	if len(sh.topics[t]) >= MaxAwaits {
		return ErrAwaits
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.topics) >= MaxAwaits && !p.topics[t] {
		return ErrAwaits
	}
	if !p.charge(t.cost()) {
		return errQuota
	}
	if p.topics == nil {
		p.topics = make(map[topic]bool)
	}
	p.topics[t] = true
	sh.topics[t] = append(sh.topics[t], await{peer: p, tag: tag})
	return nil
}

// Publish sends data from the holder of a job to its listeners. wait reports whether a listener reads too slowly. The
// publisher receives a Proceed under tag when this listener has caught up.
func (s *Scheduler) Publish(p *Peer, run Run, data []byte, tag uint64, sink Sink) (wait bool, err error) {
	sh, err := s.lockShard(run.Shard)
	if err != nil {
		return false, err
	}
	defer sh.mu.Unlock()
	r, err := sh.findHeld(p, run)
	if err != nil {
		sh.counters.Stale++
		return false, err
	}
	wait, listeners := sh.publish(r, data, &owedProceed{p.id, tag}, sink)
	p.cost += listeners
	return wait, nil
}

// publish sends data to the listeners of a reserved job, and returns their number. The first listener that reads too
// slowly keeps owed, unless owed is nil.
func (sh *shard) publish(r *record, data []byte, owed *owedProceed, sink Sink) (wait bool, listeners int) {
	if len(sh.topics) == 0 {
		return false, 0
	}
	name, _ := unpack(sh.arena.view(r.bytes, int(r.size)))
	all := sh.topics[topic{r.space, sh.queueOf(r).name, string(name)}]
	for _, a := range all {
		if a.peer.addUnsent(len(data), owed) {
			wait, owed = true, nil
		}
		sh.out = Delivery{To: a.peer.id, Tag: a.tag, Effect: Chunk, Data: data}
		sink.Deliver(&sh.out)
	}
	if len(data) >= ownChunk {
		sh.out.Data = nil // the caller owns it
	}
	return wait, len(all)
}

// addUnsent adds n to the peer's unsent bytes. When they reach the peer's window, it returns true and keeps owed,
// unless owed is nil, until the peer has caught up.
func (p *Peer) addUnsent(n int, owed *owedProceed) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsent += n
	if p.unsent < p.window {
		return false
	}
	if owed != nil {
		p.stalled = append(p.stalled, *owed)
	}
	return true
}

// proceed sends stalled publishers their Proceed.
func proceed(stalled []owedProceed, sink Sink) {
	for _, a := range stalled {
		sink.Deliver(&Delivery{To: a.to, Tag: a.tag, Effect: Proceed})
	}
}

// endTopic tells a job's listeners that it has ended.
func (sh *shard) endTopic(t topic, sink Sink) {
	for _, a := range sh.topics[t] {
		a.peer.mu.Lock()
		delete(a.peer.topics, t)
		a.peer.refund(t.cost())
		a.peer.mu.Unlock()
		sh.out = Delivery{To: a.peer.id, Tag: a.tag, Effect: End}
		sink.Deliver(&sh.out)
	}
	delete(sh.topics, t)
}

// forgetTopic ends a peer's subscription to a topic. It returns the steps that it took.
func (sh *shard) forgetTopic(p *Peer, t topic) int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	kept, done := sh.topics[t][:0], 1+len(sh.topics[t])
	sh.countSteps(done)
	for _, a := range sh.topics[t] {
		if a.peer != p {
			kept = append(kept, a)
		}
	}
	if len(kept) == 0 {
		delete(sh.topics, t)
	} else {
		sh.topics[t] = kept
	}
	return done
}
