package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pageSite is where the commands of a page run: its server is not at the default addresses, the original's place is
// taken by another Treadle, and files are in a directory of the test.
type pageSite struct {
	t        *testing.T
	dir      string
	original *process
	server   *process
}

func (p *pageSite) path(name string) string { return filepath.Join(p.dir, name) }

// begin starts a server as the page does, in place of the one before.
func (p *pageSite) begin(words []string) {
	p.t.Helper()
	if len(words) < 2 || words[0] != "--bind" || words[1] != "0.0.0.0" {
		p.t.Fatalf("the page starts a server by %q", words)
	}
	p.end()
	more := words[2:]
	for i, w := range more {
		if w == "treadle-data" {
			more[i] = p.path(w)
		}
	}
	if len(more) == 0 {
		more = []string{"--data", "none"}
	}
	p.server = start(p.t, false, append([]string{"serve", "--periodic", "unix://" + p.path("s"), "--gloom-masters", "unix://" + p.path("m"), "--gloom-slaves", "unix://" + p.path("sl"),
		"--dwork", "off", "--kts46", "off", "--kts46-json", "off", "--http", "off"}, more...)...)
	for range 3 {
		p.server.until("listening")
	}
	p.server.drain()
}

func (p *pageSite) end() {
	if p.server != nil {
		p.server.stop()
		p.server = nil
	}
}

// do runs a command to its end and checks its output, when the page shows that.
func (p *pageSite) do(c pageCommand) (out string) {
	p.t.Helper()
	args := make([]string, 0, len(c.words))
	for _, w := range c.words {
		switch w {
		case "/tmp/periodic.sock":
			w = p.path("original")
		case "jobs.dump", "back.dump":
			w = p.path(w)
		}
		args = append(args, w)
	}
	out, errs, code := treadle(p.t, "", args...)
	if code != 0 || c.prompt && out != c.outputs {
		p.t.Errorf("treadle %q: exit code %d, %q, %s; want %q", c.words, code, out, errs, c.outputs)
	}
	return out
}

func (p *pageSite) startOriginal() {
	p.original = serve(p.t, p.path("original"))
	p.original.drain()
}

// TestPeriodicPage runs the commands of the page in their order, a move of a site and back among them.
func TestPeriodicPage(t *testing.T) {
	p := &pageSite{t: t, dir: t.TempDir()}
	t.Setenv("TREADLE_HOST", "unix://"+p.path("s"))
	p.startOriginal()
	u := user{t, p.path("original")}
	u.gets("", "submit mail alice -w hello")
	const jobs = `.*\nmail +0 +1 .*`
	commands := pageCommands(t, "periodic.md")
	for i, c := range commands {
		switch last := c.words[len(c.words)-1]; {
		case c.words[0] == "serve":
			p.begin(c.words[1:])
		case last == "shutdown" && c.words[0] == "-H":
			p.do(c)
			p.original.exit(0)
		case last == "shutdown":
			p.do(c)
			p.server.exit(0)
			p.server = nil
			p.startOriginal() // the page says so in words
		case last == "status" && i > 2:
			if out := p.do(c); !strings.Contains(out, "mail") {
				t.Errorf("behind the move STATUS is %q", out)
			}
		default:
			p.do(c)
		}
	}
	u.eventually(jobs, "status")
	if len(commands) != 13 {
		t.Errorf("the page has %d commands", len(commands))
	}
	p.original.stop()
}

// TestGloomPage is TestPeriodicPage for that page.
func TestGloomPage(t *testing.T) {
	p := &pageSite{t: t, dir: t.TempDir()}
	t.Setenv("TREADLE_HOST", "unix://"+p.path("s"))
	t.Setenv("TREADLE_GLOOM_MASTERS", "unix://"+p.path("m"))
	t.Setenv("TREADLE_GLOOM_SLAVES", "unix://"+p.path("sl"))
	commands := pageCommands(t, "gloom.md")
	var worker *process
	for _, c := range commands {
		switch {
		case c.words[0] == "serve":
			p.begin(c.words[1:])
		case len(c.words) > 2 && c.words[1] == "work":
			worker = start(t, false, c.words...)
			worker.until("waiting")
			worker.drain()
		case c.words[0] == "status": // when the slave has found the new server
			user{t, p.path("s")}.eventually(`.*\necho +1 .*`, "status")
		default:
			p.do(c)
		}
	}
	if len(commands) != 5 {
		t.Errorf("the page has %d commands", len(commands))
	}
	if worker != nil {
		worker.signal(os.Interrupt)
	}
	p.end()
}
