package sched

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// listed returns the jobs of a listing as text, through a new Listing for each page of so many jobs and calls of so
// many steps.
func (s *Scheduler) listed(now Time, m *Match, queue string, all bool, page, steps int) (jobs []string, err error) {
	for after, calls := "", 0; ; {
		l, err := NewListing(m, []byte(queue), all, after)
		if err != nil {
			return nil, err
		}
		n := 0
		for done := false; n < page && !done; {
			done = s.List(now, l, steps, func(v *JobView) bool {
				n++
				jobs = append(jobs, fmt.Sprint(v.Ref.Seq, " ", v.Queue, " ", string(v.Name), " ", v.State))
				return n < page
			})
			if done {
				return jobs, nil
			}
			if calls++; calls > 100_000 {
				return nil, fmt.Errorf("the listing of %q does not end", queue)
			}
		}
		after = l.Cursor()
	}
}

// allJobs returns the jobs that a listing must have, from Walk and the lines of kept jobs, by queue.
func (s *Scheduler) allJobs() map[string][]string {
	all := make(map[string][]string)
	add := func(sh *shard, job uint32, r *record, q *queue) {
		all[q.name] = append(all[q.name], fmt.Sprint(r.seq, " ", q.name, " ", string(sh.nameView(job)), " ", sh.jobStateOf(job, r)))
	}
	for c, done := (Cursor{}), false; !done; {
		c, done = s.walk(c, slabChunk, func(sh *shard, job uint32, r *record, q *queue) { add(sh, job, r, q) })
	}
	for i := range s.shards {
		sh := &s.shards[i]
		for _, q := range sh.byName {
			for use := keptDone; q.kept != nil && use < keptUses; use++ {
				q.kept[use].jobs.eachFrom(firstKey, func(_ sortKey, job uint32) bool {
					add(sh, job, sh.slab.at(job), q)
					return true
				})
			}
		}
	}
	return all
}

// checkListings compares all listings with all jobs: each is there once.
func (s *Scheduler) checkListings(now Time, page, steps int) error {
	var every []string
	all := s.allJobs()
	for _, queue := range append([]string{string(graphQueue), "none"}, randomQueues...) {
		got, err := s.listed(now, &Match{}, queue, false, page, steps)
		if err != nil {
			return err
		}
		want := all[queue]
		every = append(every, want...)
		l, _ := NewListing(&Match{}, []byte(queue), false, "")
		if n := s.SizeOf(l); n != len(want) {
			return fmt.Errorf("the listing of %q has a size of %d, there are %d jobs", queue, n, len(want))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the listing of %q has %q, want %q", queue, got, want)
		}
	}
	got, err := s.listed(now, &Match{}, "", true, page, steps)
	if err != nil {
		return err
	}
	slices.Sort(got)
	slices.Sort(every)
	if !slices.Equal(got, every) {
		return fmt.Errorf("the listing has %q, want %q", got, every)
	}
	return nil
}

// newListSched returns a scheduler with jobs of a queue in nearly every state, two of each, and some of another queue.
func newListSched(t testing.TB) *testSched {
	x := newTestSched(t, Options{Rules: testRules, Shards: 2})
	x.under([3]string{"f", "keep-results", "10"}, [3]string{"f", "keep-done", "10"}, [3]string{"f", "retries", "0"}, [3]string{"g", "unique-for", "1h"})
	later := func(j *Submission) { j.SchedAt = x.now.Wall/1000 + 60 }
	p := x.peer("f")
	for _, name := range []string{"done-1", "done-2"} {
		x.does(p, "f", name, "result of "+name)
	}
	for _, name := range []string{"failed-1", "failed-2"} {
		x.pass(1000)
		x.fails(p, "f", name)
	}
	for _, name := range []string{"locked-1", "locked-2"} {
		x.submit("f", name)
		x.acquire(p, x.reserveJob(p, name), 0, false)
	}
	for _, name := range []string{"running-1", "running-2"} {
		x.submit("f", name)
		x.reserveJob(p, name)
	}
	x.does(x.peer("g"), "g", "name alone", "")
	x.pass(5000)
	x.submit("f", "low")
	x.submit("f", "high", func(j *Submission) { j.Priority = 9 })
	x.submit("f", "middle", func(j *Submission) { j.Priority, j.Workload = 5, []byte("say \"hello\"") })
	x.submit("f", "delayed-2", later, func(j *Submission) { j.SchedAt++ })
	x.submit("f", "delayed-1", later)
	x.submit("g", "other")
	x.submit("g", "owned", owned(p, 5))
	x.rec.take()
	return x
}

// TestListOrder checks the order of the listing of a queue, with pages of every size, and that filters leave out
// others.
func TestListOrder(t *testing.T) {
	x := newListSched(t)
	const all = "running-2 running-1 high middle low delayed-1 delayed-2 locked-2 locked-1 failed-1 failed-2 done-1 done-2"
	f := func(m Match, queue string, want string) {
		t.Helper()
		for _, page := range []int{1, 2, 3, 50} {
			var got []string
			jobs, err := x.s.listed(x.now, &m, queue, queue == "", page, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				got = append(got, strings.Fields(j)[2])
			}
			if queue == "" {
				slices.Sort(got)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%+v of %q in pages of %d: %q, want %q", m, queue, page, got, want)
			}
		}
	}
	f(Match{}, "f", all)
	f(Match{}, "g", "other owned")
	f(Match{}, "none", "")
	f(Match{States: StatesOf(JobFailed, JobReady)}, "f", "high middle low failed-1 failed-2")
	f(Match{States: StatesOf(JobLocked)}, "", "locked-1 locked-2")
	f(Match{Names: []string{"*-1", "d*"}}, "f", "delayed-1 done-1")
	f(Match{Names: []string{"low"}}, "f", "low")
	f(Match{Queues: []string{"g"}}, "", "other owned")
	f(Match{Queues: []string{"?"}, Names: []string{"o*"}}, "", "other owned")
	f(Match{Queues: []string{"f"}, Names: []string{"o*"}}, "", "")
	f(Match{Spaces: 1 << ownedSpace}, "", "owned")
	f(Match{Priority: &Range{5, 9}}, "", "high middle")
	f(Match{Priority: &Range{6, math.MaxInt64}}, "f", "high")
	f(Match{Age: &Range{5000 - grain, 6500}}, "f", "running-2 running-1 locked-2 locked-1 failed-1 failed-2")
	f(Match{Age: &Range{5000, math.MaxInt64}, States: StatesOf(JobReady, JobDone)}, "f", "done-1 done-2")
	f(Match{Age: &Range{math.MinInt64, math.MaxInt64}, States: StatesOf(JobDelayed)}, "f", "")
	f(Match{Texts: []string{"hello", "say"}}, "", "middle")
	f(Match{Texts: []string{"result of", "done-2"}}, "", "done-2")
	f(Match{Texts: []string{"failed-"}}, "f", "failed-1 failed-2")
	f(Match{Texts: []string{"nowhere"}}, "", "")
	low, _ := x.s.Find(0, []byte("f"), []byte("low"))
	f(Match{Ref: &low}, "", "low")
	f(Match{Ref: &low, Names: []string{"high"}}, "", "")
	f(Match{Ref: &JobRef{Shard: 9, Record: 1 << 31, Seq: 77}}, "", "")
}

// TestListWorkers checks the workers of a listing: the holder, the one of a lease, and those of the history.
func TestListWorkers(t *testing.T) {
	x := newTestSched(t, Options{})
	x.under([3]string{"f", "retries", "0"})
	p := x.peer("f")
	p.SetLabel("worker 1", "periodic 10.0.0.1:9")
	x.fails(p, "f", "failed")
	x.submit("f", "held")
	x.reserveJob(p, "held")
	x.submit("f", "leased")
	x.leases("crane", 1, "leased", "f")
	for part, want := range map[string]string{"10.0.0.1": "held failed", "ran": "leased", "one": "", "": "held leased failed"} {
		m := Match{}
		if part != "" {
			m.Workers = []string{part}
		}
		jobs, err := x.s.listed(x.now, &m, "f", false, 50, 256)
		var got []string
		for _, j := range jobs {
			got = append(got, strings.Fields(j)[2])
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%q: %q, %v, want %q", part, got, err, want)
		}
	}
}
