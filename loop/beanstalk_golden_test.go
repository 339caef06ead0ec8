package loop

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A golden file in testdata/beanstalk has a first paragraph that says what it proves, and scenes. Each is played on a
// server of its own:
//
//	### words                  a scene begins
//	A > put 0 0 60 1\r\na\r\n  a client sends bytes, and connects if it has not
//	A < INSERTED 1\r\n         it gets bytes, all together
//	A < (nothing)              it gets nothing for what it sent
//	A < (closed)               the server hangs up
//	A closes                   the client hangs up
//	A half-closes              the client sends no more
//	wait 1500ms                time passes
//
// Bytes are written as in Go, without quotes. <fill 50> stands for 50 letters. Numbers and names of the process and the
// machine are left out of the data of stats.
const (
	beanstalkCaptured = "testdata/beanstalk/captured.txt" // what beanstalkd answered
	beanstalkOwn      = "testdata/beanstalk/own.txt"      // where Treadle answers otherwise
)

// captureBeanstalk makes TestBeanstalkCapture write the answers of the installed beanstalkd.
var captureBeanstalk = flag.Bool("capture-beanstalk", false, "write testdata/beanstalk/captured.txt from the answers of the installed beanstalkd")

type beanstalkScene struct {
	title string
	acts  []act
}

func readBeanstalk(t *testing.T, path string) (head string, scenes []*beanstalkScene) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := strings.Cut(string(text), "\n\n")
	if !ok || !strings.HasPrefix(head, "# ") {
		t.Fatalf("%s does not begin with a paragraph that says what it proves", path)
	}
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.SplitN(line, " ", 3)
		switch {
		case line == "":
		case words[0] == "###":
			scenes = append(scenes, &beanstalkScene{title: strings.TrimPrefix(line, "### ")})
		case len(scenes) == 0 || len(words) < 2:
			t.Fatalf("%s: cannot read %q", path, line)
		case words[1] == "<":
			acts := scenes[len(scenes)-1].acts
			acts[len(acts)-1].replies = append(acts[len(acts)-1].replies, line)
		default:
			a := act{line: line, peer: words[0]}
			if words[1] == ">" {
				a.in = words[2]
			}
			if words[0] == "wait" {
				if a.wait, err = time.ParseDuration(words[1]); err != nil {
					t.Fatal(err)
				}
				a.peer = ""
			}
			s := scenes[len(scenes)-1]
			s.acts = append(s.acts, a)
		}
	}
	return head, scenes
}

func writeBeanstalk(t *testing.T, path, head string, scenes []*beanstalkScene) {
	t.Helper()
	var b strings.Builder
	b.WriteString(head + "\n")
	for _, s := range scenes {
		b.WriteString("\n### " + s.title + "\n")
		for _, a := range s.acts {
			b.WriteString(a.line + "\n")
			for _, r := range a.replies {
				b.WriteString(r + "\n")
			}
		}
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// beanstalkBytes returns the bytes that a line sends.
func beanstalkBytes(t *testing.T, in string) []byte {
	t.Helper()
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.NewReplacer(shorthands(in)...).Replace(in), `"`, `\"`) + `"`)
	if err != nil {
		t.Fatalf("%q: %v", in, err)
	}
	return []byte(text)
}

var (
	// beanstalkVaries finds the values of stats that differ from run to run.
	beanstalkVaries = regexp.MustCompile(`\n(pid|rusage-utime|rusage-stime|uptime|total-connections|id|hostname|os|platform): [^\n]*`)
	beanstalkLength = regexp.MustCompile(`OK [0-9]+\r\n`)
	beanstalkFill   = regexp.MustCompile(`z{40,}`)
)

// beanstalkLine writes what a client got.
func beanstalkLine(name string, got []byte) string {
	text := string(got)
	if strings.Contains(text, "\ncurrent-connections: ") {
		text = beanstalkVaries.ReplaceAllString(beanstalkLength.ReplaceAllString(text, "OK N\r\n"), "\n$1: V")
	}
	text = beanstalkFill.ReplaceAllStringFunc(text, func(z string) string { return fmt.Sprintf("<fill %d>", len(z)) })
	text = strconv.Quote(text)
	return name + " < " + strings.ReplaceAll(text[1:len(text)-1], `\"`, `"`)
}

// beanstalkTarget is a server that scenes are played on.
type beanstalkTarget interface {
	dial() beanstalkPeer
	pass(d time.Duration)
}

type beanstalkPeer interface {
	sendAll(b []byte)
	leave(half bool)
	// taken returns what has come since the last call; closed reports whether the server has hung up.
	taken() (got []byte, closed bool)
}

// playBeanstalk plays a scene and returns it with the server's answers.
func playBeanstalk(t *testing.T, s *beanstalkScene, server beanstalkTarget) *beanstalkScene {
	t.Helper()
	type client struct {
		name string
		gone bool
		beanstalkPeer
	}
	var clients []*client
	got := &beanstalkScene{title: s.title}
	for _, a := range s.acts {
		a.replies = nil
		var actor *client
		if i := slices.IndexFunc(clients, func(c *client) bool { return c.name == a.peer }); i >= 0 {
			actor = clients[i]
		} else if a.peer != "" {
			actor = &client{name: a.peer, beanstalkPeer: server.dial()}
			clients = append(clients, actor)
		}
		switch {
		case a.in != "":
			actor.sendAll(beanstalkBytes(t, a.in))
		case actor != nil:
			half := strings.HasSuffix(a.line, "half-closes")
			actor.leave(half)
			actor.gone = !half
		}
		server.pass(a.wait)
		for _, c := range clients {
			if c.gone {
				continue
			}
			in, closed := c.taken()
			if len(in) > 0 {
				a.replies = append(a.replies, beanstalkLine(c.name, in))
			}
			if closed {
				c.gone = true
				a.replies = append(a.replies, c.name+" < (closed)")
			}
		}
		if a.in != "" && !slices.ContainsFunc(a.replies, func(r string) bool { return strings.HasPrefix(r, a.peer+" ") }) {
			a.replies = append(a.replies, a.peer+" < (nothing)")
		}
		got.acts = append(got.acts, a)
	}
	for _, c := range clients {
		if !c.gone {
			c.leave(false)
		}
	}
	return got
}

// beanstalkMemory plays on a server in memory.
type beanstalkMemory struct {
	*memServer
	in cut
	n  int
}

func newBeanstalkMemory(t *testing.T, loops int, in cut) *beanstalkMemory {
	return &beanstalkMemory{memServer: newMemServer(t, Options{Loops: loops}), in: in}
}

func (b *beanstalkMemory) dial() beanstalkPeer {
	c := b.openBeanstalk(b.n % len(b.loops))
	b.n++
	return &beanstalkMemoryPeer{c, b}
}

// openBeanstalk connects a client to a loop.
func (w *memServer) openBeanstalk(loop int) *memConn { return w.openPort(loop, "beanstalk") }

// openPort connects a client of a protocol whose one port has its name.
func (w *memServer) openPort(loop int, protocol string) *memConn {
	c := &memConn{w: w, r: w.loops[loop], room: 1 << 40}
	w.Server.conns.add(w.Server.conns.id(protocol))
	c.s = c.r.open(c, w.loopPort(protocol))
	w.conns = append(w.conns, c)
	return c
}

// pass lets time pass in steps, so that alarms ring on time.
func (b *beanstalkMemory) pass(d time.Duration) {
	const step = 10
	for ms := d.Milliseconds(); ; ms -= step {
		b.advance(min(max(ms, 0), step))
		b.runTimers()
		if ms <= step {
			return
		}
	}
}

type beanstalkMemoryPeer struct {
	*memConn
	server *beanstalkMemory
}

func (p *beanstalkMemoryPeer) sendAll(b []byte) { p.send(p.server.in(b)...) }

func (p *beanstalkMemoryPeer) leave(half bool) {
	if half && !p.closed {
		p.r.halfClose(p.s)
	}
	p.close()
}

// taken lets as much time pass as a client on a socket listens.
func (p *beanstalkMemoryPeer) taken() ([]byte, bool) {
	p.server.pass(beanstalkQuiet)
	got := p.read
	p.read = nil
	return got, p.closed
}

// TestBeanstalkGolden plays every scene in memory, in one piece, byte by byte and cut at random places, on one loop and
// on two. -rewrite writes the output to the file with Treadle's own answers; captured ones are never rewritten.
func TestBeanstalkGolden(t *testing.T) {
	t.Parallel()
	for _, path := range []string{beanstalkCaptured, beanstalkOwn} {
		head, scenes := readBeanstalk(t, path)
		for i, s := range scenes {
			t.Run(s.title, func(t *testing.T) {
				got := playBeanstalk(t, s, newBeanstalkMemory(t, 1, whole))
				if *rewrite && path == beanstalkOwn {
					scenes[i] = got
					return
				}
				compareBeanstalk(t, "in one piece", s, got)
				compareBeanstalk(t, "byte by byte", s, playBeanstalk(t, s, newBeanstalkMemory(t, 2, bytewise)))
				for seed := range uint64(2) {
					compareBeanstalk(t, fmt.Sprint("cut with seed ", seed), s, playBeanstalk(t, s, newBeanstalkMemory(t, 1+int(seed), cutter(seed))))
				}
			})
		}
		if *rewrite && path == beanstalkOwn {
			writeBeanstalk(t, path, head, scenes)
		}
	}
}

func compareBeanstalk(t *testing.T, how string, want, got *beanstalkScene) {
	t.Helper()
	for i, a := range want.acts {
		if w, g := strings.Join(a.replies, "\n"), strings.Join(got.acts[i].replies, "\n"); w != g {
			t.Fatalf("%s, after %q:\nwant %s\ngot  %s", how, a.line, w, g)
		}
	}
}

// beanstalkd is a server on a socket: the installed beanstalkd, or Treadle.
type beanstalkd struct {
	t       testing.TB
	address string
}

// beanstalkQuiet is how long a client listens behind what it gets. In memory as much time passes.
const beanstalkQuiet = 100 * time.Millisecond

// startBeanstalkd runs the installed beanstalkd, or skips the test where there is none.
func startBeanstalkd(t testing.TB) *beanstalkd {
	t.Helper()
	path, err := exec.LookPath("beanstalkd")
	if err != nil {
		t.Skip("beanstalkd is not installed: its answers are not compared")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(address)
	child := exec.Command(path, "-l", "127.0.0.1", "-p", port)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	for deadline := time.Now().Add(patience); ; {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return &beanstalkd{t, address}
		}
		if time.Now().After(deadline) {
			t.Fatal("beanstalkd does not listen")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (b *beanstalkd) dial() beanstalkPeer {
	c, err := net.Dial("tcp", b.address)
	if err != nil {
		b.t.Fatal(err)
	}
	return &beanstalkConn{c.(*net.TCPConn), b}
}

func (b *beanstalkd) pass(d time.Duration) { time.Sleep(d) }

type beanstalkConn struct {
	*net.TCPConn
	server *beanstalkd
}

func (c *beanstalkConn) sendAll(b []byte) {
	if _, err := c.Write(b); err != nil {
		c.server.t.Fatal(err)
	}
}

func (c *beanstalkConn) leave(half bool) {
	if half {
		_ = c.CloseWrite()
		return
	}
	_ = c.Close()
}

func (c *beanstalkConn) taken() (got []byte, closed bool) {
	b := make([]byte, 1<<16)
	for {
		_ = c.SetReadDeadline(time.Now().Add(beanstalkQuiet))
		n, err := c.Read(b)
		got = append(got, b[:n]...)
		if err != nil {
			return got, !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// TestBeanstalkCapture plays the captured scenes on the installed beanstalkd and writes its answers.
func TestBeanstalkCapture(t *testing.T) {
	t.Parallel()
	if !*captureBeanstalk {
		t.Skip("it writes a golden file, with -capture-beanstalk alone")
	}
	head, scenes := readBeanstalk(t, beanstalkCaptured)
	for i, s := range scenes {
		scenes[i] = playBeanstalk(t, s, startBeanstalkd(t))
	}
	writeBeanstalk(t, beanstalkCaptured, head, scenes)
}
