package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"treadle/loop/client"
)

// hub is a built server that speaks dwork on a socket, and HTTP.
type hub struct {
	*process
	socket, data, http string
}

func startHub(t *testing.T, dir string, args ...string) *hub {
	t.Helper()
	h := &hub{socket: filepath.Join(dir, "s"), data: filepath.Join(dir, "data")}
	h.process = start(t, false, append([]string{"serve", "--periodic", "unix://" + filepath.Join(dir, "p"), "--gloom-masters", "off", "--gloom-slaves", "off",
		"--dwork", "unix://" + h.socket, "--kts46", "off", "--kts46-json", "off", "--http", "127.0.0.1:0", "--data", h.data}, args...)...)
	_, h.http, _ = strings.Cut(h.until("protocol=http"), "address=http://")
	h.drain()
	return h
}

// says runs a client command and wants its output and exit code; in want * is any text.
func (h *hub) says(want string, code int, args ...string) {
	h.t.Helper()
	out, errs, got := treadle(h.t, "", append([]string{"dwork", "-s", h.socket}, args...)...)
	if !like(out+errs, want) || got != code {
		h.t.Errorf("%q: exit code %d\n%s%s\nwant exit code %d\n%s", args, got, out, errs, code, want)
	}
}

// like compares with a text in which * is anything.
func like(got, want string) bool {
	parts := strings.Split(want, "*")
	if !strings.HasPrefix(got, parts[0]) {
		return false
	}
	got = got[len(parts[0]):]
	last := len(parts) - 1
	if last == 0 {
		return got == ""
	}
	for _, p := range parts[1:last] {
		i := strings.Index(got, p)
		if i < 0 {
			return false
		}
		got = got[i+len(p):]
	}
	return strings.HasSuffix(got, parts[last])
}

// TestAddfileUpToTheFault: of a file with a task that is refused, all before it are added.
func TestAddfileUpToTheFault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := startHub(t, dir)
	file := filepath.Join(dir, "tasks")
	if err := os.WriteFile(file, []byte("a\nb a\nc\na b\nd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.says("treadle: "+file+": task \"a\": the hub refused the request: its log says why (added before: 3 tasks)\n", 1, "addfile", file)
	h.says("dhub: 3 active tasks, 2 ready.\n", 0, "status")
}

// TestDworkImport moves the tasks of an original hub: those that it had handed out are ready again.
func TestDworkImport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := startHub(t, dir)
	six := filepath.Join("..", "..", "codec", "dwork", "testdata", "saved", "six")
	h.says("6 tasks and 8 dependencies imported\n", 0, "import", six)
	h.says("dhub: 6 active tasks, 1 ready.\n", 0, "status")
	h.says("6 tasks and 8 dependencies imported\n", 0, "import", six) // again: nothing changes
	long := strings.Repeat("x", 300)
	h.says("did t0\ndid t1\ndid "+long+"\ndid chop \"onions\"\n\ndid t5\ndid t4\n", 0, "work", "--", "echo", "did")

	h.says("treadle: cannot import: open "+dir+"/none_th.flat: no such file or directory\n", 1, "import", filepath.Join(dir, "none"))
	write := func(end, text string) {
		if err := os.WriteFile(filepath.Join(dir, "x"+end), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("_th.flat", "")
	write("_tasks.flat", "")
	h.says("treadle: cannot import: "+dir+"/x_th.flat: not a whole file of records, as the original hub saves when it is stopped, at byte 0\n", 1, "import", filepath.Join(dir, "x"))
	const one, two = "\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x00\x00\x00\x00\x00\x00\x02"
	write("_th.flat", "\xfe\x0e\x0bnum_records\x012\xff\x01s\xff\x08"+one+"\xff\x01a\xff\x08"+two)
	write("_tasks.flat", "\xfe\x0e\x0bnum_records\x012\xff\x08"+one+"\xff\x10"+one+one+"\xff\x08"+two+"\xff\x08\x00\x00\x00\x00\x00\x00\x00\x00")
	h.says("treadle: cannot import: 1 tasks wait for each other in a circle, or for such a task: \"s\"; --leave-stuck imports the others\n", 1, "import", filepath.Join(dir, "x"))
	h.says("1 tasks and 0 dependencies imported\n", 0, "import", "--leave-stuck", filepath.Join(dir, "x"))
	h.says("dhub: 1 active tasks, 1 ready.\n", 0, "status")
}

// TestDworkImportJoin: a task that waits for more than one request names waits for all of them.
func TestDworkImportJoin(t *testing.T) {
	t.Parallel()
	const before = 2*maxImportAfter + 1
	dir := t.TempDir()
	h := startHub(t, dir)
	number := func(n int) string { return string([]byte{0, 0, 0, 0, 0, 0, byte(n >> 8), byte(n)}) }
	head := fmt.Sprintf("\xfe\x12\x0bnum_records\x05%d", before+1)
	var names, tasks strings.Builder
	names.WriteString(head + "\xff\x04join\xff\x08" + number(0))
	tasks.WriteString(head + "\xff\x08" + number(0) + "\xff\x08" + number(before))
	for i := range before {
		fmt.Fprintf(&names, "\xff\x07t%06d\xff\x08%s", i, number(i+1))
		tasks.WriteString("\xff\x08" + number(i+1) + "\xff\x10" + number(0) + number(0))
	}
	for end, text := range map[string]string{"_th.flat": names.String(), "_tasks.flat": tasks.String()} {
		if err := os.WriteFile(filepath.Join(dir, "x"+end), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.says(fmt.Sprintf("%d tasks and %d dependencies imported\n", before+1, before), 0, "import", filepath.Join(dir, "x"))
	h.says(fmt.Sprintf("dhub: %d active tasks, %d ready.\n", before+1, before), 0, "status")
}

// TestDworkCommands uses every command of treadle dwork as a user does.
func TestDworkCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := startHub(t, dir)
	h.says("dhub: 0 active tasks, 0 ready.\n", 0, "status")
	h.says("treadle: no task is left\n", 1, "steal", "w")
	h.says("", 1, "steal", "-q", "w")
	h.says("", 0, "create", "chop onions")
	h.says("", 0, "create", "soup", "chop onions", "nosuch")
	h.says("treadle: the hub refused the request: its log says why\n", 1, "create", "chop onions", "soup")
	file := filepath.Join(dir, "tasks")
	if err := os.WriteFile(file, []byte("# tasks\n\nf1\n \"serve \\\"it\\\"\"\tsoup  f1 \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.says("2 tasks added\n", 0, "addfile", file)
	if err := os.WriteFile(file, []byte("x\ny \"cut\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.says("treadle: "+file+": line 2: a quoted name does not end (added before: 0 tasks)\n", 1, "addfile", file)
	if err := os.WriteFile(file, append([]byte("\n"), make([]byte, maxTaskLine+1)...), 0o600); err != nil {
		t.Fatal(err)
	}
	h.says("treadle: "+file+": line 2 has more than 16MiB (added before: 0 tasks)\n", 1, "addfile", file)
	h.says("dhub: 4 active tasks, 2 ready.\n", 0, "status")
	dot := filepath.Join(dir, "g.dot")
	if out, errs, code := treadle(t, "", "dwork", "graph", dot, "--http", h.http); out+errs != "" || code != 0 {
		t.Errorf("graph: exit code %d, %q, %q", code, out, errs)
	}
	text, err := os.ReadFile(dot)
	if want := "digraph dwork {\n\t\"chop onions\" [style=bold];\n\t\"chop onions\" -> \"soup\";\n\t\"soup\";\n\t\"soup\" -> \"serve \\\"it\\\"\";\n" +
		"\t\"f1\" [style=bold];\n\t\"f1\" -> \"serve \\\"it\\\"\";\n\t\"serve \\\"it\\\"\";\n}\n"; err != nil || string(text) != want {
		t.Errorf("the graph is\n%s%v, want\n%s", text, err, want)
	}
	h.says("chop onions\nf1\n", 0, "steal", "-n", "5", "w")
	h.says("treadle: no task is ready\n", 1, "steal", "w")
	h.says("task      f1\norigin    *\nworker    w\nbefore    serve \"it\"\nready     *\nstolen    *\n", 0, "lookup", "f1")
	h.says("treadle: no task \"g\"\n", 1, "lookup", "g")
	h.says("treadle: not complete: \"soup\": the hub has no such task assigned, or not to other\n", 1, "complete", "soup", "--worker", "other")
	h.says("treadle: other does not hold \"f1\"\n", 1, "transfer", "f1", "--worker", "other")
	h.says("", 0, "transfer", "f1", "soup", "--worker", "w")
	h.says("", 0, "exit", "w")
	h.says("treadle: no worker is known as w\n", 1, "exit", "w")
	h.says("chop onions\n", 0, "steal", "gone")
	h.says("treadle: no worker is known as nobody, w\n", 1, "release", "nobody", "gone", "w")
	h.says("did chop onions\ndid soup\ndid f1\ndid serve \"it\"\n", 0, "work", "--", "echo", "did")
	if _, errs, code := treadle(t, "", "dwork", "graph", "/nowhere/g.dot", "--http", "127.0.0.1:1"); code != 3 ||
		errs != "treadle: cannot reach http://127.0.0.1:1: connection refused (is `treadle serve` running? -H or TREADLE_HTTP names it)\n" {
		t.Errorf("graph of nothing: exit code %d, %q", code, errs)
	}
	h.says("treadle: -s (--server) changes nothing for treadle dwork graph: it names the hub, and -H the server whose HTTP this is read from\n", 2, "graph", dot)
}

// TestDworkWorkFails: a failed task is given back; the worker ends, or goes on.
func TestDworkWorkFails(t *testing.T) {
	t.Parallel()
	h := startHub(t, t.TempDir())
	h.says("", 0, "create", "bad")
	h.says("treadle: \"bad\" failed: *treadle: \"bad\" failed and was given back (see --keep-going): *\n", 1, "work", "--", "false")
	h.says("dhub: 1 active tasks, 1 ready.\n", 0, "status")
	h.says("", 0, "create", "good")
	// Once bad has failed three times, it works.
	count := filepath.Join(t.TempDir(), "count")
	h.says("*good\n*treadle: 3 commands failed; their tasks were given back\n", 1, "work", "--keep-going", "--", "sh", "-c",
		`test $1 = good && echo good && exit; echo >>`+count+`; test $(wc -l <`+count+`) -gt 3`, "sh")
	h.says("dhub: 0 active tasks, 0 ready.\n", 0, "status")
	h.says("treadle: dwork work: -j: 0 is below 1*", 2, "work", "-j", "0", "--", "true")
}

// graphRun is a graph that is worked off while the hub is killed again and again.
type graphRun struct {
	mu    sync.Mutex
	after map[string][]string
	sent  map[string]bool // Complete was sent: it may be done
	done  map[string]bool // and acknowledged: it is
	wrong []string

	killAt int // how many have to be done
	kill   func()
}

// taken checks that a task may be handed out now.
func (g *graphRun) taken(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done[name] {
		g.wrong = append(g.wrong, name+" was complete, and came back")
	}
	for _, before := range g.after[name] {
		if !g.sent[before] {
			g.wrong = append(g.wrong, name+" was handed out before "+before+" was complete")
		}
	}
}

func (g *graphRun) note(m map[string]bool, tasks []client.DworkTask) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range tasks {
		m[t.Name] = true
	}
	if g.kill != nil && len(g.done) >= g.killAt {
		g.kill()
		g.kill = nil
	}
}

// worker works under one name until the hub is gone, or says that all is done.
func (g *graphRun) worker(ctx context.Context, socket, location string) (finished bool) {
	h, err := client.DialHub(ctx, socket)
	if err != nil {
		return false
	}
	defer h.Close()
	if err := h.Exit(ctx, location); err != nil && !errors.Is(err, client.ErrNoTask) { // what it held when the hub was killed
		return errors.Is(err, client.ErrAllDone)
	}
	for {
		tasks, err := h.Steal(ctx, location, 1)
		switch {
		case errors.Is(err, client.ErrAllDone):
			return true
		case errors.Is(err, client.ErrNoTask):
			continue
		case err != nil:
			return false
		}
		for _, t := range tasks {
			g.taken(t.Name)
		}
		g.note(g.sent, tasks)
		if _, err := h.Complete(ctx, location, tasks...); err != nil {
			return false
		}
		g.note(g.done, tasks)
	}
}

// TestDworkKilled: the hub is killed with SIGKILL in the middle of a random graph, several
// times. Every task is done in the end, none before those it waits for, and none that was
// acknowledged as complete comes back.
func TestDworkKilled(t *testing.T) {
	longFor(t)
	t.Parallel()
	const tasks, block, workers, kills = 20000, 100, 4, 4
	random := rand.New(rand.NewPCG(6125, 0))
	dir := t.TempDir()
	h := startHub(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g := &graphRun{after: make(map[string][]string), sent: make(map[string]bool), done: make(map[string]bool)}
	maker, err := client.DialHub(ctx, h.socket)
	if err != nil {
		t.Fatal(err)
	}
	var batch []client.DworkTask
	for i := range tasks {
		name := fmt.Sprint("t", i)
		for range random.IntN(4) {
			if i > 0 {
				g.after[name] = append(g.after[name], fmt.Sprint("t", random.IntN(i)))
			}
		}
		batch = append(batch, client.DworkTask{Name: name, Origin: "o", After: g.after[name]})
		if len(batch) == block {
			if err := maker.Create(ctx, batch...); err != nil {
				t.Fatal(err)
			}
			batch = batch[:0]
		}
	}
	maker.Close()
	for kill := 0; ; kill++ {
		if kill < kills { // at a moment of the graph's, not of the clock's: on any machine some is done by then, and some is left
			after := time.Duration(random.IntN(2000)) * time.Microsecond
			g.killAt = len(g.done) + 1 + random.IntN(tasks/(2*kills))
			g.kill = func() { time.AfterFunc(after, func() { _ = h.Process.Signal(syscall.SIGKILL) }) }
		}
		var all sync.WaitGroup
		var finished [workers]bool
		for w := range workers {
			all.Go(func() { finished[w] = g.worker(ctx, h.socket, fmt.Sprint("w", w)) })
		}
		all.Wait()
		if kill >= kills {
			if len(g.wrong) > 0 || len(g.sent) != tasks || slices.Contains(finished[:], false) {
				t.Fatalf("%d of %d tasks were done, finished: %v; wrong: %q", len(g.sent), tasks, finished, g.wrong)
			}
			return
		}
		if slices.Contains(finished[:], true) {
			t.Fatalf("all was done after %d kills: the graph is too small", kill)
		}
		_ = h.Wait()
		h = startHub(t, dir)
	}
}

// TestDworkEscapes: a task's name that holds a terminal's control codes is shown, and does nothing; others are
// printed as they are.
func TestDworkEscapes(t *testing.T) {
	t.Parallel()
	h := startHub(t, t.TempDir())
	const evil = "\x1b]0;mine\a\x9b31m"
	h.says("", 0, "create", "two words é")
	h.says("", 0, "create", evil, "two words é")
	const shown = `"\x1b]0;mine\a\x9b31m"`
	h.says("task      two words é\norigin    *\nbefore    "+shown+"\n*", 0, "lookup", "two words é")
	h.says("task      "+shown+"\norigin    *\nafter     two words é\n*", 0, "lookup", evil)
	h.says("two words é\n", 0, "steal", evil)
	h.says("*\nworker    "+shown+"\n*", 0, "lookup", "two words é")
	h.says("", 0, "complete", "two words é", "--worker", evil)
	h.says(shown+"\n", 0, "steal", "-q", "w")
	h.says(`treadle: no worker is known as x\x1b]0;mine\a\x9b31m`+"\n", 1, "exit", "x"+evil)
}

// TestOneLine: what a terminal would obey is shown; the rest stays.
func TestOneLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain é": "plain é", " two\nlines\n": "two; lines", "\x1b[2J": `\x1b[2J`, "a\x00b\xffc\u200e": `a\x00b\xffc\u200e`, "\ufffd": "\ufffd", "tab\there": `tab\there`,
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
