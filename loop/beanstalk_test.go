package loop

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	codec "treadle/codec/admin"
	"treadle/codec/periodic"
)

// stalk is a client of beanstalkd's protocol on a socket.
type stalk struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// beanstalkOn starts a server with a journal on the disk, and returns a function that connects clients.
func (d *disk) beanstalkOn(t *testing.T) (r *testServer, dial func() *stalk) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "b")
	r = d.on(t, Options{Beanstalk: BeanstalkOptions{Listen: []string{"unix://" + path}}})
	return r, func() *stalk { return dialStalk(t, path) }
}

func dialStalk(t *testing.T, path string) *stalk {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &stalk{t, c, bufio.NewReader(c)}
}

func (s *stalk) sends(request string) {
	s.t.Helper()
	if _, err := io.WriteString(s, request+"\r\n"); err != nil {
		s.t.Fatal(err)
	}
}

// hears wants exactly these bytes next.
func (s *stalk) hears(want string) {
	s.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(s.in, got)
	if err != nil || string(got) != want {
		s.t.Fatalf("got %q, %v, want %q", got[:n], err, want)
	}
}

func (s *stalk) asks(request, want string) {
	s.t.Helper()
	s.sends(request)
	s.hears(want)
}

// silent reports whether nothing has come, once another client has seen what the request before did: the server handles
// one at a time.
func (s *stalk) silent() bool {
	_ = s.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // a wrong reply may come later; a right one never comes before
	_, err := s.in.Peek(1)
	_ = s.SetReadDeadline(time.Now().Add(patience))
	return err != nil
}

// data asks for data and returns its lines.
func (s *stalk) data(request string) (lines []string) {
	s.t.Helper()
	s.sends(request)
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			s.t.Fatal(err)
		}
		if line == "\r\n" {
			return lines
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
}

// shows asks for data that must have lines.
func (s *stalk) shows(request string, want ...string) {
	s.t.Helper()
	got := s.data(request)
	for _, line := range want {
		if !slices.Contains(got, line) {
			s.t.Errorf("%s: no %q in %q", request, line, got)
		}
	}
}

// TestBeanstalkAfterSync checks that put, release, bury, kick, kick-job and delete are answered when they are on disk,
// that the replies behind them wait too, and that other connections do not.
func TestBeanstalkAfterSync(t *testing.T) {
	t.Parallel()
	d := newDisk()
	_, dial := d.beanstalkOn(t)
	c, other := dial(), dial()
	reserve := func() { c.asks("reserve", "RESERVED 1 1\r\na\r\n") }
	for _, each := range []struct{ request, reply, key, value string }{
		{"put 0 0 60 1\r\na", "INSERTED 1\r\n", "current-jobs-ready", "1"},
		{"release 1 0 900", "RELEASED\r\n", "current-jobs-delayed", "1"},
		{"kick-job 1", "KICKED\r\n", "current-jobs-ready", "1"},
		{"bury 1 0", "BURIED\r\n", "current-jobs-buried", "1"},
		{"kick 9", "KICKED 1\r\n", "current-jobs-ready", "1"},
		{"delete 1", "DELETED\r\n", "current-jobs-ready", "0"},
	} {
		if strings.HasPrefix(each.request, "release") || strings.HasPrefix(each.request, "bury") {
			reserve()
		}
		d.gate.Lock()
		c.sends(each.request)
		c.sends("list-tube-used")
		for deadline := time.Now().Add(patience); !slices.Contains(other.data("stats-tube default"), each.key+": "+each.value); {
			if time.Now().After(deadline) {
				t.Fatalf("%s has no effect", each.request)
			}
		}
		if !c.silent() {
			t.Errorf("%s is answered before it is on disk", each.request)
		}
		d.gate.Unlock()
		c.hears(each.reply + "USING default\r\n")
	}
}

// TestBeanstalkRestart checks that ids go on over restarts, that jobs keep their states, priorities and counts, and
// that a reserved job is ready again.
func TestBeanstalkRestart(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r, dial := d.beanstalkOn(t)
	c := dial()
	c.asks("put 7 0 60 1\r\na\r\nput 5 0 70 1\r\nb\r\nput 3 900 60 1\r\nc\r\nput 1 0 60 1\r\nd", "INSERTED 1\r\nINSERTED 2\r\nINSERTED 3\r\nINSERTED 4\r\n")
	c.asks("reserve\r\nreserve", "RESERVED 4 1\r\nd\r\nRESERVED 2 1\r\nb\r\n")
	c.asks("bury 2 9\r\nrelease 4 1 0\r\nreserve", "BURIED\r\nRELEASED\r\nRESERVED 4 1\r\nd\r\n")
	c.asks("put 0 0 60 1\r\ne\r\ndelete 5", "INSERTED 5\r\nDELETED\r\n")
	r.stop()
	_, dial = d.beanstalkOn(t)
	c = dial()
	c.asks("put 9 0 60 1\r\nf", "INSERTED 6\r\n")
	c.asks("peek-buried\r\npeek-delayed", "FOUND 2 1\r\nb\r\nFOUND 3 1\r\nc\r\n")
	c.shows("stats-job 2", "id: 2", "tube: default", "state: buried", "pri: 9", "delay: 0", "ttr: 70", "reserves: 1", "timeouts: 0", "releases: 0", "buries: 1", "kicks: 0")
	c.shows("stats-job 3", "state: delayed", "pri: 3", "delay: 900", "ttr: 60", "reserves: 0")
	c.asks("reserve", "RESERVED 4 1\r\nd\r\n")
	c.shows("stats-job 4", "state: reserved", "pri: 1", "delay: 0", "ttr: 60", "reserves: 3", "releases: 1", "buries: 0")
	c.asks("reserve\r\nreserve", "RESERVED 1 1\r\na\r\nRESERVED 6 1\r\nf\r\n")
}

// stalks sends a request in memory and wants the reply.
func (c *memConn) stalks(request, want string) {
	c.w.t.Helper()
	c.send([]byte(request + "\r\n"))
	c.w.settle()
	if got := string(c.read); got != want {
		c.w.t.Errorf("%q is answered %q, want %q", request, got, want)
	}
	c.read = nil
}

// TestBeanstalkRefusals checks the words for what the server and the policy of a queue refuse. A policy refuses a put
// that has a number already.
func TestBeanstalkRefusals(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b")
	r := startServer(t, Options{Beanstalk: BeanstalkOptions{Listen: []string{"unix://" + path}, MaxJob: 20}, Admin: AdminOptions{Rules: []PolicyRule{
		{Pattern: "paused", Values: map[string]string{"paused": "submits"}}, {Pattern: "small", Values: map[string]string{"max-payload": "2"}}, {Pattern: "few", Values: map[string]string{"max-jobs": "1"}},
	}}})
	c := dialStalk(t, path)
	c.asks("use paused\r\nput 0 0 60 1\r\na", "USING paused\r\nDRAINING\r\n")
	c.asks("use small\r\nput 0 0 60 3\r\nabc\r\nput 0 0 60 2\r\nab", "USING small\r\nJOB_TOO_BIG\r\nINSERTED 3\r\n")
	c.asks("use few\r\nput 0 0 60 1\r\na\r\nput 0 0 60 1\r\nb", "USING few\r\nINSERTED 4\r\nOUT_OF_MEMORY\r\n")
	c.asks("put 0 0 60 21\r\n"+strings.Repeat("x", 21)+"\r\nlist-tube-used", "JOB_TOO_BIG\r\nUSING few\r\n")
	r.stopping.Store(true)
	c.asks("use default\r\nput 0 0 60 1\r\na", "USING default\r\nDRAINING\r\n")
	r.stopping.Store(false)
}

// TestPausedTubeShows checks that a pause by pause-tube is among the queues and the reasons of a job.
func TestPausedTubeShows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "b")
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Beanstalk: BeanstalkOptions{Listen: []string{"unix://" + path}}})
	dialStalk(t, path).asks("use slow\r\nput 0 0 60 1\r\na\r\npause-tube slow 100", "USING slow\r\nINSERTED 1\r\nPAUSED\r\n")
	a := api{t, r}
	if q := a.queue("slow"); q.Paused != "hand-out" || q.PausedBy != "pause-tube" || !strings.HasPrefix(q.PausedWhy, "for ") {
		t.Errorf("%+v", q)
	}
	var d codec.JobDetails
	if a.do(http.MethodGet, "/job?queue=slow&name=1", "", nil, &d); len(d.Why) == 0 || !strings.HasPrefix(d.Why[0].Text, "queue paused by pause-tube, for ") {
		t.Errorf("%+v", d.Why)
	}
}

// TestBeanstalkFatal checks that a connection ends when what it sends are no requests, and that its replies come first.
func TestBeanstalkFatal(t *testing.T) {
	t.Parallel()
	for in, last := range map[string]string{
		strings.Repeat("x", 8<<10):                      "BAD_FORMAT\r\n",
		"list-tube-used\r\nput 0 0 0 4294967295\r\nabc": "USING default\r\nJOB_TOO_BIG\r\n",
	} {
		w := newMemServer(t, Options{Loops: 1})
		c := w.openBeanstalk(0)
		c.send([]byte(in))
		if got := string(c.read); got != last || !c.closed {
			t.Errorf("%.40q is answered %q, closed %v, want %q", in, got, c.closed, last)
		}
	}
	w := newMemServer(t, Options{Loops: 1, FrameTimeout: time.Minute})
	c := w.openBeanstalk(0)
	slow := &beanstalkMemory{memServer: w}
	c.send([]byte("put 0 0 0 100000\r\nabc"))
	slow.pass(59 * time.Second)
	c.send([]byte("more of it"))
	if c.closed {
		t.Error("a job that is too large ends the connection before --frame-timeout")
	}
	slow.pass(2 * time.Second)
	if !c.closed {
		t.Error("a job that is too large may stay unfinished for ever")
	}
	c = w.openBeanstalk(0)
	slow.pass(time.Hour)
	c.stalks("put 0 0 0 100000\r\n"+strings.Repeat("x", 100_000), "JOB_TOO_BIG\r\n")
	slow.pass(time.Hour)
	c.stalks("list-tube-used", "USING default\r\n")
}

// TestBeanstalkAcross checks that workers of Periodic do jobs that were put, and the other way round.
func TestBeanstalkAcross(t *testing.T) {
	t.Parallel()
	for loops := range 2 {
		w := newMemServer(t, Options{Loops: loops + 1})
		c := w.openBeanstalk(0)
		c.stalks("use f\r\nput 1024 0 60 2\r\n\x00a", "USING f\r\nINSERTED 1\r\n")
		p := w.worker(loops, "f")
		p.frames()
		p.grabs(9, 1)
		handle, j := assigned(t, p.frames()[0])
		if string(j.Name) != "1" || string(j.Workload) != "\x00a" || j.Timeout != 60 {
			t.Errorf("a Periodic worker is assigned %+v", j)
		}
		c.stalks("delete 1", "NOT_FOUND\r\n")
		p.send(request(10, periodic.WorkFail, handle))
		c.stalks("peek-ready", "FOUND 1 2\r\n\x00a\r\n")
		p.grabs(11, 1)
		handle, _ = assigned(t, p.frames()[0])
		p.send(request(12, periodic.WorkDone, handle, nil))
		c.stalks("peek 1", "NOT_FOUND\r\n")
		p.close()

		client := w.join(loops, periodic.Client)
		client.send(request(1, periodic.RunJob, job("f", "run", 'w')))
		c.send([]byte("watch f\r\nreserve\r\n"))
		var id uint64
		if _, err := fmt.Sscanf(string(c.read), "WATCHING 2\r\nRESERVED %d 1\r\nw\r\n", &id); err != nil {
			t.Fatalf("%q: %v", c.read, err)
		}
		c.read = nil
		c.stalks(fmt.Sprintf("touch %d\r\nrelease %[1]d 0 0\r\nreserve-with-timeout 0", id), fmt.Sprintf("TOUCHED\r\nRELEASED\r\nRESERVED %d 1\r\nw\r\n", id))
		c.stalks(fmt.Sprintf("delete %d", id), "DELETED\r\n")
		if got := client.frames(); len(got) != 1 || len(got[0].Body) != 0 {
			t.Errorf("RUN_JOB receives %+v", got)
		}
	}
}

// reserved reserves a job in memory and returns its id. The rest of the reply is as wanted.
func (c *memConn) reserved(want string) (id uint64) {
	c.w.t.Helper()
	c.send([]byte("reserve\r\n"))
	got := string(c.read)
	c.read = nil
	if _, err := fmt.Sscanf(got, "RESERVED %d ", &id); err != nil || got != fmt.Sprintf("RESERVED %d %d\r\n%s\r\n", id, len(want), want) {
		c.w.t.Fatalf("reserve is answered %q, want a job of %q", got, want)
	}
	return id
}

// TestBeanstalkDoesOthers checks what workers of beanstalkd's protocol receive of Gloom jobs and dwork tasks, and
// what their reports make of these.
func TestBeanstalkDoesOthers(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	master, c := w.openGloom(0, true), w.openBeanstalk(0)
	c.stalks("watch f\r\nwatch dwork", "WATCHING 2\r\nWATCHING 3\r\n")
	master.asks(`"i"`, `"f"`, `,"body":{"a":1}`)
	for range 3 { // each is a death of its worker
		c.stalks(fmt.Sprintf("bury %d 0", c.reserved(`{"a":1}`)), "BURIED\r\n")
	}
	if got := master.heard(); len(got) > 0 {
		t.Errorf("the master hears %q of a job that goes on", got)
	}
	c.stalks(fmt.Sprintf("delete %d", c.reserved(`{"a":1}`)), "DELETED\r\n")
	if got := master.heard(); len(got) != 1 || !strings.Contains(got[0], `"i"`) || !strings.Contains(got[0], `""`) {
		t.Errorf("the master hears %q of a job that is deleted", got)
	}
	w.dwork(`type: Create task { name: "t" origin: "o" }`)
	id := c.reserved(`{"name":"t","origin":"o"}`)
	c.stalks(fmt.Sprintf("peek %d\r\nrelease %[1]d 0 0", id), fmt.Sprintf("FOUND %d 25\r\n{\"name\":\"t\",\"origin\":\"o\"}\r\nRELEASED\r\n", id))
	c.stalks(fmt.Sprintf("delete %d", c.reserved(`{"name":"t","origin":"o"}`)), "DELETED\r\n")
	c.stalks("reserve-with-timeout 0", "TIMED_OUT\r\n")
}

// TestBeanstalkSpaceNumber checks the number of the name space, which is on disk for ever.
func TestBeanstalkSpaceNumber(t *testing.T) {
	t.Parallel()
	if got := spaces[7].Protocol; got != "beanstalk" {
		t.Errorf("space 7 belongs to %q", got)
	}
}
