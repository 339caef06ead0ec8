package sched

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestArenaClasses checks that every size has the smallest class that holds it, and that no class
// wastes more than 7 bytes or an eighth.
func TestArenaClasses(t *testing.T) {
	for n := 1; n < ownChunk; n++ {
		c := classOf(n)
		if c < 0 || c >= arenaClasses || classSize(c) < n || c > 0 && classSize(c-1) >= n {
			t.Fatalf("%d bytes: class %d of %d bytes", n, c, classSize(c))
		}
		if lost := classSize(c) - n; lost > 7 && lost > n/8 {
			t.Fatalf("%d bytes: class of %d", n, classSize(c))
		}
		if slots := arenaChunk / classSize(c); slots > 1<<slotBits {
			t.Fatalf("class %d has %d slots", c, slots)
		}
	}
}

// arenaPiece is room allocated in an arena, and what was written there.
type arenaPiece struct {
	ref  uint32
	want []byte
}

// TestArenaAgainstCopies checks that bytes written to one reference are never seen through another,
// for sizes up to those with a chunk of their own. When all are freed, at most one chunk a class is
// left.
func TestArenaAgainstCopies(t *testing.T) {
	sizes := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, fineMax+64), rapid.IntRange(1, 3*ownChunk), rapid.SampledFrom([]int{
		8, 9, fineMax - 1, fineMax, fineMax + 1, 288, 289, ownChunk - 1, ownChunk, ownChunk + 1}))
	rapid.Check(t, func(t *rapid.T) {
		a := newArena()
		var all []arenaPiece
		give := func(i int) {
			p := all[i]
			if !bytes.Equal(a.view(p.ref, len(p.want)), p.want) {
				t.Fatalf("the bytes behind %x were overwritten", p.ref)
			}
			a.free(p.ref)
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
		}
		for i := range rapid.IntRange(1, 200).Draw(t, "ops") {
			if rapid.IntRange(0, 9).Draw(t, "op") < 4 && len(all) > 0 {
				give(rapid.IntRange(0, len(all)-1).Draw(t, "which"))
				continue
			}
			n := sizes.Draw(t, "size")
			for range rapid.IntRange(1, 20).Draw(t, "times") {
				ref, dst, ok := a.alloc(n)
				if !ok || len(dst) != n {
					t.Fatalf("%d bytes wanted, %d given", n, len(dst))
				}
				p := arenaPiece{ref, bytes.Repeat([]byte{byte(i + len(all))}, n)}
				copy(dst, p.want)
				all = append(all, p)
			}
		}
		for len(all) > 0 {
			give(len(all) / 2)
		}
		held, kept, perClass := 0, 0, make(map[int16]int)
		for i := range a.chunks {
			if p := &a.chunks[i]; p.buf != nil {
				held += len(p.buf)
				perClass[p.class]++
				kept++
			}
		}
		if held != a.bytes || kept != a.empty || perClass[ownClass] != 0 {
			t.Fatalf("%d bytes and %d empty chunks counted, %d and %d held; %d own chunks left", a.bytes, a.empty, held, kept, perClass[ownClass])
		}
		if kept > keepEmpty+len(perClass)-1 {
			t.Fatalf("%d empty chunks of %d classes are kept", kept, len(perClass))
		}
	})
}

// TestArenaDrain checks that a full arena frees its memory as its bytes are freed, in any order.
func TestArenaDrain(t *testing.T) {
	f := func(name string, next func(i, n int) int) {
		t.Helper()
		a := newArena()
		const n = 20000
		refs := make([]uint32, n)
		for i := range refs {
			refs[i], _, _ = a.alloc(100)
		}
		if a.bytes < n*100 || a.bytes > n*104+2*arenaChunk {
			t.Errorf("%s: %d bytes for %d times 100", name, a.bytes, n)
		}
		for i := range refs {
			a.free(refs[next(i, n)])
		}
		if a.bytes > keepEmpty*arenaChunk {
			t.Errorf("%s: %d bytes are kept", name, a.bytes)
		}
	}
	f("oldest first", func(i, _ int) int { return i })
	f("newest first", func(i, n int) int { return n - 1 - i })
	f("scattered", func(i, n int) int { return i * 7919 % n })
}

// TestArenaFull checks that an arena out of references reports it and does not change.
func TestArenaFull(t *testing.T) {
	a := newArena()
	a.chunks = make([]arenaPart, maxChunks)
	if _, _, ok := a.alloc(10); ok {
		t.Error("room in a full arena for a small size")
	}
	if _, _, ok := a.alloc(ownChunk); ok {
		t.Error("room in a full arena for a large size")
	}
	a.spare = append(a.spare, 7)
	if ref, _, ok := a.alloc(10); !ok || ref>>slotBits != 7 {
		t.Errorf("a spare chunk is not used: %x %v", ref, ok)
	}
}

// TestPack checks that names and workloads of any length, 0 and 127/128 among them, are unpacked as
// they were packed, as views that cannot be appended to.
func TestPack(t *testing.T) {
	f := func(name, workload int) {
		t.Helper()
		n, w := bytes.Repeat([]byte("n"), name), bytes.Repeat([]byte("w"), workload)
		b := make([]byte, packedLen(n, w))
		pack(b, n, w)
		gotName, gotWorkload := unpack(b)
		if !bytes.Equal(gotName, n) || !bytes.Equal(gotWorkload, w) || cap(gotName) != name || cap(gotWorkload) != workload {
			t.Errorf("%d, %d: got %d, %d", name, workload, len(gotName), len(gotWorkload))
		}
	}
	f(0, 0)
	f(1, 0)
	f(0, 1)
	f(127, 3)
	f(128, 3)
	f(255, 70000)
	f(16383, 1)
	f(16384, 0)
}

// TestArenaKeepsOwn checks that large jobs that come and go are no garbage, and that the memory
// kept for the next ones is bounded.
func TestArenaKeepsOwn(t *testing.T) {
	a := newArena()
	n := 100 << 10
	if got := testing.AllocsPerRun(100, func() {
		ref, dst, ok := a.alloc(n)
		if !ok || len(dst) != n {
			t.Fatal("no room")
		}
		a.free(ref)
		n -= 100
	}); got >= 1 {
		t.Errorf("%v allocations a job", got)
	}
	for size := ownChunk; size < 4*keepOwn; size += size / 3 {
		var refs []uint32
		for range 5 {
			ref, dst, _ := a.alloc(size)
			if len(dst) != size {
				t.Fatalf("%d bytes instead of %d", len(dst), size)
			}
			refs = append(refs, ref)
		}
		for _, ref := range refs {
			a.free(ref)
		}
		sum := 0
		for _, b := range a.ownChunks {
			sum += cap(b)
		}
		if sum != a.ownSize || sum > keepOwn || a.bytes != 0 {
			t.Fatalf("after jobs of %d bytes: %d bytes wait, %d counted, %d in use", size, sum, a.ownSize, a.bytes)
		}
	}
}
