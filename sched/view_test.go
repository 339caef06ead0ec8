package sched

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// TestParseRef checks that the text of a reference is read back, and that no other text is read.
func TestParseRef(t *testing.T) {
	for _, ref := range []JobRef{{}, {Shard: 5, Record: 17, Seq: 100}, {Shard: 1<<16 - 1, Record: none, Seq: 1<<64 - 1}} {
		if got, err := ParseRef(ref.String()); got != ref || err != nil {
			t.Errorf("%v is read as %v, %v", ref, got, err)
		}
	}
	for _, text := range []string{"", "1.2", "1.2.3.4", "1.2.3 ", " 1.2.3", "+1.2.3", "1.2.-3", "65536.1.1", "1.4294967296.1", "1.2.18446744073709551616", "1.2.0x3", "1.2.03", strings.Repeat("1", 1<<20)} {
		if ref, err := ParseRef(text); err == nil || ref != (JobRef{}) {
			t.Errorf("%.40q is read as %v, %v", text, ref, err)
		}
	}
}

// TestViewInEveryState: a job is found by its reference in every state, and a kept one by its number alone.
func TestViewInEveryState(t *testing.T) {
	x := newListSched(t)
	seen := 0
	l, err := NewListing(&Match{}, nil, true, "")
	x.ok(err)
	for done := false; !done; {
		var listed []JobView
		done = x.s.List(x.now, l, 1, func(v *JobView) bool { listed = append(listed, *v); return true })
		for _, v := range listed {
			name, state := string(v.Name), v.State
			for _, ref := range []JobRef{v.Ref, {Shard: v.Ref.Shard + 1, Record: v.Ref.Record + 1, Seq: v.Ref.Seq}, {Shard: 9999, Seq: v.Ref.Seq}} {
				found := x.s.View(x.now, ref, func(o *JobView) {
					if string(o.Name) != name || o.State != state || o.Ref != v.Ref {
						t.Errorf("%v is %q in state %v, want %q, %v", ref, o.Name, o.State, name, state)
					}
				})
				if want := ref == v.Ref || state >= JobFailed; found != want {
					t.Errorf("%v of %q, %v, is found: %v", ref, name, state, found)
				}
			}
			seen++
		}
	}
	if seen != 15 || x.s.View(x.now, JobRef{}, nil) {
		t.Errorf("%d jobs", seen)
	}
	for name, want := range map[string]bool{"low": true, "locked-1": true, "done-1": true, "none": false, "failed-1": true} {
		if _, ok := x.s.Find(0, []byte("f"), []byte(name)); ok != want {
			t.Errorf("%s is found: %v", name, ok)
		}
	}
	if _, ok := x.s.Find(ownedSpace, []byte("f"), []byte("low")); ok {
		t.Error("a job is found in another space")
	}
}

// TestFindEnded: the name of a job that has failed, is done or has expired means the one that ended last, until a job
// of the name is submitted, and also after a restart.
func TestFindEnded(t *testing.T) {
	x, kept := newOperated(t, 1)
	x.under([3]string{"f", "retries", "0"}, [3]string{"f", "keep-failed", "9"}, [3]string{"f", "keep-done", "9"}, [3]string{"f", "job-ttl", "1m"})
	p := x.peer("f", "g")
	number := int64(0)
	submit := func(queue string) {
		number++
		x.submit(queue, "a", func(j *Submission) { j.Priority = number })
	}
	is := func(want string) {
		t.Helper()
		x.check()
		for _, y := range []*testSched{x, x.restarted(operateRules, kept.joined())} {
			got := "none"
			if ref, ok := y.s.Find(0, []byte("f"), []byte("a")); ok {
				y.s.View(y.now, ref, func(v *JobView) { got = fmt.Sprint(v.State, " ", v.Priority) })
			}
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			y.check()
		}
	}
	fail := func(queue string) {
		submit(queue)
		x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "a"), nil, &x.rec))
		x.pass(1)
	}
	done := func() {
		submit("f")
		x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "a"), nil, &x.rec))
		x.pass(1)
	}
	submit("g") // another queue
	is("none")
	x.s.Remove(x.now, 0, []byte("g"), []byte("a"), &x.rec)
	fail("f")
	is("failed 2")
	first := x.refOf("f", "a")
	done()
	is("done 3")
	fail("f")
	is("failed 4")
	submit("f")
	is("ready 5")
	x.pass(61_000)
	is("expired 5")
	done()
	is("done 6")
	submit("f")
	is("ready 7")
	x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec)
	is("done 6")
	last, _ := x.s.Find(0, []byte("f"), []byte("a"))
	x.ok(x.change(last, JobChange{Verb: RemoveJobs}))
	is("expired 5")
	x.ok(x.change(first, JobChange{Verb: RetryJobs}))
	is("ready 2")
	x.ok(x.s.Fail(x.now, p, x.reserveJob(p, "a"), nil, &x.rec))
	is("failed 2") // though it was submitted first
	x.ok(x.change(first, JobChange{Verb: RemoveJobs}))
	if _, ok := x.s.Find(0, []byte("f"), []byte("a")); ok {
		t.Error("an older job is found when the last one was removed")
	}
	x.check()
}

// TestReader: a workload and a result are read in parts, from a byte on. A job that is replaced, twice so that its
// bytes lie where they lay before, or has ended is read no further.
func TestReader(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "keep-results", "9"})
	p := x.peer("f")
	large := bytes.Repeat([]byte("0123456789abcdef"), 3*maxRead/16)
	put := func(c byte) {
		large[0] = c
		x.submit("f", "a", func(j *Submission) { j.Workload = large })
	}
	put('a')
	ref, _ := x.s.Find(0, []byte("f"), []byte("a"))
	open := func(result bool, from int) *Reader {
		t.Helper()
		r, ok := x.s.NewReader(ref, result, from)
		if !ok {
			t.Fatal("there is nothing to read")
		}
		return r
	}
	for _, from := range []int{0, 1, maxRead, len(large), len(large) + 1} {
		r := open(false, from)
		want := large[min(from, len(large)):]
		if n := r.Size(); n != len(want) {
			t.Errorf("from %d: %d bytes", from, n)
		}
		if got, err := io.ReadAll(r); !bytes.Equal(got, want) || err != nil {
			t.Errorf("from %d: %d bytes, %v", from, len(got), err)
		}
	}
	for replaced := 1; replaced <= 2; replaced++ {
		r, part := open(false, 0), make([]byte, 1<<20)
		if n, err := r.Read(part); n != maxRead || err != nil {
			t.Errorf("a part of %d bytes, %v", n, err)
		}
		for range replaced {
			put('b')
		}
		if n, err := r.Read(part); n != 0 || !errors.Is(err, ErrChanged) {
			t.Errorf("replaced %d times: %d bytes, %v", replaced, n, err)
		}
	}
	if _, ok := x.s.NewReader(ref, true, 0); ok {
		t.Error("a pending job has a result")
	}
	r := open(false, 0)
	x.ok(x.s.Finish(x.now, p, x.reserveJob(p, "a"), []byte("result"), &x.rec))
	ref, _ = x.s.Find(0, []byte("f"), []byte("a"))
	if got, err := io.ReadAll(open(true, 0)); string(got) != "result" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	x.ok(x.s.changeKept(x.now, RemoveJobs, ref.Seq, &x.rec))
	if _, err := r.Read(make([]byte, 9)); !errors.Is(err, ErrChanged) {
		t.Errorf("a removed job: %v", err)
	}
	if _, ok := x.s.NewReader(ref, false, 0); ok {
		t.Error("a removed job is read")
	}
}

// TestListMoves: jobs that are taken and submitted between the pages of a listing do not hide others, and no page
// begins again.
func TestListMoves(t *testing.T) {
	x := newTestSched(t, Options{})
	p := x.peer("f")
	const jobs = 100
	for i := range jobs {
		x.submit("f", fmt.Sprint(i), func(j *Submission) { j.Priority = int64(i % 3) })
	}
	f := func(what string, between func(last JobRef, page int), want int) {
		t.Helper()
		seen, pages := make(map[string]int), 0
		for after, done := "", false; !done; pages++ {
			l, err := NewListing(&Match{States: StatesOf(JobReady)}, []byte("f"), false, after)
			x.ok(err)
			var last JobRef
			n := 0
			for n < 5 && !done {
				done = x.s.List(x.now, l, 4, func(v *JobView) bool {
					seen[string(v.Name)]++
					last = v.Ref
					n++
					return n < 5
				})
			}
			if !done {
				between(last, pages)
			}
			after = l.Cursor()
			if pages > 4*jobs {
				t.Fatalf("%s: it does not end", what)
			}
		}
		for name, n := range seen {
			if n > 1 {
				t.Errorf("%s: %s is seen %d times", what, name, n)
			}
		}
		if len(seen) != want {
			t.Errorf("%s: %d jobs are seen, want %d", what, len(seen), want)
		}
	}
	remove := func(ref JobRef) {
		var name []byte
		x.s.View(x.now, ref, func(v *JobView) { name = bytes.Clone(v.Name) })
		if !x.s.Remove(x.now, 0, []byte("f"), name, &x.rec) {
			t.Errorf("%q is not removed", name)
		}
	}
	f("nothing", func(JobRef, int) {}, jobs)
	f("the last job of each page goes", func(last JobRef, _ int) { remove(last) }, jobs)
	left := x.s.Stats().Jobs
	f("the first job is done", func(_ JobRef, page int) {
		x.reserve(p, uint64(page))
		x.ok(x.s.Finish(x.now, p, x.rec.take()[0].job.run, nil, &x.rec))
	}, left)
	left = x.s.Stats().Jobs
	f("the last goes and others come ahead", func(last JobRef, page int) {
		remove(last)
		x.submit("f", fmt.Sprint("new ", page), func(j *Submission) { j.Priority = 9 })
	}, left)
}

// TestListReused: the record of a job that went may have another job of the same priority and second, at the end of the
// line. The listing does not go on behind that.
func TestListReused(t *testing.T) {
	x := newTestSched(t, Options{})
	for _, name := range []string{"a", "b", "c"} {
		x.submit("f", name)
	}
	l, err := NewListing(&Match{}, []byte("f"), false, "")
	x.ok(err)
	var got []string
	var first, last JobRef
	next := func() bool {
		return x.s.List(x.now, l, 256, func(v *JobView) bool {
			got, last = append(got, string(v.Name)), v.Ref
			return false
		})
	}
	next()
	first = last
	x.s.Remove(x.now, 0, []byte("f"), []byte("a"), &x.rec)
	x.submit("f", "d")
	for !next() {
	}
	if fmt.Sprint(got) != "[a b c d]" || last.Record != first.Record {
		t.Errorf("%q are seen, the last in record %d, the first was in %d", got, last.Record, first.Record)
	}
}

// TestListText: the text of a large job is searched a part under each hold of the lock, also where two parts meet. A
// job that is replaced meanwhile is searched from its start.
func TestListText(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	x := newTestSched(t, Options{})
	const size = 64 << 20
	text := "two words"
	put := func(at int) {
		large := make([]byte, size)
		copy(large[at:], text)
		x.submit("f", "a", func(j *Submission) { j.Workload = large })
	}
	for _, at := range []int{0, 1, maxSearched - len(text), maxSearched - 1, maxSearched, size/2 + 1, size - len(text)} {
		put(at)
		l, err := NewListing(&Match{Texts: []string{"\x00", text}}, []byte("f"), false, "")
		x.ok(err)
		found, calls := 0, 0
		g := &x.s.shards[0].mu
		for done := false; !done; calls++ {
			before := g.steps
			done = x.s.List(x.now, l, 1, func(*JobView) bool { found++; return true })
			if steps := g.steps - before; steps > maxSearched>>costShift+4 {
				t.Fatalf("%d steps under one hold", steps)
			}
			if !done && !l.Searching() && found == 0 {
				t.Fatalf("at %d: the search has stopped", at)
			}
		}
		if found != 1 || calls > size/(maxSearched-len(text))+5 || l.Looked() != 1 {
			t.Errorf("at %d: found %d times, in %d calls", at, found, calls)
		}
	}
	l, _ := NewListing(&Match{Texts: []string{text}}, []byte("f"), false, "")
	none := func(*JobView) bool { t.Error("it is found where it was"); return true }
	put(size - len(text))
	for range 3 {
		x.s.List(x.now, l, 1, none)
	}
	put(0)
	found := 0
	for done := false; !done; {
		done = x.s.List(x.now, l, 1, func(*JobView) bool { found++; return true })
	}
	if found != 1 {
		t.Errorf("found %d times in the job that was replaced", found)
	}
}

// FuzzListCursor lists jobs behind any cursor: it is refused, or the listing ends, and no call takes more steps than it
// may.
func FuzzListCursor(f *testing.F) {
	x := newListSched(f)
	for queue, steps := range map[string]int{"f": 1, "g": 1, "": 200} {
		l, _ := NewListing(&Match{}, []byte(queue), queue == "", "")
		for done := false; !done; {
			done = x.s.List(x.now, l, steps, func(*JobView) bool { return false })
			f.Add(l.Cursor(), queue)
		}
	}
	f.Add("!", "f")
	f.Fuzz(func(t *testing.T, after, queue string) {
		l, err := NewListing(&Match{}, []byte(queue), queue == "", after)
		if err != nil {
			return
		}
		if again, err := NewListing(&Match{}, []byte(queue), queue == "", l.Cursor()); err != nil || again.place != l.place || again.looked != l.looked {
			t.Fatalf("%q is written as %q, %v", after, l.Cursor(), err)
		}
		steps := func() (n int) {
			for i := range x.s.shards {
				n += x.s.shards[i].mu.steps
			}
			return n
		}
		seen := make(map[string]int)
		for calls, done := 0, false; !done; calls++ {
			before := steps()
			done = x.s.List(x.now, l, 2, func(v *JobView) bool { seen[string(v.Name)]++; return true })
			if n := steps() - before; n > 8 || calls > 20_000 {
				t.Fatalf("%d steps in call %d", n, calls)
			}
		}
		for name, n := range seen {
			if n > 1 {
				t.Fatalf("%s is seen %d times", name, n)
			}
		}
	})
}
