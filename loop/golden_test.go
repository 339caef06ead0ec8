package loop

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"treadle/codec/periodic"
)

// A golden file is a conversation in the form of the captures of the reference servers. Its first
// paragraph says what it proves. Then:
//
//	server grab=document max-frame=2048   settings, at most once, first
//	clock 1795239475                      the time at which it begins
//	clock +1500ms                         time passes
//	## words                              a heading
//	NAME C>S hex                          a peer sends, and connects if it has not
//	NAME S>C hex                          a frame that it gets
//	NAME S>C (nothing)                    it gets no frame for what it sent
//	NAME S>C (closed)                     the server hangs up
//	NAME closes                           the peer hangs up
//
// Values that differ from run to run have names: <id> is a connection's id, <f/n> is the handle of
// job n of function f, with its length byte; the size in front does not count it. Lines of the server
// are its output in the test, all other lines are the test's acts.

// script is a parsed golden file: acts, each with the lines that it causes.
type script struct {
	name    string
	head    string // the first paragraph
	options Options
	start   int64 // unix seconds
	acts    []act
}

// act is one act of the test.
type act struct {
	line    string
	peer    string        // the acting peer; "" for the clock and for headings
	in      string        // the sent bytes in hex; "" when the peer leaves
	wait    time.Duration // how much time passes
	replies []string
}

func readScript(t *testing.T, path string) *script {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, body, ok := strings.Cut(string(text), "\n\n")
	if !ok || !strings.HasPrefix(head, "# ") {
		t.Fatalf("%s does not begin with a paragraph that says what it proves", path)
	}
	s := &script{name: strings.TrimSuffix(filepath.Base(path), ".txt"), head: head}
	for i, line := range strings.Split(strings.TrimSuffix(body, "\n"), "\n") {
		if err := s.parse(strings.TrimSpace(line)); err != nil {
			t.Fatalf("%s, line %d: %v", path, strings.Count(head, "\n")+3+i, err)
		}
	}
	return s
}

func (s *script) parse(line string) (err error) {
	words := strings.Fields(line)
	switch {
	case line == "" || strings.HasPrefix(line, "#"):
		s.acts = append(s.acts, act{line: line})
	case words[0] == "server":
		s.acts = append(s.acts, act{line: line})
		return s.set(words[1:])
	case words[0] == "clock" && words[1][0] != '+':
		s.start, err = strconv.ParseInt(words[1], 10, 64)
		s.acts = append(s.acts, act{line: line})
	case words[0] == "clock":
		a := act{line: line}
		a.wait, err = time.ParseDuration(words[1][1:])
		s.acts = append(s.acts, a)
	case len(words) == 2 && words[1] == "closes":
		s.acts = append(s.acts, act{line: line, peer: words[0]})
	case len(words) == 3 && words[1] == "C>S":
		s.acts = append(s.acts, act{line: line, peer: words[0], in: words[2]})
	case len(words) == 3 && words[1] == "S>C" && len(s.acts) > 0:
		last := &s.acts[len(s.acts)-1]
		last.replies = append(last.replies, line)
	default:
		err = fmt.Errorf("cannot read %q", line)
	}
	return err
}

func (s *script) set(settings []string) (err error) {
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		switch name {
		case "grab":
			s.options.Periodic.Grab = value
		case "shutdown":
			s.options.Periodic.Shutdown = value
		case "crc":
			s.options.Periodic.CRC = value
		case "max-frame":
			s.options.MaxFrame, err = strconv.Atoi(value)
		case "handshake-timeout":
			s.options.HandshakeTimeout, err = time.ParseDuration(value)
		case "frame-timeout":
			s.options.FrameTimeout, err = time.ParseDuration(value)
		default:
			err = fmt.Errorf("no setting is called %q", name)
		}
	}
	return err
}

// String writes the file again.
func (s *script) String() string {
	var b strings.Builder
	b.WriteString(s.head + "\n\n")
	for _, a := range s.acts {
		indent := "   "
		if a.line == "" || a.line[0] == '#' || strings.HasPrefix(a.line, "server") || s.start > 0 && strings.HasPrefix(a.line, "clock 1") {
			indent = ""
		}
		b.WriteString(indent + a.line + "\n")
		for _, r := range a.replies {
			b.WriteString("   " + r + "\n")
		}
	}
	return b.String()
}

// ear turns the bytes that one peer gets into lines, and its lines into bytes.
type ear struct {
	name     string
	names    *handles
	framing  periodic.Framing
	worker   bool
	welcomed bool
}

// handles maps the handles of jobs that workers hold to names, and back.
type handles struct{ byJob map[string]string }

// bytes returns the bytes that a line sends.
func (e *ear) bytes(in string) ([]byte, error) {
	handleLen := 0
	for job, handle := range e.names.byJob {
		if strings.Contains(in, "<"+job+">") {
			in = strings.Replace(in, "<"+job+">", handle, 1)
			handleLen = len(handle) / 2
		}
	}
	b, err := hex.DecodeString(in)
	if handleLen > 0 && err == nil {
		resize(b, handleLen)
	}
	if err == nil && !e.welcomed && len(b) > 8 {
		e.worker = b[len(b)-1] == byte(periodic.Worker)
		if b[8] != byte(periodic.Client) && b[8] != byte(periodic.Worker) {
			e.framing = periodic.CRC
		}
	}
	return b, err
}

// resize changes the size in a frame's header.
func resize(frame []byte, by int) {
	binary.BigEndian.PutUint32(frame[4:], uint32(int(binary.BigEndian.Uint32(frame[4:]))+by))
}

// next takes one frame off the front of a peer's input and returns its line; "" when it is incomplete.
func (e *ear) next(got []byte) (line string, rest []byte) {
	var r periodic.Response
	n, err := periodic.NextResponse(got, e.framing, periodic.MaxPayload, &r)
	if err != nil {
		return fmt.Sprintf("%s S>C %x, which is no frame: %v", e.name, got, err), nil
	}
	if n == 0 {
		return "", got
	}
	text := hex.EncodeToString(got[:n])
	head := 2 * e.framing.HeaderLen()
	switch {
	case !e.welcomed:
		e.welcomed = true
		text = text[:head+2*(n-head/2-4)] + "<id>"
		if e.framing == periodic.CRC { // the checksum is that of the id
			text = text[:16] + "<sum>" + text[24:]
		}
	case e.worker && e.framing == periodic.Plain && len(r.Body) > 1 && r.Body[0] == byte(periodic.JobAssign):
		text = e.naming(got[:n], r.Body[1:])
	}
	return e.name + " S>C " + text, got[n:]
}

// naming writes a JOB_ASSIGN with the job's name in place of its handle.
func (e *ear) naming(frame, body []byte) string {
	handle, record, _ := periodic.Str8(body)
	var j periodic.Job
	if _, err := periodic.ParseJob(record, &j); err != nil {
		return hex.EncodeToString(frame)
	}
	job := fmt.Sprintf("%s/%s", j.Func, j.Name)
	h := hex.EncodeToString(periodic.AppendStr8(nil, handle))
	e.names.byJob[job] = h
	frame = slices.Clone(frame)
	resize(frame, -len(h)/2)
	return strings.Replace(hex.EncodeToString(frame), h, "<"+job+">", 1)
}

// goldens returns the names of all golden files.
func goldens(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	return files
}

// TestGolden plays every conversation in memory. With -rewrite it writes the server's output to the
// file. Without, it also plays each with the input cut at every byte and at random places, on one loop
// and on two, and wants the same output.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, path := range goldens(t) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			want := readScript(t, path)
			got := playInMemory(t, want, 1, whole)
			if *rewrite {
				if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			compare(t, "in one piece", want, got)
			compare(t, "byte by byte", want, playInMemory(t, want, 2, bytewise))
			for seed := range uint64(5) {
				what := fmt.Sprintf("cut with seed %d", seed)
				compare(t, what, want, playInMemory(t, want, 1+int(seed)%2, cutter(seed)))
			}
		})
	}
}

func compare(t *testing.T, how string, want, got *script) {
	t.Helper()
	w, g := strings.Split(want.String(), "\n"), strings.Split(got.String(), "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			t.Fatalf("%s, line %d:\nwant %s\ngot  %s", how, i+1, a, b)
		}
	}
}

// A cut splits a peer's bytes into pieces.
type cut func(b []byte) [][]byte

func whole(b []byte) [][]byte { return [][]byte{b} }

func bytewise(b []byte) [][]byte { return slices.Collect(slices.Chunk(b, 1)) }

func cutter(seed uint64) cut {
	rng := rand.New(rand.NewPCG(seed, 1))
	return func(b []byte) (pieces [][]byte) {
		for len(b) > 0 {
			n := 1 + rng.IntN(min(len(b), 1+rng.IntN(64)))
			pieces = append(pieces, b[:n])
			b = b[n:]
		}
		return pieces
	}
}

// playInMemory plays a script and returns it with the server's output.
func playInMemory(t *testing.T, s *script, loops int, in cut) *script {
	t.Helper()
	s.options.Loops = loops
	w := newMemServer(t, s.options)
	if s.start > 0 {
		w.manual.time.Wall = s.start * 1000
	}
	type peer struct {
		*ear
		*memConn
		told bool // the end of the connection is noted
	}
	var peers []*peer
	names := &handles{make(map[string]string)}
	got := *s
	got.acts = nil
	for _, a := range s.acts {
		a.replies = nil
		var actor *peer
		for _, p := range peers {
			if p.name == a.peer {
				actor = p
			}
		}
		if a.peer != "" && actor == nil {
			actor = &peer{ear: &ear{name: a.peer, names: names}, memConn: w.open(len(peers) % loops)}
			peers = append(peers, actor)
		}
		switch {
		case a.in != "":
			b, err := actor.bytes(a.in)
			if err != nil {
				t.Fatalf("%q: %v", a.line, err)
			}
			actor.send(in(b)...)
		case a.peer != "":
			actor.told = true
			actor.close()
		default:
			w.advance(a.wait.Milliseconds())
		}
		for _, p := range peers {
			a.replies = append(a.replies, p.listen(p.memConn)...)
			if p.closed && !p.told {
				p.told = true
				a.replies = append(a.replies, p.name+" S>C (closed)")
			}
		}
		if a.in != "" && !slices.ContainsFunc(a.replies, func(r string) bool { return strings.HasPrefix(r, a.peer+" ") }) {
			a.replies = append(a.replies, a.peer+" S>C (nothing)")
		}
		got.acts = append(got.acts, a)
		if w.stopped {
			break
		}
	}
	return &got
}

// listen returns the lines of all bytes that a connection got.
func (e *ear) listen(c *memConn) (lines []string) {
	for {
		var line string
		if line, c.read = e.next(c.read); line == "" {
			return lines
		}
		lines = append(lines, line)
	}
}

// request writes a request in hex, for tests that make their own.
func request(id uint32, cmd periodic.Command, args ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, id)
	b = append(b, byte(cmd))
	for _, a := range args {
		b = append(b, a...)
	}
	return append(binary.BigEndian.AppendUint32([]byte("\x00REQ"), uint32(len(b))), b...)
}
