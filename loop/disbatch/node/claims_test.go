package node

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// idle returns a node without ticks. The test calls its methods.
func (s *site) idle(name string, q *store.Queue) (*Node, *queueState) {
	s.T.Helper()
	n, err := New(Options{Config: s.Config, Name: name, Functions: newWorkers(true)})
	must(s.T, err)
	s.T.Cleanup(n.store.Close)
	n.view, n.limit = &snapshot{queues: []store.Queue{*q}}, store.NoLimit
	state := &queueState{queue: *q, plugin: config.Plugin{Kind: config.KindFunction, Function: "F"}}
	state.slots, state.share = q.Limit, q.Limit // start no other claim
	n.queues[q.ID] = state
	return n, state
}

// TestTaskStartsOnce: a claim does not start its task if a tick has found and started it.
func TestTaskStartsOnce(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "plugin", "F", "threads", 1))
	ids := s.Fill(&q, sitetest.Payloads(1)...)
	n, state := s.idle("me", &q)
	n.own[ids[0]] = true
	if got, err := n.claimNext(state, nil); err == nil {
		t.Errorf("started again: %s", got.Task)
	}
}

// TestForeignTasksKeepLimits: tasks of an earlier process count against the limits of the queue and of the node while
// they run, in both dialects.
func TestForeignTasksKeepLimits(t *testing.T) {
	for _, c := range []struct{ queue, node bson.D }{
		{d("constructor", "F", "maxthreads", 2), d()}, {d("plugin", "F", "threads", 2), d()}, {d("constructor", "F", "maxthreads", 9), d("maxthreads", 2)},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			s, w := newSite(t, functionPlugin), newWorkers(true)
			_, err := s.Nodes.InsertOne(s.Ctx, append(d("node", "me"), c.node...))
			must(t, err)
			q := s.Queue(c.queue)
			ids := s.Fill(&q, sitetest.Payloads(6)...)
			_, err = s.Tasks.UpdateMany(s.Ctx, d("_id", d("$in", ids[:3])), set(d("status", store.StatusClaimed, "node", "me")))
			must(t, err)
			n := s.node("me", with(w))
			s.Until("tasks at work", func() bool { return w.holding() == 2 })
			s.ticks(n, 5)
			for range ids {
				w.finish(1)
				s.ticks(n, 2)
			}
			s.Ends(ids...)
			if w.most != 2 {
				t.Errorf("%d tasks at once", w.most)
			}
		})
	}
}

// rarely makes a node tick once.
func rarely(o *Options) { o.Interval = time.Hour }

// TestSlotsRefillAtOnce: the end of a task refills its slot without a tick. With a limit of the node any queue may fill
// it.
func TestSlotsRefillAtOnce(t *testing.T) {
	for _, limit := range []any{nil, 1} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			s, w := newSite(t, functionPlugin), newWorkers(false)
			_, err := s.Nodes.InsertOne(s.Ctx, d("node", "me", "maxthreads", limit))
			must(t, err)
			var ids []primitive.ObjectID
			for i := range 2 {
				q := s.Queue(d("name", fmt.Sprint(i), "plugin", "F", "threads", 1))
				ids = append(ids, s.Fill(&q, sitetest.Payloads(20)...)...)
			}
			s.node("me", with(w), rarely)
			s.Ends(ids...)
		})
	}
}

// TestRecount: a node corrects wrong 2016 counters.
func TestRecount(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "a", "constructor", config.DemoPlugin, "maxthreads", 0, "count_todo", 999, "count_total", "7"))
	s.Fill(&q, sitetest.Payloads(2)...)
	s.node("me")
	s.Until("the right counters", func() bool {
		q, err := s.Store.Queue(s.Ctx, q.ID.Hex())
		return err == nil && q.Todo == 2 && q.Total == 2
	})
}

// TestRunnerSession: the process that runs commands has its own session, so that signals of a terminal or shell to the
// node do not reach it.
func TestRunnerSession(t *testing.T) {
	s := newSite(t, plugins(map[string]string{"Session": shell("cut -d' ' -f6 /proc/$PPID/stat", "")}))
	s.node("me")
	task := s.endOf("Session")
	theirs, err := strconv.Atoi(strings.TrimSpace(sitetest.Stored(&task, "stdout")))
	ours, _, fault := syscall.Syscall(syscall.SYS_GETSID, uintptr(os.Getpid()), 0, 0)
	if err != nil || fault != 0 || theirs == int(ours) {
		t.Errorf("its session is %d, ours %d, %v", theirs, ours, err)
	}
}
