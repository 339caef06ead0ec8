package sched

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The spaces of testRules: by the zero Rules, Owned, Durable, and Numbered.
const (
	plainSpace Space = iota
	ownedSpace
	durableSpace
	numberedSpace
)

var testRules = [MaxSpaces]Rules{
	ownedSpace:   {Global: true, Owned: true, Untimed: true, MaxFailures: 3},
	durableSpace: {Durable: true},

	numberedSpace: {Durable: true, Numbered: true},
}

// allVerbs are all verbs: those of the model's machine, and those that the model does not have.
var allVerbs = strings.Fields(`submit submit submit submit submit submit watch watch watch broadcast unwatch
	reserve reserve reserve reserve reserve try sleep finish finish finish fail delay remove drop flushed flushed
	forget pass pass tick tick timeout lock lock lock unlock locktime listen publish release held policy failed done request request token token
	return return bury renew kick number number number pause`)

var (
	randomQueues = []string{"f", "g", "h"}
	randomNames  = []string{"a", "b", "c", strings.Repeat("long", 64)}
	randomLocks  = []string{"x", "y"}
	randomSkills = []Capabilities{0, 0, NameOnly, LongNames, NameOnly | LongNames, LongNames | NoGrace | AutoDelete}
)

// memJournal is a Journal that keeps its records by shard and sequence.
type memJournal []map[uint64]Saved

func (b memJournal) Save(shard int, j *Saved) {
	k := *j
	k.Name, k.Workload = slices.Clone(j.Name), slices.Clone(j.Workload)
	k.Log, k.After, k.History, k.Result = slices.Clone(j.Log), slices.Clone(j.After), slices.Clone(j.History), slices.Clone(j.Result)
	b[shard][j.Ref.Seq] = k
}

func (b memJournal) Drop(shard int, seq uint64) { delete(b[shard], seq) }

func (memJournal) Begin(int) {}

func (memJournal) End(int) {}

// randomSched is a scheduler under random verbs of every kind.
type randomSched struct {
	t       *rapid.T
	s       *Scheduler
	journal memJournal
	rec     recorder
	now     Time
	peers   []*Peer
	refs    []Run
	tokens  []Token
	holder  map[Run]int
	lastID  SessionID
	tags    uint64
	last    uint64 // number
}

func newRandomSched(t *rapid.T, shards int) *randomSched {
	batch := rapid.SampledFrom([]int{0, 1, 3}).Draw(t, "batch")
	x := &randomSched{t: t, now: Time{Wall: 1_700_000_000_250}, holder: make(map[Run]int), journal: make(memJournal, shards)}
	for i := range x.journal {
		x.journal[i] = make(map[uint64]Saved)
	}
	x.s = New(Options{Shards: shards, Window: 600, Batch: batch, Rules: testRules, Journal: x.journal})
	for range randomSkills {
		x.lastID++
		x.peers = append(x.peers, x.s.NewPeer(x.lastID, randomSkills[x.lastID-1]))
	}
	return x
}

func (x *randomSched) n(label string, n int) int { return rapid.IntRange(0, n-1).Draw(x.t, label) }

// held draws a reference, mostly of a held job, and the peer that reports it, mostly its holder.
func (x *randomSched) held() (*Peer, Run) {
	if len(x.refs) == 0 {
		return x.peers[0], Run{}
	}
	ref := x.refs[len(x.refs)-1-x.n("ref", min(len(x.refs), 6))]
	if x.n("other", 8) == 0 {
		return x.peers[x.n("peer", len(x.peers))], ref
	}
	return x.peers[x.holder[ref]], ref
}

func (x *randomSched) verb() {
	s, now, sink := x.s, x.now, &x.rec
	queue, name := []byte(randomQueues[x.n("queue", len(randomQueues))]), []byte(randomNames[x.n("name", len(randomNames))])
	i := x.n("peer", len(x.peers))
	p := x.peers[i]
	switch verb := rapid.SampledFrom(allVerbs).Draw(x.t, "verb"); verb {
	case "submit":
		x.submit(queue, name, p)
	case "watch", "broadcast":
		_ = s.Watch(now, p, queue, verb == "broadcast", sink)
	case "unwatch":
		s.Unwatch(p, queue)
	case "reserve":
		_ = s.Reserve(now, p, uint64(x.n("tag", 4)), sink)
	case "try":
		_, _ = s.TryReserve(now, p, uint64(10+x.n("tag", 4)), sink)
	case "sleep":
		_ = s.Sleep(now, p, uint64(x.n("tag", 2)), sink)
	case "remove":
		s.Remove(now, Space(x.n("space", 3)), queue, name, sink)
	case "drop":
		s.Drop(queue)
	case "flushed":
		s.Flushed(now, p, []int{0, 0, 600}[x.n("unsent", 3)], sink)
	case "forget":
		s.Disconnect(now, p, sink)
		x.lastID++
		x.peers[i] = s.NewPeer(x.lastID, randomSkills[i])
	case "pass":
		x.now.Wall += int64(x.n("wall", 2500))
		x.now.Mono += int64(x.n("mono", 2500))
	case "tick":
		s.ticks(now, sink)
	case "timeout":
		s.SetTimeout(int64(x.n("ms", 3) * 1500))
	case "locktime":
		s.SetLockTimeout(int64(x.n("ms", 3) * 1500))
	case "listen":
		_ = s.Listen(p, Space(x.n("space", 3)), queue, name, 7)
	case "release":
		_ = s.ReleaseNewest(now, p, uint64(x.n("tag", 4)), sink)
	case "held":
		held := s.Held
		if x.n("ends it", 2) == 0 {
			held = func(p *Peer, queue, name []byte) (Run, bool) { return s.Report(now, p, queue, name, sink) }
		}
		if ref, ok := held(p, queue, name); ok && x.s.Finish(now, p, ref, nil, sink) != nil {
			x.t.Fatalf("%v is held and cannot be finished", ref)
		}
	case "request":
		x.request(queue)
	case "token":
		x.token()
	case "policy":
		x.policy()
	case "failed":
		x.failed(queue)
	case "kick":
		s.Kick(now, queue, 1+x.n("bound", 3), x.n("of failed", 2) == 0, sink)
	case "number":
		x.number(p)
	case "pause":
		_ = s.PauseFor(now, queue, int64(x.n("ms", 3000)))
	case "done":
		var seq uint64
		s.kept(x.now, string(queue), doneStates, func(k *JobView) { seq = cmp.Or(seq, k.Ref.Seq) })
		_ = s.changeKept(x.now, RemoveJobs, seq, &x.rec)
	default:
		x.report(verb)
	}
}

func (x *randomSched) report(verb string) {
	s, now, sink := x.s, x.now, &x.rec
	p, ref := x.held()
	lock := randomLocks[x.n("lock", len(randomLocks))]
	switch verb {
	case "finish":
		_ = s.Finish(now, p, ref, []byte("done"), sink)
	case "fail":
		_ = s.Fail(now, p, ref, nil, sink)
	case "delay":
		_ = s.Delay(now, p, ref, int64(x.n("delay", 4)), 1, sink)
	case "return":
		_ = s.Release(now, p, ref, int64(x.n("priority", 3))-1, int64(x.n("ms", 2500)), sink)
	case "bury":
		_ = s.Bury(now, p, ref, int64(x.n("priority", 3))-1, sink)
	case "renew":
		_ = s.Touch(now, p, ref)
	case "lock":
		_, _ = s.AcquireLock(now, p, ref, lock, x.n("count", 3), sink)
	case "unlock":
		_ = s.ReleaseLock(now, p, ref, lock, sink)
	case "publish":
		_, _ = s.Publish(p, ref, make([]byte, 300), 9, sink)
	}
}

func (x *randomSched) submit(queue, name []byte, p *Peer) {
	x.tags++
	j := Submission{
		Space: Space(x.n("space", 4)), Queue: queue, Name: name, Workload: make([]byte, x.n("workload", 150)),
		Priority: int64(x.n("priority", 2)), Timeout: int32(x.n("timeout", 3)),
	}
	switch later := x.n("later", 4) == 0; {
	case later && j.Space == numberedSpace:
		j.After = int64(x.n("after", 4000))
	case later:
		j.SchedAt = x.now.Wall/1000 + int64(x.n("at", 4)) - 1
	}
	if j.Space == ownedSpace || x.n("await", 4) == 0 {
		j.Await, j.Tag, j.OnFail = p, x.tags, x.n("onFail", 2) == 0
	}
	if len(name) > maxShort && j.Space != ownedSpace {
		j.Name = name[:maxShort]
	}
	_ = x.s.Submit(x.now, &j, &x.rec)
	x.last = max(x.last, j.Number)
}

// number is a verb with a number, mostly one of the last.
func (x *randomSched) number(p *Peer) {
	number := x.last - uint64(x.n("number", 12))
	switch x.n("verb", 4) {
	case 0:
		x.s.RemoveNumber(x.now, numberedSpace, number, &x.rec)
	case 1:
		x.s.KickNumber(x.now, numberedSpace, number, &x.rec)
	default:
		x.s.ReserveNumber(x.now, p, numberedSpace, number, 5, &x.rec)
	}
}

// note keeps the jobs that are handed out, and checks that the peer may have them.
func (x *randomSched) note() {
	for _, d := range x.rec.take() {
		if d.effect != Assign && d.effect != Broadcast {
			continue
		}
		i := slices.IndexFunc(x.peers, func(p *Peer) bool { return p.id == d.to })
		if i < 0 && d.tag == requestTag {
			continue
		}
		if i < 0 || len(d.job.name) > maxShort && randomSkills[i]&LongNames == 0 || d.effect == Broadcast && d.job.space == ownedSpace {
			x.t.Fatalf("peer %d of capabilities %v got %+v", i, randomSkills, d)
		}
		if d.effect == Assign {
			x.refs, x.holder[d.job.run] = append(x.refs, d.job.run), i
		}
	}
}

// durable returns the durable jobs of a scheduler as a journal must have them. When a ready job
// became due does not matter.
func (x *randomSched) durable(s *Scheduler) []string {
	var all []string
	for c, done := (Cursor{}), false; !done; {
		c, done = s.Walk(c, slabChunk, func(j *Job) {
			if testRules[j.Space].Durable {
				all = append(all, fmt.Sprint(j.Ref.Seq, j.Queue, " ", string(j.Name), len(j.Workload), j.SchedAt, max(j.Due, x.now.Wall), j.Priority, j.Count, j.Timeout))
			}
		})
	}
	for i := range s.shards {
		sh := &s.shards[i]
		for _, q := range sh.byName {
			if q.kept != nil {
				q.kept[keptName].jobs.eachFrom(firstKey, func(_ sortKey, job uint32) bool {
					if r := sh.slab.at(job); testRules[r.space].Durable {
						all = append(all, fmt.Sprint(r.seq, q.name, " ", string(sh.nameView(job)), r.size, r.due))
					}
					return true
				})
			}
		}
	}
	all = append(all, durableLeases(s)...)
	for _, queue := range randomQueues {
		s.kept(x.now, queue, failedStates|doneStates, func(f *JobView) {
			if testRules[f.Space].Durable {
				all = append(all, fmt.Sprint(f.Ref.Seq, queue, " ", string(f.Name), len(f.Workload), f.State, f.Since, f.Priority, f.Count, f.Timeout, attempts(f.History), f.Result != nil, string(f.Result)))
			}
		})
	}
	slices.Sort(all)
	return all
}

// restored returns a scheduler made from the journal alone.
func (x *randomSched) restored() *Scheduler {
	var saved []Saved
	for _, shard := range x.journal {
		saved = slices.AppendSeq(saved, maps.Values(shard))
	}
	slices.SortFunc(saved, func(a, b Saved) int { return cmp.Compare(a.Ref.Seq, b.Ref.Seq) })
	s := New(Options{Shards: 2, Rules: testRules, Journal: memJournal{{}, {}}})
	for i := range saved {
		if err := s.Restore(x.now, &saved[i]); err != nil {
			x.t.Fatalf("%+v: %v", saved[i], err)
		}
	}
	return s
}

// compare compares the journal's records with the scheduler's durable jobs.
func (x *randomSched) compare() {
	s := x.restored()
	if err := s.check(); err != nil {
		x.t.Fatal("restored:", err)
	}
	if got, want := x.durable(s), x.durable(x.s); !slices.Equal(got, want) {
		x.t.Fatalf("restored %q, want %q", got, want)
	}
	if err := x.s.checkListings(x.now, 1+x.n("page", 3), []int{1, 5, 256}[x.n("steps", 3)]); err != nil {
		x.t.Fatal(err)
	}
}

// TestRandomVerbs checks that after any sequence of verbs of every kind, over jobs of every kind
// and peers of every skill, all structures agree, no peer waits beside a ready job, and the journal
// restores the same durable jobs.
func TestRandomVerbs(t *testing.T) {
	for _, shards := range []int{1, 3} {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				x := newRandomSched(t, shards)
				t.Repeat(map[string]func(*rapid.T){
					"verbs": func(t *rapid.T) {
						x.t = t
						for range 5 {
							x.verb()
							x.note()
							if err := x.s.check(); err != nil {
								t.Fatal(err)
							}
						}
						x.compare()
					},
				})
			})
		})
	}
}

// randomPolicies are rules; a few hold at a time.
var randomPolicies = []PolicyRule{
	{"f", FromFile, map[string]string{"retries": "1", "backoff": "1s..3s x2 ~50%", "keep-failed": "2, 5s"}},
	{"f", FromRunTime, map[string]string{"dead-letter": "g"}},
	{"g", FromFile, map[string]string{"retries": "0", "dead-letter": "f"}},
	{"g", FromRunTime, map[string]string{"concurrency": "1"}},
	{"h", FromFile, map[string]string{"rate": "1/s burst 2", "retries": "2", "keep-failed": "0"}},
	{"*", FromRunTime, map[string]string{"paused": "hand-out"}},
	{"?", FromFile, map[string]string{"max-jobs": "2", "max-bytes": "300", "max-payload": "20"}},
	{"?", FromRunTime, map[string]string{"paused": "submits", "backoff": "2s"}},
	{"f*", FromFile, map[string]string{"job-ttl": "2s", "keep-done": "2, 4s"}},
	{"g*", FromFile, map[string]string{"job-ttl": "1s", "keep-results": "1", "keep-done": "5s"}},
	{"h*", FromFile, map[string]string{"keep-results": "2, 3s"}},
	{"*", FromFile, map[string]string{"unique-for": "3s"}},
	{"f**", FromFile, map[string]string{"key": "name before ong", "fair": "key", "weights": "a=2"}},
	{"f*", FromRunTime, map[string]string{"key": "json id", "fair": "no", "key-concurrency": "1"}},
	{"g**", FromFile, map[string]string{"key": "name before b", "key-concurrency": "1"}},
	{"g*", FromRunTime, map[string]string{"key": "name before b", "key-concurrency": "2", "fair": "key"}},
	{"h*", FromRunTime, map[string]string{"key": "name before ong", "key-concurrency": "1", "fair": "key"}},
}

// policy gives the queues other policies.
func (x *randomSched) policy() {
	var rules []PolicyRule
	for i := range randomPolicies {
		if x.n("holds", 3) == 0 {
			rules = append(rules, randomPolicies[i])
		}
	}
	table, err := NewPolicies(rules)
	if err != nil {
		x.t.Fatal(err)
	}
	x.s.SetPolicies(table)
}

// failed retries or removes the first failed job of a queue.
func (x *randomSched) failed(queue []byte) {
	var seq uint64
	x.s.kept(x.now, string(queue), failedStates, func(f *JobView) { seq = cmp.Or(seq, f.Ref.Seq) })
	verb := RemoveJobs
	if x.n("retry", 2) == 0 {
		verb = RetryJobs
	}
	_ = x.s.changeKept(x.now, verb, seq, &x.rec)
}
