package loop

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"treadle/sched"
)

// TestGoldenEngine plays every conversation through real sockets, cut at random places, and wants the file's
// output.
func TestGoldenEngine(t *testing.T) {
	t.Parallel()
	for _, path := range goldens(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			for seed := range uint64(2) {
				playOnSockets(t, readScript(t, path), []string{"unix", "tcp"}[seed], 1+int(seed), cutter(seed+100))
			}
		})
	}
}

// sock is a peer of a script on a real connection.
type sock struct {
	*ear
	*testConn
	id   sched.SessionID
	gone bool // the server or the peer has closed the connection
}

func playOnSockets(t *testing.T, s *script, network string, loops int, in cut) {
	t.Helper()
	clock := &manualClock{time: sched.Time{Wall: s.start * 1000, Mono: 1000}}
	s.options.Loops, s.options.Shards = loops, 1
	r := startServer(t, s.options, func(s *Server) { s.clock = clock.now })
	defer r.stop()
	names := &handles{make(map[string]string)}
	var socks []*sock
	find := func(name string) *sock {
		for _, p := range socks {
			if p.name == name {
				return p
			}
		}
		return nil
	}
	stopped := false
	for i, a := range s.acts {
		p := find(a.peer)
		if a.peer != "" && p == nil {
			p = &sock{ear: &ear{name: a.peer, names: names}, testConn: r.dial(network), id: r.newcomer(socks)}
			socks = append(socks, p)
		}
		switch {
		case a.in != "" && !p.gone:
			b, err := p.bytes(a.in)
			if err != nil {
				t.Fatalf("%q: %v", a.line, err)
			}
			stopped = i == len(s.acts)-1 && strings.HasSuffix(a.in, "14") // SHUTDOWN
			for _, piece := range in(b) {
				if _, err := p.Write(piece); err != nil && !slices.Contains(a.replies, a.peer+" S>C (closed)") {
					t.Fatalf("%q: %v", a.line, err)
				}
			}
			if !stopped {
				r.digested(p)
			}
		case a.in == "" && a.peer != "":
			p.gone = true
			p.Close()
			r.until(a.line, func() bool { return r.sessionOf(p.id) == nil })
		case a.wait > 0 || strings.HasPrefix(a.line, "clock +"):
			clock.advance(a.wait.Milliseconds(), r.tick)
		}
		if !stopped {
			r.turns()
		}
		for _, want := range a.replies {
			name, _, _ := strings.Cut(want, " ")
			if got := find(name).hears(want); got != want {
				t.Fatalf("%s, %d loops, line %q:\nwant %s\ngot  %s", network, loops, a.line, want, got)
			}
		}
	}
	if stopped {
		r.wait()
		return
	}
	for _, p := range socks {
		if !p.gone && !p.silent() {
			t.Fatalf("%s got more than the file says", p.name)
		}
	}
}

// hears returns the line of a peer's next input, where want is expected.
func (p *sock) hears(want string) string {
	switch {
	case strings.HasSuffix(want, "(nothing)"):
		if !p.gone && !p.silent() {
			return fmt.Sprintf("%s got %x, %v", p.name, p.in, p.more())
		}
		return want
	case strings.HasSuffix(want, "(closed)"):
		p.gone = true
		if rest := p.wantClosed(); len(rest) > 0 {
			return fmt.Sprintf("%x", rest)
		}
		return want
	}
	for {
		line, rest := p.ear.next(p.in)
		p.in = rest
		if line != "" {
			return line
		}
		if err := p.more(); err == io.EOF {
			return p.name + " S>C (closed)"
		} else if err != nil {
			return err.Error()
		}
	}
}

// newcomer returns the session of the peer that has just connected.
func (r *testServer) newcomer(known []*sock) (id sched.SessionID) {
	r.t.Helper()
	r.until("a session", func() (found bool) {
		r.eachReactor(func(re *reactor) {
			for s := range re.sessions.all() {
				if !slices.ContainsFunc(known, func(p *sock) bool { return p.id == s.ID }) {
					id, found = s.ID, true
				}
			}
		})
		return found
	})
	return id
}

// sessionOf returns the session of an id; its fields are the reactor's.
func (r *testServer) sessionOf(id sched.SessionID) (found *session) {
	r.eachReactor(func(re *reactor) {
		if re.index == loopOf(id) {
			found = re.sessions.get(id)
		}
	})
	return found
}

// digested waits until the server has handled all bytes that a peer has sent.
func (r *testServer) digested(p *sock) {
	r.t.Helper()
	r.until("the server to read", func() (ok bool) {
		r.eachReactor(func(re *reactor) {
			if re.index == loopOf(p.id) {
				s := re.sessions.get(p.id)
				if ok = s == nil; s != nil && p.arrived() {
					n, err := unix.IoctlGetInt(s.conn.(interface{ Fd() int }).Fd(), unix.TIOCINQ)
					ok = err == nil && n == 0
				}
			}
		})
		return ok
	})
}
