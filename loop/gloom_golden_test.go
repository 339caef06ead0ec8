package loop

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"treadle/codec/gloom"
)

// A golden file in testdata/gloom has the form of transcripts/gloom.txt. Its first paragraph says what
// it proves. Then it has scenes, each played on a server of its own:
//
//	### words            a scene begins
//	S > {"a":1}          a peer sends a frame, and connects if it has not
//	S > RAW 00 00 00 00  or bytes, which may be no frame
//	S < {"ok":true}      it gets a frame
//	S < (nothing)        it gets no frame for what it sent
//	S < (closed)         the server hangs up
//	-- S closes          the peer hangs up
//	-- S half-closes     the peer sends no more
//
// M, N, A and B are masters, every other letter is a slave. <nest 50> stands for 50 arrays
// in each other, <fill 50> for 50 letters, <tab> for one.
type gloomScene struct {
	title string
	acts  []act // in: the sent bytes, or how the peer leaves
}

func readGloom(t *testing.T, path string) (head string, scenes []*gloomScene) {
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
		if title, ok := strings.CutPrefix(line, "### "); ok {
			scenes = append(scenes, &gloomScene{title: title})
			continue
		}
		if line == "" {
			continue
		}
		words := strings.SplitN(line, " ", 3)
		if len(scenes) == 0 || len(words) != 3 {
			t.Fatalf("%s: cannot read %q", path, line)
		}
		s := scenes[len(scenes)-1]
		switch {
		case words[0] == "--":
			s.acts = append(s.acts, act{line: line, peer: words[1], in: words[2]})
		case words[1] == ">":
			s.acts = append(s.acts, act{line: line, peer: words[0], in: words[2]})
		default:
			last := &s.acts[len(s.acts)-1]
			last.replies = append(last.replies, line)
		}
	}
	return head, scenes
}

func writeGloom(head string, scenes []*gloomScene) string {
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
	return b.String()
}

// shorthands are pairs of a short text in a file and the long text that it stands for.
func shorthands(text string) (pairs []string) {
	for rest := text; ; {
		_, after, ok := strings.Cut(rest, "<")
		if !ok {
			return append(pairs, "<tab>", "\t")
		}
		word, more, _ := strings.Cut(after, ">")
		rest = more
		kind, number, _ := strings.Cut(word, " ")
		n, _ := strconv.Atoi(number)
		switch kind {
		case "nest":
			pairs = append(pairs, "<"+word+">", strings.Repeat("[", n)+strings.Repeat("]", n))
		case "fill":
			pairs = append(pairs, "<"+word+">", strings.Repeat("z", n))
		}
	}
}

// gloomBytes returns the bytes that a line sends.
func gloomBytes(t *testing.T, in string) []byte {
	t.Helper()
	if raw, ok := strings.CutPrefix(in, "RAW "); ok {
		b, err := hex.DecodeString(strings.ReplaceAll(raw, " ", ""))
		if err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		return b
	}
	return gloomFrame(strings.NewReplacer(shorthands(in)...).Replace(in))
}

func gloomFrame(payload string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// gloomLine takes a frame off the front of a peer's input and returns its line.
func gloomLine(name, sent string, got []byte) (line string, rest []byte) {
	payload, n, err := gloom.Next(got, 1<<30)
	if err != nil || n == 0 {
		return "", got
	}
	pairs := shorthands(sent)
	slices.Reverse(pairs)
	return name + " < " + strings.NewReplacer(pairs...).Replace(string(payload)), got[n:]
}

func isMaster(peer string) bool { return strings.Contains("MNAB", peer) }

func gloomGoldens(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/gloom/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	return files
}

// openGloom connects a master or a slave to a loop.
func (w *memServer) openGloom(loop int, master bool) *memConn {
	port := "gloom-slaves"
	if master {
		port = "gloom-masters"
	}
	c := &memConn{w: w, r: w.loops[loop], room: 1 << 40}
	w.Server.conns.add(w.Server.conns.id("gloom"))
	c.s = c.r.open(c, w.loopPort(port))
	w.conns = append(w.conns, c)
	return c
}

// TestGloomGolden plays every scene in memory, in one piece, byte by byte and cut at random places, on
// one loop and on two, and wants the same output. -rewrite writes the output to the file.
func TestGloomGolden(t *testing.T) {
	t.Parallel()
	for _, path := range gloomGoldens(t) {
		head, scenes := readGloom(t, path)
		for i, s := range scenes {
			t.Run(s.title, func(t *testing.T) {
				got := playGloom(t, s, 1, whole)
				if *rewrite {
					scenes[i] = got
					return
				}
				compareGloom(t, "in one piece", s, got)
				compareGloom(t, "byte by byte", s, playGloom(t, s, 2, bytewise))
				for seed := range uint64(3) {
					compareGloom(t, fmt.Sprint("cut with seed ", seed), s, playGloom(t, s, 1+int(seed)%2, cutter(seed)))
				}
			})
		}
		if *rewrite {
			if err := os.WriteFile(path, []byte(writeGloom(head, scenes)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func compareGloom(t *testing.T, how string, want, got *gloomScene) {
	t.Helper()
	for i, a := range want.acts {
		if w, g := strings.Join(a.replies, "\n"), strings.Join(got.acts[i].replies, "\n"); w != g {
			t.Fatalf("%s, after %q:\nwant %s\ngot  %s", how, a.line, w, g)
		}
	}
}

func playGloom(t *testing.T, s *gloomScene, loops int, in cut) *gloomScene {
	t.Helper()
	w := newMemServer(t, Options{Loops: loops})
	type peer struct {
		name string
		told bool
		*memConn
	}
	var peers []*peer
	got := &gloomScene{title: s.title}
	sent := ""
	for _, a := range s.acts {
		a.replies = nil
		i := slices.IndexFunc(peers, func(p *peer) bool { return p.name == a.peer && !p.told })
		if i < 0 {
			i = len(peers)
			peers = append(peers, &peer{name: a.peer, memConn: w.openGloom(i%loops, isMaster(a.peer))})
		}
		actor := peers[i]
		if strings.HasPrefix(a.line, "--") {
			actor.told = true
			actor.close()
		} else {
			sent += a.in
			actor.send(in(gloomBytes(t, a.in))...)
		}
		for _, p := range peers {
			for {
				var line string
				if line, p.read = gloomLine(p.name, sent, p.read); line == "" {
					break
				}
				a.replies = append(a.replies, line)
			}
			if p.closed && !p.told {
				p.told = true
				a.replies = append(a.replies, p.name+" < (closed)")
			}
		}
		if !strings.HasPrefix(a.line, "--") && !slices.ContainsFunc(a.replies, func(r string) bool { return strings.HasPrefix(r, a.peer+" ") }) {
			a.replies = append(a.replies, a.peer+" < (nothing)")
		}
		got.acts = append(got.acts, a)
	}
	return got
}

// TestGloomGoldenEngine plays every scene through real sockets, cut at random places.
func TestGloomGoldenEngine(t *testing.T) {
	t.Parallel()
	for _, path := range gloomGoldens(t) {
		_, scenes := readGloom(t, path)
		for i, s := range scenes {
			t.Run(s.title, func(t *testing.T) { playGloomOnSockets(t, s, 1+i%2, cutter(uint64(i))) })
		}
	}
}

// startGloom runs a server with the two ports of the protocol.
func startGloom(t *testing.T, o Options) *testServer {
	t.Helper()
	o.Gloom.Masters, o.Gloom.Slaves = []string{"tcp://127.0.0.1:0"}, []string{"tcp://127.0.0.1:0"}
	o.Shards, o.Drain = 1, time.Millisecond // a scene may end with a job without a worker
	return startServer(t, o)
}

// dialGloom connects to the masters' port or the slaves'.
func (r *testServer) dialGloom(master bool) *testConn {
	r.t.Helper()
	protocol := "gloom-slaves"
	if master {
		protocol = "gloom-masters"
	}
	for _, l := range r.listening {
		if l.Setting == protocol {
			c, err := net.DialTimeout("tcp", strings.TrimPrefix(l.Address, "tcp://"), patience)
			if err != nil {
				r.t.Fatal(err)
			}
			r.t.Cleanup(func() { c.Close() })
			return &testConn{Conn: c, t: r.t}
		}
	}
	r.t.Fatalf("nothing listens for %s", protocol)
	return nil
}

// nextGloom reads the line of one frame, or of the end.
func (w *testConn) nextGloom(name, sent string) string {
	for {
		line, rest := gloomLine(name, sent, w.in)
		if w.in = rest; line != "" {
			return line
		}
		if err := w.more(); err != nil {
			if len(w.in) > 0 || os.IsTimeout(err) {
				return fmt.Sprintf("%s < %q, %v", name, w.in, err)
			}
			return name + " < (closed)"
		}
	}
}

func playGloomOnSockets(t *testing.T, s *gloomScene, loops int, in cut) {
	t.Helper()
	r := startGloom(t, Options{Loops: loops})
	defer r.stop()
	sent := ""
	names := map[string]*sock{}
	var socks []*sock
	for _, a := range s.acts {
		p := names[a.peer]
		if p == nil || p.gone {
			p = &sock{testConn: r.dialGloom(isMaster(a.peer))}
			p.id = r.newcomer(socks)
			names[a.peer], socks = p, append(socks, p)
		}
		switch {
		case strings.HasSuffix(a.line, "half-closes"):
			p.gone = true
			p.Conn.(*net.TCPConn).CloseWrite()
			p.wantClosed()
			r.until(a.line, func() bool { return r.sessionOf(p.id) == nil })
		case strings.HasPrefix(a.line, "--"):
			p.gone = true
			p.Close()
			r.until(a.line, func() bool { return r.sessionOf(p.id) == nil })
		default:
			sent += a.in
			for _, piece := range in(gloomBytes(t, a.in)) {
				p.SetWriteDeadline(time.Now().Add(patience))
				if _, err := p.Write(piece); err != nil && !slices.Contains(a.replies, a.peer+" < (closed)") {
					t.Fatalf("%q: %v", a.line, err)
				}
			}
			r.digested(p)
		}
		r.turns()
		for _, want := range a.replies {
			name, _, _ := strings.Cut(want, " ")
			q := names[name]
			if strings.HasSuffix(want, "(nothing)") {
				if !q.silent() {
					t.Fatalf("%q: %s got something: %v, %q", a.line, name, q.more(), q.in)
				}
				continue
			}
			if got := q.nextGloom(name, sent); got != want {
				t.Fatalf("%d loops, after %q:\nwant %.300s\ngot  %.300s", loops, a.line, want, got)
			}
			q.gone = q.gone || strings.HasSuffix(want, "(closed)")
		}
	}
	for _, p := range socks {
		if !p.gone && !p.silent() {
			t.Fatal("a peer got more than the file says")
		}
	}
}
