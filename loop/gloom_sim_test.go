package loop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
)

// gloomModel is what the simulation knows about a job: who asked, who works, how often it
// has died.
type gloomModel struct {
	master   *memConn
	slave    *memConn // nil: queued
	deaths   int
	priority int
	age      int // negative ones have been given back
}

// gloomSim is masters and slaves of one type that come and go, beside a naive list.
type gloomSim struct {
	*world
	t               *testing.T
	masters, slaves []*memConn
	busy            map[*memConn]string
	jobs            map[string]*gloomModel
	next, back      int
	answered, dead  int
}

// head is the id of the queued job that must be next.
func (s *gloomSim) head() (id string) {
	for i, j := range s.jobs {
		h := s.jobs[id]
		if j.slave == nil && (h == nil || j.priority > h.priority || j.priority == h.priority && j.age < h.age) {
			id = i
		}
	}
	return id
}

// give moves queued jobs to idle slaves, oldest request first, as the server must have.
func (s *gloomSim) give(idle *[]*memConn) {
	for len(*idle) > 0 {
		id := s.head()
		if id == "" {
			return
		}
		slave := (*idle)[0]
		*idle = (*idle)[1:]
		s.jobs[id].slave, s.busy[slave] = slave, id
		if got := slave.heard(); len(got) == 0 || !strings.Contains(got[len(got)-1], `"id":`+id+`,`) {
			s.t.Fatalf("a slave got %q, want the job %s", got, id)
		}
	}
}

// lose is the slave's end.
func (s *gloomSim) lose(slave *memConn) {
	slave.close()
	id, was := s.busy[slave]
	delete(s.busy, slave)
	j := s.jobs[id]
	switch {
	case !was || j == nil:
	case j.master == nil:
		delete(s.jobs, id)
	default:
		if j.deaths++; j.deaths == 4 {
			j.master.hears("the fourth death", `{"error":"job_failed","reason":`+id+`}`)
			delete(s.jobs, id)
			s.dead++
			return
		}
		s.back--
		j.slave, j.priority, j.age = nil, j.priority+1, s.back
	}
}

// leave is the master's end.
func (s *gloomSim) leave(master *memConn) {
	master.close()
	for id, j := range s.jobs {
		switch {
		case j.master != master:
		case j.slave == nil:
			delete(s.jobs, id)
		default:
			j.master = nil
		}
	}
}

// TestGloomSimulation: every job is answered exactly once or fails at the fourth death, in
// the order of the model, and when all is over no id is taken.
func TestGloomSimulation(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		s := &gloomSim{world: newWorld(t, Options{Loops: 1 + int(seed)%2}), t: t, busy: map[*memConn]string{}, jobs: map[string]*gloomModel{}}
		var idle []*memConn
		pick := func(all *[]*memConn, remove bool) *memConn {
			i := rng.IntN(len(*all))
			c := (*all)[i]
			if remove {
				*all = slices.Delete(*all, i, i+1)
			}
			return c
		}
		for range 600 {
			switch n := rng.IntN(20); {
			case n == 0 || len(s.masters) == 0:
				s.masters = append(s.masters, s.openGloom(rng.IntN(s.o.Loops), true))
			case n < 3 || len(s.slaves) == 0:
				c := s.openGloom(rng.IntN(s.o.Loops), false)
				c.say(`{"action":"join","type":"t"}`)
				s.slaves, idle = append(s.slaves, c), append(idle, c)
			case n == 3:
				s.leave(pick(&s.masters, true))
			case n < 7:
				c := pick(&s.slaves, true)
				idle = slices.DeleteFunc(idle, func(x *memConn) bool { return x == c })
				s.lose(c)
			case n < 14:
				s.next++
				m, id, priority := pick(&s.masters, false), fmt.Sprint(s.next), rng.IntN(3)
				m.asks(id, `"t"`, fmt.Sprintf(`,"priority":%d,"body":1`, priority))
				s.jobs[id] = &gloomModel{master: m, priority: priority, age: s.next}
			default:
				c := pick(&s.slaves, false)
				id, was := s.busy[c]
				if !was {
					continue
				}
				c.say(`{"action":"respond","body":` + id + `}`)
				if m := s.jobs[id].master; m != nil {
					m.hears("the answer", `{"id":`+id+`,"body":`+id+`}`)
					s.answered++
				}
				delete(s.jobs, id)
				delete(s.busy, c)
				idle = append(idle, c)
			}
			s.give(&idle)
		}
		for _, c := range slices.Concat(s.masters, s.slaves) {
			c.close()
		}
		s.advance(1000)
		if st := s.sched.Stats(); st.Jobs != 0 || s.answered == 0 || s.dead == 0 && seed == 0 {
			t.Errorf("seed %d: %d jobs are left; %d were answered, %d died", seed, st.Jobs, s.answered, s.dead)
		}
		m := s.openGloom(0, true)
		for i := range s.next {
			m.asks(fmt.Sprint(i+1), `"t"`, `,"body":1`)
		}
		m.hears("every id is free")
	}
}

// TestManyQueuedJobsLeave: a master with 50,000 queued jobs disconnects; others are served
// between the batches in which they go, their ids are free at once, and in the end none is
// left.
func TestManyQueuedJobsLeave(t *testing.T) {
	w := newWorld(t, Options{})
	master, other, worker := w.openGloom(0, true), w.openGloom(0, true), w.worker(0, "g")
	var all []byte
	for i := range 50_000 {
		all = gloom.AppendSubmit(all, fmt.Append(nil, i), []byte(`"t"`), 0, []byte("1"))
	}
	master.send(all)
	master.close()
	other.asks(`49999`, `"t"`, `,"body":1`)
	other.hears("the id of a queued job is free at once")
	for i := 0; ; i++ {
		w.sched.Tick(w.now(), &w.timer)
		left := w.sched.Stats().Jobs
		other.asks(`"mine"`, `"g"`, `,"body":1`)
		worker.grabs(1, 1)
		handle, _ := assigned(t, worker.frames()[0])
		worker.send(request(2, periodic.WorkDone, handle, []byte("1")))
		other.hears("while they go", `{"id":"mine","body":1}`)
		if left == 1 {
			if i < 2 {
				t.Errorf("50,000 jobs went in %d batches", i+1)
			}
			break
		}
		if i > 1000 {
			t.Fatalf("%d jobs stay", left)
		}
	}
	other.asks(`49998`, `"t"`, `,"body":1`)
	other.hears("the ids are free")
}
