package loop

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/codec/faktory"
)

// A golden file in testdata/faktory begins with a paragraph that says what it proves. Then it has scenes, each played
// on a server of its own:
//
//	### words            a scene begins
//	A > PUSH {...}       a client sends a line, and connects if it has not
//	A < +OK              it receives a reply; $ comes before the data of a bulk reply, $-1 is none
//	A < (closed)         the server hangs up
//	-- A closes          the client hangs up
//	-- 2s                so much time passes
//
// <fill 50> stands for 50 letters. Chance is shown as <chance>: a salt, the jid of another protocol's job, and the
// part of a time that the back-off decides. In captured.txt, which Faktory gives too, all times are shown as <time>
// and the texts of errors as <text>.
type faktoryScene struct {
	title string
	acts  []act
}

var faktoryChance = regexp.MustCompile(`"jid":"[0-9a-f]{32}"|"next_at":"[^"]*"|"s":"[0-9a-f]+"|"i":[0-9]+|"uptime":-?[0-9]+`)

// faktoryRetried is the time at which the back-off has enqueued a job with a failure.
var faktoryRetried = regexp.MustCompile(`"enqueued_at":"[^"]*"`)

// faktoryTime is any time.
var faktoryTime = regexp.MustCompile(`"[0-9]{4}-[0-9]{2}-[0-9]{2}T[^"]*"`)

// hideCaptured hides in a line of replies what Faktory and Treadle cannot have in common.
func hideCaptured(line string) string {
	if head, _, isError := strings.Cut(line, " < -ERR "); isError {
		return head + " < -ERR <text>"
	}
	return faktoryTime.ReplaceAllString(line, `"<time>"`)
}

func hideChance(text string) string {
	if strings.Contains(text, `"failure":`) {
		text = faktoryRetried.ReplaceAllString(text, `"enqueued_at":"<chance>"`)
	}
	return faktoryChance.ReplaceAllStringFunc(text, func(found string) string {
		name, _, _ := strings.Cut(found, ":")
		return name + `:"<chance>"`
	})
}

func readFaktory(t *testing.T, path string) (head string, scenes []*faktoryScene) {
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
			scenes = append(scenes, &faktoryScene{title: title})
			continue
		}
		if line == "" {
			continue
		}
		s := scenes[len(scenes)-1]
		switch words := strings.SplitN(line, " ", 3); {
		case words[0] == "--" && len(words) == 2:
			wait, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			s.acts = append(s.acts, act{line: line, wait: wait})
		case words[0] == "--":
			s.acts = append(s.acts, act{line: line, peer: words[1]})
		case words[1] == ">":
			s.acts = append(s.acts, act{line: line, peer: words[0], in: strings.TrimPrefix(line, words[0]+" > ")})
		default:
			last := &s.acts[len(s.acts)-1]
			last.replies = append(last.replies, line)
		}
	}
	return head, scenes
}

func writeFaktory(head string, scenes []*faktoryScene) string {
	var b strings.Builder
	b.WriteString(head + "\n")
	for _, s := range scenes {
		b.WriteString("\n### " + s.title + "\n")
		for _, a := range s.acts {
			b.WriteString(strings.Join(append([]string{a.line}, a.replies...), "\n") + "\n")
		}
	}
	return b.String()
}

// faktoryLine takes a reply off the front of a client's input and returns its line.
func faktoryLine(name string, got []byte) (line string, rest []byte) {
	kind, data, n, err := faktory.NextReply(got, 1<<30)
	switch {
	case err != nil:
		return fmt.Sprintf("%s < %q is no reply", name, got), nil
	case n == 0:
		return "", got
	case kind == faktory.Null:
		return name + " < $-1", got[n:]
	case kind == faktory.Bulk:
		return name + " < $ " + hideChance(string(data)), got[n:]
	}
	return name + " < " + hideChance(string(kind)+string(data)), got[n:]
}

func (w *memServer) openFaktory(loop int) *memConn {
	c := &memConn{w: w, r: w.loops[loop], room: 1 << 40}
	w.Server.conns.add(w.Server.conns.id("faktory"))
	c.s = c.r.open(c, w.loopPort("faktory"))
	w.conns = append(w.conns, c)
	w.settle()
	return c
}

// settleOffloads is settle until the work off the event loops is done, too.
func (w *memServer) settleOffloads() {
	for w.runTimers(); ; w.runTimers() {
		if len(w.offloads) > 0 {
			if !w.waitForPush() {
				w.t.Fatal("work beside the loops never ends")
			}
		} else if !slices.ContainsFunc(w.conns, func(c *memConn) bool { return !c.closed && c.s.paused && !c.s.suspended }) {
			w.runTimers()
			return
		}
	}
}

// TestFaktoryGolden plays every scene in memory, in one piece, byte by byte and cut at random places, on one loop and
// on two, and wants the same output. -rewrite writes the output to the file, but for captured.txt, which is
// Faktory's.
func TestFaktoryGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/faktory/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range files {
		head, scenes := readFaktory(t, path)
		hide, captured := func(line string) string { return line }, filepath.Base(path) == "captured.txt"
		if captured {
			hide = hideCaptured
		}
		for i, s := range scenes {
			t.Run(s.title, func(t *testing.T) {
				got := playFaktory(t, s, 1, whole, hide)
				if *rewrite && !captured {
					scenes[i] = got
					return
				}
				compareFaktory(t, "in one piece", s, got)
				compareFaktory(t, "byte by byte", s, playFaktory(t, s, 2, bytewise, hide))
				for seed := range uint64(3) {
					compareFaktory(t, fmt.Sprint("cut with seed ", seed), s, playFaktory(t, s, 1+int(seed)%2, cutter(seed), hide))
				}
			})
		}
		if *rewrite && !captured {
			if err := os.WriteFile(path, []byte(writeFaktory(head, scenes)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func compareFaktory(t *testing.T, how string, want, got *faktoryScene) {
	t.Helper()
	for i, a := range want.acts {
		if w, g := strings.Join(a.replies, "\n"), strings.Join(got.acts[i].replies, "\n"); w != g {
			t.Fatalf("%s, after %q:\nwant %s\ngot  %s", how, a.line, w, g)
		}
	}
}

func playFaktory(t *testing.T, s *faktoryScene, loops int, in cut, hide func(string) string) *faktoryScene {
	t.Helper()
	o := Options{Loops: loops}
	if strings.Contains(s.title, "password") {
		o.Faktory.PasswordFile = filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(o.Faktory.PasswordFile, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newMemServer(t, o)
	type peer struct {
		name string
		told bool
		*memConn
	}
	var peers []*peer
	got := &faktoryScene{title: s.title}
	for _, a := range s.acts {
		a.replies = nil
		if a.wait > 0 {
			w.advance(a.wait.Milliseconds())
		} else {
			i := slices.IndexFunc(peers, func(p *peer) bool { return p.name == a.peer && !p.told })
			if i < 0 {
				i = len(peers)
				peers = append(peers, &peer{name: a.peer, memConn: w.openFaktory(i % loops)})
			}
			if a.in == "" {
				peers[i].told = true
				peers[i].close()
			} else {
				peers[i].send(in([]byte(strings.NewReplacer(shorthands(a.in)...).Replace(a.in) + "\r\n"))...)
			}
		}
		w.settleOffloads()
		for _, p := range peers {
			for {
				var line string
				if line, p.read = faktoryLine(p.name, p.read); line == "" {
					break
				}
				a.replies = append(a.replies, hide(line))
			}
			if p.closed && !p.told {
				p.told = true
				a.replies = append(a.replies, p.name+" < (closed)")
			}
		}
		got.acts = append(got.acts, a)
	}
	return got
}
