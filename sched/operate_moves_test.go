package sched

import (
	"fmt"
	"testing"
)

// TestMovesBothWays: moves between two queues from several goroutines end, lose nothing and double nothing.
func TestMovesBothWays(t *testing.T) {
	x, kept := newOperated(t, 8)
	other := "b"
	for i := 0; x.s.ShardOf([]byte(other)) == x.s.ShardOf([]byte("a")); i++ {
		other = fmt.Sprint("b", i)
	}
	x.s.batch = 1 // as many locks as there may be
	const jobs = 300
	for i := range jobs {
		x.submit("a", fmt.Sprint("a", i))
		x.submit(other, fmt.Sprint("b", i))
	}
	done := make(chan int, 4)
	for g := range 4 {
		from, to := "a", other
		if g%2 == 1 {
			from, to = to, from
		}
		go func() {
			moved := 0
			for range 20 {
				var refs []JobRef
				x.s.Walk(Cursor{shard: x.s.ShardOf([]byte(from))}, jobs*3, func(j *Job) {
					if j.Queue == from {
						refs = append(refs, j.Ref)
					}
				})
				moved += x.s.ChangeJobs(x.now, refs, &JobChange{Verb: MoveJobs, Queue: to}, new(recorder), func(int, error) {})
			}
			done <- moved
		}()
	}
	moved := 0
	for range 4 {
		moved += <-done
	}
	if st := x.s.Stats(); st.Jobs != 2*jobs || int(st.Moved) != moved || moved < jobs {
		t.Errorf("%d jobs, %d moved, %d reported", st.Jobs, st.Moved, moved)
	}
	names := make(map[string]int)
	for _, j := range kept.joined()[0] {
		if j.Kind == KindJob {
			names[string(j.Name)]++
		}
	}
	if len(names) != 2*jobs {
		t.Errorf("the journal has %d names", len(names))
	}
	for name, n := range names {
		if n != 1 {
			t.Errorf("the journal has %s %d times", name, n)
		}
	}
	x.want()
}

// joinedJournal is a journal that knows which shards have joined changes under way.
type joinedJournal struct {
	memJournal
	open  []bool
	apart int // changes while fewer than two shards had
}

func (b *joinedJournal) Begin(shard int) { b.open[shard] = true }
func (b *joinedJournal) End(shard int)   { b.open[shard] = false }

func (b *joinedJournal) change(shard int) {
	n := 0
	for _, open := range b.open {
		n += oneIf(open)
	}
	b.apart += oneIf(n < min(2, len(b.open)) || !b.open[shard])
}

func (b *joinedJournal) Save(shard int, j *Saved) {
	b.change(shard)
	b.memJournal.Save(shard, j)
}

func (b *joinedJournal) Drop(shard int, seq uint64) {
	b.change(shard)
	b.memJournal.Drop(shard, seq)
}

// TestMoveSurvivesWhole: all that the journal learns of a move, by an operator or to a dead-letter queue, is joined.
func TestMoveSurvivesWhole(t *testing.T) {
	for _, shards := range []int{1, 2} {
		journal := &joinedJournal{open: make([]bool, shards)}
		for range shards {
			journal.memJournal = append(journal.memJournal, make(map[uint64]Saved))
		}
		x := newTestSched(t, Options{Shards: shards, Rules: operateRules, Journal: journal})
		x.under([3]string{"f", "retries", "0"})
		other := "q"
		for i := 0; shards > 1 && x.s.ShardOf([]byte(other)) == x.s.ShardOf([]byte("f")); i++ {
			other = fmt.Sprint("q", i)
		}
		p := x.peer("f")
		x.fails(p, "f", "dead")
		x.submit("f", "a")
		journal.apart = 0
		x.ok(x.change(x.refOf("f", "a"), JobChange{Verb: MoveJobs, Queue: other}))
		x.under([3]string{"f", "dead-letter", other})
		if st := x.s.Stats(); journal.apart > 0 || st.Moved != 2 {
			t.Errorf("%d shards: %d changes are not joined, %d jobs have moved", shards, journal.apart, st.Moved)
		}
	}
}

// TestLockTwo: goroutines that lock the same two shards in either order never wait for each other.
func TestLockTwo(t *testing.T) {
	x := newTestSched(t, Options{Shards: 2})
	a, b := &x.s.shards[0], &x.s.shards[1]
	done := make(chan bool)
	for g := range 2 {
		first, second := a, b
		if g == 1 {
			first, second = b, a
		}
		go func() {
			for range 100_000 {
				lockTwo(first, second)
				x.s.unlockTwo(x.now, first, second, new(recorder))
			}
			done <- true
		}()
	}
	<-done
	<-done
}
