package journal

import (
	"encoding/binary"
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// TestIndexAgainstMap compares the index with a map for any additions, removals and clears, at
// every size.
func TestIndexAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		model := map[uint64]int{}
		// Keys are dense, far apart, or apart by a power of two, as the Seqs of one shard of many
		// are.
		step := rapid.SampledFrom([]uint64{1, 16, 1 << 20, 1 << 48}).Draw(t, "step")
		seqs := rapid.Map(rapid.Uint64Range(0, 400), func(n uint64) uint64 { return 1 + n*step })
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				seq, at, fresh := seqs.Draw(t, "seq"), rapid.IntRange(0, atMask).Draw(t, "at"), rapid.Bool().Draw(t, "fresh")
				e := x.find(seq)
				if _, have := model[seq]; have != (e != nil) {
					t.Fatalf("%d is found: %v, is there: %v", seq, e != nil, have)
				}
				if e == nil {
					e = x.add(seq)
				}
				e.set(at, fresh)
				if e.offset() != at || e.fresh() != fresh {
					t.Fatalf("set %d %v, reads %d %v", at, fresh, e.offset(), e.fresh())
				}
				model[seq] = at
			},
			"remove": func(t *rapid.T) {
				if seq := seqs.Draw(t, "seq"); x.find(seq) != nil {
					x.remove(seq)
					delete(model, seq)
				}
			},
			"clear": func(*rapid.T) {
				x.clear()
				x.shrink()
				clear(model)
			},
			"old": func(*rapid.T) { x.generation = max(x.generation, 1); skipGenerations(&x) },
			"": func(t *rapid.T) {
				if x.count != len(model) {
					t.Fatalf("%d entries, %d are there", x.count, len(model))
				}
				for seq, at := range model {
					if e := x.find(seq); e == nil || e.offset() != at {
						t.Fatalf("%d is not at %d: %+v", seq, at, e)
					}
				}
			},
		})
	})
}

// skipGenerations brings an empty index to the end of its generations.
func skipGenerations(x *index) {
	if x.count == 0 {
		x.generation = generations - 1
	}
}

// TestIndexShrinks checks that a table that was large once is freed.
func TestIndexShrinks(t *testing.T) {
	var x index
	for seq := range uint64(100_000) {
		x.add(seq + 1)
	}
	for range 100 {
		x.clear()
		x.shrink()
		x.add(1)
	}
	if len(x.entries) > 16*minEntries {
		t.Fatalf("%d entries for one", len(x.entries))
	}
}

// stored is the content of a store, the jobs' revisions.
type stored map[uint64]int64

// commit applies a group's batches to the store and returns the number of operations.
func (s stored) commit(t *rapid.T, ops []byte, live, limit int) {
	n := 0
	for rest := ops; len(rest) > 0; {
		var batch []byte
		var count int
		batch, count, rest = appendLive(nil, rest, limit)
		n += count
		for len(batch) > 0 {
			op := batch[:opSize(batch)]
			batch = batch[len(op):]
			seq := binary.BigEndian.Uint64(op[3:])
			switch op[0] {
			case opSet:
				_, skip := binary.Uvarint(op[2+recordKeySize:])
				var r Record
				if err := parseRecord(op[2+recordKeySize+skip:], &r); err != nil || r.Seq != seq {
					t.Fatalf("job %d: %+v, %v", seq, r, err)
				}
				s[seq] = r.Revision
			case opDelete:
				delete(s, seq)
			default:
				t.Fatalf("an operation of kind %#x reached a batch", op[0])
			}
		}
	}
	if n != live {
		t.Fatalf("%d operations, %d were counted", n, live)
	}
}

// TestShardBufferAgainstMap puts, changes and removes jobs in random groups. The store must end
// like a map, no job may be written twice in a group, and a job that is new and deleted within a
// group may not be written. The count of jobs must be right.
func TestShardBufferAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := shardBuffer{group: 1}
		var spare []byte
		model, store := stored{}, stored{}
		var jobs, revision int64
		var seq uint64
		limit := rapid.SampledFrom([]int{1, 100, 1 << 20}).Draw(t, "limit")
		pad := make([]byte, rapid.SampledFrom([]int{0, 10, compactFrom / 4}).Draw(t, "workload"))
		put := func(seq uint64) {
			revision++
			g.put(&Record{Seq: seq, Revision: revision, Workload: pad})
			model[seq] = revision
		}
		// touched holds the jobs that this group may write: the changed ones except those both new
		// and deleted.
		before, touched := stored{}, map[uint64]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"new": func(*rapid.T) { seq++; put(seq); touched[seq] = true },
			"change": func(t *rapid.T) {
				if s := rapid.Uint64Range(0, seq).Draw(t, "seq"); model[s] != 0 {
					put(s)
					touched[s] = true
				}
			},
			"remove": func(t *rapid.T) {
				s := rapid.Uint64Range(1, seq+3).Draw(t, "seq")
				touched[s] = before[s] != 0 || model[s] == 0 && s <= seq // one operation is allowed
				g.remove(s)
				delete(model, s)
			},
			"commit": func(t *rapid.T) {
				if g.last.Load() > g.group {
					t.Fatalf("group %d before it began", g.last.Load())
				}
				x := g.drain(g.group+1, spare)
				spare = x.ops[:0]
				may := 0
				for _, yes := range touched {
					if yes {
						may++
					}
				}
				if x.live > may {
					t.Fatalf("%d operations for %d changed jobs", x.live, may)
				}
				store.commit(t, x.ops, x.live, limit)
				jobs += x.added
				if !maps.Equal(store, model) {
					t.Fatalf("stored %v, want %v", store, model)
				}
				before = maps.Clone(model)
				clear(touched)
			},
			"": func(t *rapid.T) {
				if g.live < 0 || g.dead < 0 || g.dead > len(g.buf) {
					t.Fatalf("%d live, %d bytes of %d dead", g.live, g.dead, len(g.buf))
				}
			},
		})
	})
}

// TestShardBufferCancels checks that a job created and deleted within a group leaves nothing, not
// even in memory.
func TestShardBufferCancels(t *testing.T) {
	g := shardBuffer{group: 1}
	for seq := uint64(1); seq <= 1000; seq++ {
		g.put(&Record{Seq: seq, Workload: make([]byte, 1000)})
		g.put(&Record{Seq: seq, Workload: make([]byte, 2000)})
		g.remove(seq)
	}
	if g.live != 0 || len(g.buf) != 0 || g.added != 0 || g.last.Load() != 1 {
		t.Fatalf("%d live, %d bytes, %d more jobs, group %d", g.live, len(g.buf), g.added, g.last.Load())
	}
	// Among other jobs its operations are compacted away.
	for seq := uint64(2001); seq <= 12000; seq++ {
		g.put(&Record{Seq: seq, Workload: make([]byte, 1000)})
		if seq > 2050 {
			g.remove(seq - 50)
		}
	}
	if g.live != 50 || len(g.buf) > 8*compactFrom || g.index.count != 50 {
		t.Fatalf("%d live in %d bytes, %d in the index", g.live, len(g.buf), g.index.count)
	}
}

// TestShardBufferShrinks checks that a buffer that was large once is freed.
func TestShardBufferShrinks(t *testing.T) {
	g := shardBuffer{group: 1}
	var spare []byte
	for i := range 200 {
		size := 10
		if i < 2 {
			size = 10 << 20
		}
		g.raw(opSet, []byte("key"), make([]byte, size))
		spare = g.drain(uint64(i+2), spare).ops[:0]
	}
	if got := cap(spare) + cap(g.buf); got > 1<<20 {
		t.Fatalf("%d bytes kept", got)
	}
}

func ExampleMode() {
	for _, name := range []string{"always", "interval", "never", "fsync"} {
		m, err := ParseMode(name)
		fmt.Println(m, err)
	}
	// Output:
	// always <nil>
	// interval <nil>
	// never <nil>
	// always "fsync" is none of always, interval, never
}
