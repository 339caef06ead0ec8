package node

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// workers is a server that runs tasks at once, or when the test calls finish, and counts them.
type workers struct {
	mu   sync.Mutex
	held map[string]func([]byte, error) // held tasks
	hold bool
	runs map[string]int
	busy int // running tasks
	most int // largest number of running tasks
}

func newWorkers(hold bool) *workers {
	return &workers{held: make(map[string]func([]byte, error)), hold: hold, runs: make(map[string]int)}
}

// Submit implements Functions.
func (w *workers) Submit(_, name string, _ []byte, done func([]byte, error)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[name]++
	w.busy++
	w.most = max(w.most, w.busy)
	if w.hold {
		w.held[name] = done
		return nil
	}
	go func() {
		w.mu.Lock()
		w.busy--
		w.mu.Unlock()
		done([]byte(`{"status": 1}`), nil)
	}()
	return nil
}

// Withdraw implements Functions. A worker reserves every job at once.
func (w *workers) Withdraw(string, string) bool { return false }

// finish ends the given number of held tasks.
func (w *workers) finish(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, done := range w.held {
		if n--; n < 0 {
			return
		}
		delete(w.held, name)
		w.busy--
		done(nil, nil)
	}
}

// once checks that the given number of tasks ran once each, with at most most of them at a time.
func (w *workers) once(t *testing.T, tasks, most int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, runs := range w.runs {
		if runs != 1 {
			t.Errorf("task %s ran %d times", id, runs)
		}
	}
	if len(w.runs) != tasks || w.most > most {
		t.Errorf("%d tasks ran, %d at once", len(w.runs), w.most)
	}
}

// holding returns the number of held tasks.
func (w *workers) holding() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.held)
}

// functionPlugin is the configuration of a plugin F for workers.
const functionPlugin = `"treadle_plugins": {"F": {"kind": "function"}},`

func with(w *workers) func(*Options) {
	return func(o *Options) { o.Functions, o.Drain = w, func() time.Duration { return 5 * time.Second } }
}

// ticks waits for the given number of further ticks.
func (s *site) ticks(n *started, more int) {
	s.T.Helper()
	count := func() int {
		n.node.mu.Lock()
		defer n.node.mu.Unlock()
		return n.node.ticks
	}
	from := count()
	s.Until("ticks", func() bool { return count() >= from+more })
}

// TestQueueLimits: a limit of 2016 counts at one node, one of 2018 at all nodes. Null and missing are 0. A limit may be
// a text.
func TestQueueLimits(t *testing.T) {
	for _, c := range []struct {
		queue  bson.D
		atOne  int
		atBoth int
	}{
		{d("constructor", "F", "maxthreads", "3"), 3, 6},
		{d("constructor", "F", "maxthreads", nil), 0, 0},
		{d("constructor", "F", "maxthreads", -1), 0, 0},
		{d("plugin", "F", "threads", 3.0), 3, 3},
		{d("plugin", "F", "threads", "0"), 0, 0},
		{d("plugin", "F"), 0, 0},
	} {
		t.Run(fmt.Sprint(c.queue), func(t *testing.T) {
			s, w, x := newSite(t, functionPlugin), newWorkers(true), newWorkers(true)
			q := s.Queue(c.queue)
			s.Fill(&q, sitetest.Payloads(20)...)
			first := s.node("first", with(w))
			s.Until("the first node's tasks", func() bool { return w.holding() == c.atOne })
			s.ticks(first, 3)
			second := s.node("second", with(x))
			s.ticks(second, 3)
			s.Until("both nodes' tasks", func() bool { return w.holding()+x.holding() == c.atBoth })
			w.finish(1)
			s.Until("a task in place of the one that ended", func() bool { return w.holding()+x.holding() == c.atBoth })
			s.ticks(first, 2)
			s.ticks(second, 2)
			if n, err := s.Store.CountTasks(s.Ctx, d("status", d("$in", []int{store.StatusClaimed, store.StatusRunning}))); err != nil || int(n) > c.atBoth {
				t.Errorf("%d tasks run, %v", n, err)
			}
			w.mu.Lock()
			w.hold = false
			w.mu.Unlock()
			x.mu.Lock()
			x.hold = false
			x.mu.Unlock()
			w.finish(10)
			x.finish(10)
		})
	}
}

// TestNodeLimits: null and missing are no limit, 0 starts no task, and a limit may be a text.
func TestNodeLimits(t *testing.T) {
	for _, c := range []struct {
		limit any
		want  int
	}{{nil, 8}, {"2", 2}, {0, 0}, {3.0, 3}, {"many", 0}, {-1, 0}} {
		t.Run(fmt.Sprint(c.limit), func(t *testing.T) {
			s, w := newSite(t, functionPlugin), newWorkers(true)
			for i := range 2 {
				q := s.Queue(d("name", fmt.Sprint(i), "plugin", "F", "threads", 4))
				s.Fill(&q, sitetest.Payloads(10)...)
			}
			_, err := s.Nodes.InsertOne(s.Ctx, d("node", "me", "maxthreads", c.limit))
			must(t, err)
			n := s.node("me", with(w))
			s.Until("the node's tasks", func() bool { return w.holding() == c.want })
			s.ticks(n, 3)
			w.finish(1)
			s.Until("a task in place of the one that ended", func() bool { return w.holding() == c.want })
			if w.most != c.want {
				t.Errorf("%d tasks at once, want %d", w.most, c.want)
			}
			w.mu.Lock()
			w.hold = false
			w.mu.Unlock()
			w.finish(10)
		})
	}
}

// TestQueuesAlternate: a node with a limit serves all its queues.
func TestQueuesAlternate(t *testing.T) {
	s, w := newSite(t, functionPlugin), newWorkers(false)
	_, err := s.Nodes.InsertOne(s.Ctx, d("node", "me", "maxthreads", 1))
	must(t, err)
	long := s.Queue(d("name", "long", "plugin", "F", "threads", 1))
	s.Fill(&long, sitetest.Payloads(2000)...)
	short := s.Queue(d("name", "short", "plugin", "F", "threads", 1))
	ids := s.Fill(&short, sitetest.Payloads(3)...)
	s.node("me", with(w))
	s.Ends(ids...)
	if n, err := s.Store.CountTasks(s.Ctx, d("queue", long.ID, "status", store.StatusQueued)); err != nil || n == 0 {
		t.Errorf("the short queue came after all of the long one: %d are left, %v", n, err)
	}
}

// TestServedQueues: activequeues and ignorequeues of the configuration, nodes_pin and nodes_ignore of a queue.
func TestServedQueues(t *testing.T) {
	id, other := primitive.NewObjectID(), primitive.NewObjectID()
	f := func(want bool, c config.File, pin, ignore []string) {
		t.Helper()
		q := store.Queue{ID: id, Pin: pin, Ignore: ignore}
		if got := wanted(&c, &q, "me"); got != want {
			t.Errorf("%+v with %v and %v: %v", c, pin, ignore, got)
		}
	}
	here, there := []string{id.Hex()}, []string{other.Hex()}
	f(true, config.File{}, nil, nil)
	f(true, config.File{ActiveQueues: here}, nil, nil)
	f(false, config.File{ActiveQueues: there}, nil, nil)
	f(true, config.File{ActiveQueues: here, IgnoreQueues: here}, nil, nil)
	f(false, config.File{IgnoreQueues: here}, nil, nil)
	f(true, config.File{IgnoreQueues: there}, nil, nil)
	f(true, config.File{}, []string{"me", "you"}, []string{"me"})
	f(false, config.File{}, []string{"you"}, nil)
	f(false, config.File{}, nil, []string{"me"})
	f(true, config.File{}, nil, []string{"you"})
}
