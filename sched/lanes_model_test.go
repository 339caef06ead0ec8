package sched

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// keyModel is a naive queue with keys: a slice of jobs, scanned for everything.
type keyModel struct {
	fair    bool
	limit   int
	weights map[string]int
	jobs    []*keyJob          // that wait or run
	rings   map[int64][]string // by priority, the keys that take turns, the next first
	turns   map[string]int
	cut     map[string]int64 // keys whose turn was cut off by the limit, and the priority
	clock   int
}

type keyJob struct {
	name, key     string
	priority, due int64
	age, stamp    int // of its submission; of its becoming ready
	running       bool
	run           Run
}

func (m *keyModel) running(key string) (n int) {
	for _, j := range m.jobs {
		n += oneIf(j.running && j.key == key)
	}
	return n
}

// head returns the first ready job of a key that may start, nil when there is none.
func (m *keyModel) head(key string) (first *keyJob) {
	if m.limit > 0 && m.running(key) >= m.limit {
		return nil
	}
	for _, j := range m.jobs {
		if j.key == key && !j.running && (first == nil || j.before(first, j.stamp, first.stamp)) {
			first = j
		}
	}
	return first
}

func (j *keyJob) before(o *keyJob, x, y int) bool {
	switch {
	case j.priority != o.priority:
		return j.priority > o.priority
	case j.due != o.due:
		return j.due < o.due
	}
	return x < y
}

func (m *keyModel) keys() (all []string) {
	for _, j := range m.jobs {
		all = append(all, j.key)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// settle has keys join and leave the rings after a change. At most one key changes at a time.
func (m *keyModel) settle() {
	for priority, ring := range m.rings {
		m.rings[priority] = slices.DeleteFunc(ring, func(key string) bool {
			h := m.head(key)
			if h == nil && m.turns[key] > 0 {
				m.cut[key] = priority
			}
			return h == nil || h.priority != priority
		})
	}
	for key := range m.cut {
		if !slices.ContainsFunc(m.jobs, func(j *keyJob) bool { return j.key == key && !j.running }) {
			delete(m.cut, key)
		}
	}
	for _, key := range m.keys() {
		h := m.head(key)
		if h == nil || slices.Contains(m.rings[h.priority], key) {
			continue
		}
		if at, ok := m.cut[key]; ok && at == h.priority {
			m.rings[at] = slices.Insert(m.rings[at], 0, key)
		} else {
			m.rings[h.priority] = append(m.rings[h.priority], key)
			m.turns[key] = 0
		}
		delete(m.cut, key)
	}
}

// next returns the job that starts next, nil when there is none, and starts it.
func (m *keyModel) next() (next *keyJob) {
	m.settle()
	for _, key := range m.keys() {
		if h := m.head(key); h != nil && (next == nil || h.before(next, h.age, next.age)) {
			next = h
		}
	}
	if next == nil {
		return nil
	}
	if m.fair {
		ring := m.rings[next.priority]
		key := ring[0]
		next = m.head(key)
		if m.turns[key]++; m.turns[key] >= max(m.weights[key], 1) {
			m.rings[next.priority], m.turns[key] = append(ring[1:len(ring):len(ring)], key), 0
		}
	}
	next.running = true
	m.settle()
	return next
}

func (m *keyModel) end(j *keyJob) {
	m.jobs = slices.DeleteFunc(m.jobs, func(o *keyJob) bool { return o == j })
	m.settle()
}

func (m *keyModel) ready(j *keyJob) {
	m.clock++
	j.stamp, j.running = m.clock, false
	m.settle()
}

func (m *keyModel) find(name string) *keyJob {
	for _, j := range m.jobs {
		if j.name == name {
			return j
		}
	}
	return nil
}

// TestLaneModel compares the order of jobs under random verbs with the naive model's.
func TestLaneModel(t *testing.T) {
	for seed := range int64(30) {
		r := rand.New(rand.NewSource(seed))
		m := &keyModel{fair: r.Intn(3) > 0, limit: 1 + r.Intn(4), rings: make(map[int64][]string), turns: make(map[string]int), cut: make(map[string]int64)}
		if m.fair && r.Intn(2) == 0 {
			m.limit = 0
		}
		values := []string{fmt.Sprint("key-concurrency=", m.limit), "fair=no"}
		if m.fair {
			m.weights = map[string]int{"a": 1 + r.Intn(4), "b": 1 + r.Intn(2)}
			values = []string{values[0], "fair=key", fmt.Sprintf("weights=a=%d b=%d", m.weights["a"], m.weights["b"])}
		}
		x := newTestSched(t, Options{})
		x.fairly(values...)
		if p := x.peer("f"); !x.runKeyModel(r, m, p) {
			t.Fatalf("seed %d, %q", seed, values)
		}
	}
}

// runKeyModel does random verbs to both.
func (x *testSched) runKeyModel(r *rand.Rand, m *keyModel, p *Peer) bool {
	x.t.Helper()
	waiting, second := 0, x.now.Wall/1000
	for step := range 400 {
		switch verb := r.Intn(10); {
		case verb < 4:
			j := &keyJob{name: fmt.Sprint([]string{"a", "b", "c", "d", ""}[r.Intn(5)], ":", r.Intn(8)), priority: int64(r.Intn(8) / 6), due: second - int64(r.Intn(8)/6)}
			old := m.find(j.name)
			if old != nil && !old.running {
				old.priority, old.due, j = j.priority, j.due, old
				m.rejoin(j)
			}
			x.submit("f", j.name, func(s *Submission) { s.Priority, s.SchedAt = j.priority, j.due })
			if old == nil {
				j.key, _, _ = strings.Cut(j.name, ":")
				m.clock++
				j.age = m.clock
				m.jobs = append(m.jobs, j)
				m.ready(j)
			}
		case verb < 7:
			waiting++
			x.reserve(p, uint64(1000+step))
		default:
			if len(m.jobs) == 0 {
				continue
			}
			j := m.jobs[r.Intn(len(m.jobs))]
			switch {
			case !j.running || verb == 7:
				x.s.Remove(x.now, 0, []byte("f"), []byte(j.name), &x.rec)
				m.end(j)
			case verb == 8:
				x.ok(x.s.Finish(x.now, p, j.run, nil, &x.rec))
				m.end(j)
			default:
				j.due = second
				x.ok(x.s.Fail(x.now, p, j.run, nil, &x.rec))
				j.running = false
				m.settle()
				m.ready(j)
			}
		}
		x.s.ticks(x.now, &x.rec)
		got := x.rec.take()
		for ; waiting > 0; waiting-- {
			want := m.next()
			if want == nil {
				break
			}
			if len(got) == 0 || got[0].job.name != want.name {
				x.t.Errorf("step %d: %v is handed out, want %s", step, got, want.name)
				return false
			}
			want.run, got = got[0].job.run, got[1:]
		}
		if len(got) > 0 {
			x.t.Errorf("step %d: %v is handed out", step, got)
			return false
		}
		if step%16 == 0 { // a check takes longer than all else here
			if err := x.s.check(); err != nil {
				x.t.Errorf("step %d: %v", step, err)
				return false
			}
		}
	}
	return true
}

// rejoin has a pending job stand behind its equals, as one that came and went.
func (m *keyModel) rejoin(j *keyJob) {
	j.running = true
	m.jobs = slices.DeleteFunc(m.jobs, func(o *keyJob) bool { return o == j })
	m.settle()
	m.jobs = append(m.jobs, j)
	m.ready(j)
}
