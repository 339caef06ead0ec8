//go:build invariants

package fuzz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/codec/periodic"
	"treadle/loop"
	"treadle/loop/disbatch"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/node"
)

// siteHost is a machine of the site.
type siteHost struct {
	number int
	name   string
	limit  int           // of its node
	skew   time.Duration // of its clock
	life   *siteLife     // nil: no server runs there
	lives  int
}

// siteLife is a server with a node, from its start to its end.
type siteLife struct {
	site     *site
	host     *siteHost
	number   int
	server   *loop.Offline
	end      context.CancelFunc
	ended    chan struct{} // closed when the node has stopped
	err      error         // why
	stopping bool
	workers  []*siteWorker
	hired    int

	mu    sync.Mutex
	dead  bool // nothing of it gets anywhere
	conns []net.Conn
}

func (l *siteLife) String() string { return fmt.Sprintf("%s.%d", l.host.name, l.number) }

// start starts a server on a host.
func (s *site) start(h *siteHost) {
	h.lives++
	l := &siteLife{site: s, host: h, number: h.lives, ended: make(chan struct{})}
	s.say("%v starts", l)
	var err error
	if l.server, err = loop.NewOffline(loop.Options{Shards: 1}); err != nil {
		s.fail("%v does not start: %v", l, err)
	}
	// Several goroutines of a node may pick at the same instant, in any order: what they get follows from the instant alone.
	pick := func(n int) int {
		return rand.New(rand.NewPCG(s.seed^uint64(time.Now().UnixNano()), uint64(h.number<<32|l.number))).IntN(n)
	}
	n, err := node.NewIn(node.Options{
		Config: s.config, Name: h.name, Functions: l, Interval: siteInterval, Drain: siteDrain,
	}, node.Surroundings{
		Dial:  l.dial,
		Clock: func() time.Time { return time.Now().Add(h.skew) },
		Pick:  pick,
	})
	if err != nil {
		s.fail("%v has no node: %v", l, err)
	}
	ctx, end := context.WithCancel(context.Background())
	l.end, h.life, s.lives = end, l, append(s.lives, l)
	go func() {
		l.err = n.Run(ctx)
		close(l.ended)
	}()
	s.joins(l)
	s.settle()
}

// kill ends a server's process.
func (s *site) kill(h *siteHost) {
	s.say("%v dies", h.life)
	s.loses(h)
	s.bury(h.life)
	s.settle()
}

// stop has a server stop as SIGTERM does; what happens meanwhile is left to chance.
func (s *site) stop(h *siteHost) {
	s.say("%v is to stop", h.life)
	h.life.stopping = true
	h.life.end()
	s.settle()
}

// stopsInOrder has a server stop, and its database answers: then it leaves nothing behind, save
// what the one before it left, if it had not begun yet.
func (s *site) stopsInOrder(h *siteHost) {
	l := h.life
	if s.away.Load() || l.stopping {
		return
	}
	before := s.lostTasks()
	s.stop(h)
	for range 150 {
		if h.life != l {
			break
		}
		s.goOn(l)
	}
	if h.life == l {
		s.fail("%v does not stop", l)
	}
	for _, t := range s.tasks {
		if !before[t] && t.node == h.name && (t.status == disbatch.StatusClaimed || t.status == disbatch.StatusRunning) {
			s.fail("%v has stopped in order, and %v has status %d", l, t, t.status)
		}
	}
}

// over notes that a server has stopped.
func (s *site) over(l *siteLife) {
	select {
	case <-l.ended:
	default:
		return
	}
	if l.err != nil || !l.stopping {
		s.fail("%v ends: %v", l, l.err)
	}
	s.say("%v has stopped", l)
	s.loses(l.host)
	s.bury(l)
}

// bury ends what a server has left running.
func (s *site) bury(l *siteLife) {
	l.host.life = nil
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	s.cut(l, false)
	l.end()
	l.server.Abandon()
}

// cut ends a life's connections to the database. What was on its way there is lost, or may
// still come; of the signs of life of a host's dead ones only the last, since its successor
// would rightly take more for those of another process.
func (s *site) cut(l *siteLife, lost bool) {
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	signed := false
	for i := len(s.passages) - 1; i >= 0; i-- {
		p := s.passages[i]
		gone := p.life == l && (l.dead && p.call != nil || p.back || p.call == nil && lost)
		if l.dead && p.life.host == l.host && !p.back && strings.HasPrefix(p.what, `{"update":"nodes"`) {
			gone = gone || signed
			signed = true
		}
		if gone {
			p.pass(mongotest.LoseCall)
			s.passages = slices.Delete(s.passages, i, i+1)
		}
	}
}

func (l *siteLife) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

var errAway = errors.New("connection refused")

// refusal is how long that takes. The driver tries again at once.
const refusal = 100 * time.Millisecond

// dial connects a node to the database.
func (l *siteLife) dial(context.Context) (net.Conn, error) {
	if l.isDead() {
		time.Sleep(refusal)
		return nil, errAway
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	near, far := net.Pipe()
	l.conns = append(l.conns, near, far)
	go l.site.double.Talk(far, l)
	return near, nil
}

// passage is something that a node has asked for, or the answer, on its way.
type passage struct {
	life  *siteLife
	what  string
	back  bool   // it is the answer
	call  func() // of the server; else it is a command for the database
	fault mongotest.Fault
	open  chan struct{}
}

func (p *passage) String() string {
	if p.back {
		return fmt.Sprintf("%v is answered %s", p.life, p.what)
	}
	return fmt.Sprintf("%v asks %s", p.life, p.what)
}

// breaks says whether a life waits for it that would see its connection end.
func (p *passage) breaks() bool { return p.call == nil && !p.life.isDead() }

func (p *passage) pass(fault mongotest.Fault) {
	p.fault = fault
	if p.call != nil && !p.life.isDead() {
		p.call()
	}
	close(p.open)
}

// wait waits until the play lets it pass.
func (p *passage) wait() mongotest.Fault {
	p.open = make(chan struct{})
	s := p.life.site
	s.mu.Lock()
	s.arrived = append(s.arrived, p)
	s.mu.Unlock()
	<-p.open
	return p.fault
}

// theRun is in commands and different in each play.
var theRun = regexp.MustCompile(`,"treadle_run":\{"\$oid":"[0-9a-f]*"\}`)

// spoken is a command in words; those of the driver's own affairs have none.
func spoken(command bson.D) string {
	switch command[0].Key {
	case "hello", "ismaster", "isMaster", "endSessions":
		return ""
	}
	text, err := bson.MarshalExtJSON(slices.DeleteFunc(slices.Clone(command), func(e bson.E) bool {
		return e.Key == "lsid" || e.Key == "$db" || e.Key == "maxTimeMS"
	}), false, false)
	if err != nil {
		panic(err) // it came as a document
	}
	return theRun.ReplaceAllString(string(text), "")
}

// Comes implements mongotest.Way.
func (l *siteLife) Comes(command bson.D) mongotest.Fault {
	what := spoken(command)
	switch {
	case l.isDead(), what != "" && l.site.away.Load():
		time.Sleep(refusal)
		return mongotest.LoseCall
	case what == "":
		return mongotest.None
	}
	return (&passage{life: l, what: what}).wait()
}

// Goes implements mongotest.Way.
func (l *siteLife) Goes(command bson.D) (lost bool) {
	what := spoken(command)
	if what == "" {
		return false
	}
	(&passage{life: l, what: what, back: true}).wait()
	return l.site.away.Load()
}

// Submit implements node.Functions.
func (l *siteLife) Submit(function, name string, workload []byte, done func([]byte, error)) (err error) {
	l.calls("a job "+name, func() { err = l.server.Functions().Submit(function, name, workload, done) })
	return err
}

// Withdraw implements node.Functions.
func (l *siteLife) Withdraw(function, name string) (unseen bool) {
	l.calls("to withdraw "+name, func() { unseen = l.server.Functions().Withdraw(function, name) })
	return unseen
}

func (l *siteLife) calls(what string, call func()) {
	if l.isDead() {
		return
	}
	(&passage{life: l, what: what, call: func() {
		call()
		l.server.Settle()
	}}).wait()
}

// siteWorker is a Periodic worker of both functions.
type siteWorker struct {
	life    *siteLife
	number  int
	peer    *loop.OfflinePeer
	heard   []byte
	greeted bool
	task    *siteTask // that it has
	handle  []byte
}

func (w *siteWorker) String() string { return fmt.Sprintf("%v's worker %d", w.life, w.number) }

func (w *siteWorker) asks(cmd periodic.Command, args []byte) {
	w.peer.Send(periodicRequest(&periodic.Frame{MsgID: 1, Cmd: cmd}, periodic.Plain, args))
}

// joins has a worker come.
func (s *site) joins(l *siteLife) {
	l.hired++
	w := &siteWorker{life: l, number: l.hired, peer: l.server.Connect("periodic")}
	w.peer.Send(bytes.Clone(periodicHellos()[plainWorker]))
	for _, function := range []string{"one", "two"} {
		w.asks(periodic.CanDo, periodic.AppendStr8String(nil, function))
	}
	w.asks(periodic.GrabJob, nil)
	l.workers = append(l.workers, w)
}

// works is something that happens to a host's workers.
func (s *site) works(h *siteHost) {
	l := h.life
	if len(l.workers) < 2 || len(l.workers) < 5 && s.rng.IntN(10) == 0 {
		s.joins(l)
	} else if w := l.workers[s.rng.IntN(len(l.workers))]; s.rng.IntN(20) == 0 {
		s.leaves(w)
	} else if w.task != nil {
		s.gives(w, s.rng.IntN(8))
	}
	s.settle()
}

func (s *site) leaves(w *siteWorker) {
	s.say("%v leaves", w)
	if w.task != nil {
		w.task.failed = true
	}
	w.life.workers = slices.DeleteFunc(w.life.workers, func(o *siteWorker) bool { return o == w })
	w.peer.Close()
}

// gives is what a worker says of its task: 0 that it has failed, else that it is done.
func (s *site) gives(w *siteWorker, what int) {
	t := w.task
	w.task = nil
	if what == 0 {
		s.say("%v fails %v", w, t)
		t.failed = true
		w.asks(periodic.WorkFail, w.handle)
	} else {
		s.say("%v does %v", w, t)
		t.result = fmt.Sprintf("%v by %v", t, w)
		w.asks(periodic.WorkDone, append(slices.Clone(w.handle), t.result...))
	}
	w.asks(periodic.GrabJob, nil)
}

// hears has the workers of a host read what they are sent.
func (s *site) hears(l *siteLife) {
	for _, w := range l.workers {
		w.heard = append(w.heard, w.peer.Read()...)
		for len(w.heard) > 0 {
			var r periodic.Response
			n, err := periodic.NextResponse(w.heard, periodic.Plain, periodic.MaxPayload, &r)
			if err != nil || n == 0 {
				s.fail("%v is sent %x: %v", w, w.heard, err)
			}
			if w.greeted {
				handle, j := takeAssign(&simConn{kind: plainWorker}, bytes.Clone(r.Body))
				w.handle, w.task = handle, s.named(string(j.Name))
				s.given(w)
			}
			w.greeted = true
			w.heard = w.heard[n:]
		}
	}
}
