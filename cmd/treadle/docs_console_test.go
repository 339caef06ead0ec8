package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// session is where the commands of a page run as written: its own directory, servers on sockets there, and the
// program on PATH. Only addresses are the test's own.
type session struct {
	t       *testing.T
	dir     string
	env     []string
	server  *process
	http    string
	workers []*process
	count   int
}

func newSession(t *testing.T) *session {
	dir := t.TempDir()
	path := "PATH=" + filepath.Dir(binary) + string(os.PathListSeparator) + os.Getenv("PATH")
	s := &session{t: t, dir: dir, env: append(os.Environ(), path, "TREADLE_SERVE_KTS46=off", "TREADLE_SERVE_KTS46_JSON=off", "TREADLE_SERVE_HTTP=127.0.0.1:0")}
	for setting, variable := range map[string]string{"PERIODIC": "HOST", "GLOOM_MASTERS": "GLOOM_MASTERS", "GLOOM_SLAVES": "GLOOM_SLAVES", "DWORK": "DWORK"} {
		address := "unix://" + filepath.Join(dir, setting)
		s.env = append(s.env, "TREADLE_SERVE_"+setting+"="+address, "TREADLE_"+variable+"="+address)
	}
	return s
}

// command returns a command in the directory and environment of the session.
func (s *session) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

// start starts treadle in the session.
func (s *session) start(args ...string) *process {
	s.t.Helper()
	return startBy(s.t, false, s.command(binary, args...), (*exec.Cmd).Start)
}

// write writes a file of the session's directory.
func (s *session) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// run carries out one command and compares its output with what the page shows, in which three dots are
// anything. An output that begins with "treadle: " is that of a command that fails.
func (s *session) run(line, shown string) {
	s.t.Helper()
	s.count++
	front, background := strings.CutSuffix(strings.TrimSuffix(line, " worker=$!"), " &")
	words := pageWords(front)
	switch {
	case len(words) > 1 && words[1] == "serve":
		s.begin(words[2:])
	case background:
		worker := s.start(words[1:]...)
		worker.until("waiting for jobs")
		worker.drain()
		s.workers = append(s.workers, worker)
	case words[0] == "kill": // the worker that was started last
		if len(s.workers) == 0 {
			s.t.Fatalf("%s: the page has no worker", line)
		}
		s.workers[len(s.workers)-1].stop()
		s.workers = s.workers[:len(s.workers)-1]
	case words[0] == "curl":
		reply, err := s.curl(words[1:])
		if err != nil {
			s.t.Fatal(err)
		}
		defer reply.Body.Close()
		if body, err := io.ReadAll(reply.Body); err != nil || !like(columns(string(body)), pattern(shown)) {
			s.t.Errorf("%s: %q, %v; want %q", line, body, err, shown)
		}
	default:
		var out, errs bytes.Buffer
		cmd := s.command("sh", "-c", line)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		got, refused := out.String(), strings.HasPrefix(shown, "treadle: ")
		if refused {
			got = errs.String()
		}
		if (err != nil) != refused || !like(columns(got), pattern(shown)) {
			s.t.Errorf("%s: %v\n%s%s\nthe page shows\n%s", line, err, out.String(), errs.String(), shown)
		}
		if strings.HasSuffix(line, "treadle shutdown") && err == nil {
			s.server.exit(0)
			s.server = nil
		}
	}
}

// curl sends the request of a curl command with the flags -s, -H and -d.
func (s *session) curl(words []string) (*http.Response, error) {
	method, body, head := http.MethodGet, "", http.Header{}
	url := ""
	for i := 0; i < len(words); i++ {
		switch words[i] {
		case "-s":
		case "-H":
			i++
			name, value, _ := strings.Cut(words[i], ": ")
			head.Set(name, value)
		case "-d":
			i++
			method, body = http.MethodPost, words[i]
		default:
			url = strings.Replace(words[i], "127.0.0.1:5001", s.http, 1)
		}
	}
	ask, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	ask.Header = head
	return http.DefaultClient.Do(ask)
}

// columns returns a text without the spaces that align its columns.
func columns(text string) string {
	return strings.TrimSpace(regexp.MustCompile(`  +`).ReplaceAllString(text, "  "))
}

// pattern returns the output on a page as a pattern for like: three dots, or a line of them, match any text.
func pattern(shown string) string {
	return strings.ReplaceAll(strings.ReplaceAll(columns(shown), "\n...", "*"), "...", "*")
}

// begin starts a server in place of the one before, with the flags that the page gives.
func (s *session) begin(flags []string) {
	s.end()
	s.server = s.start(append([]string{"serve"}, flags...)...)
	line := s.server.until("protocol=http")
	_, s.http, _ = strings.Cut(line, "address=http://")
	s.env = append(s.env, "TREADLE_HTTP="+s.http)
	s.server.drain()
}

func (s *session) end() {
	if s.server != nil {
		s.server.stop()
		s.server = nil
	}
}

// codeBlock is a code block of a page: its language and its text.
var codeBlock = regexp.MustCompile("(?sm)^```(\\w*)\n(.*?)^```$")

// console runs the commands behind a prompt in the code blocks of a page, and returns how many there were. A program
// whose first line is a comment with a file's name is written to that file.
func (s *session) console(text string) int {
	for _, found := range codeBlock.FindAllStringSubmatch(text, -1) {
		block := found[2]
		if name := regexp.MustCompile(`^# (\w+\.\w+)\n`).FindStringSubmatch(block); name != nil {
			s.write(name[1], block)
		}
		if found[1] != "" || !strings.HasPrefix(block, "$ ") {
			continue
		}
		for _, part := range strings.Split(block, "$ ")[1:] {
			line, shown, _ := strings.Cut(part, "\n")
			s.run(line, shown)
		}
	}
	for _, worker := range s.workers {
		worker.signal(os.Interrupt)
	}
	s.end()
	return s.count
}

// TestDocsConsole runs the commands of the pages that no other test runs, in their order.
func TestDocsConsole(t *testing.T) {
	t.Parallel()
	// The files of a hub that was stopped: serve after soup after chop.
	const head, one, two, three = "\xfe\x0e\x0bnum_records\x013", "\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x00\x00\x00\x00\x00\x00\x02", "\x00\x00\x00\x00\x00\x00\x00\x03"
	files := map[string]string{
		"PREFIX_th.flat":    head + "\xff\x04chop\xff\x08" + one + "\xff\x04soup\xff\x08" + two + "\xff\x05serve\xff\x08" + three,
		"PREFIX_tasks.flat": head + "\xff\x08" + one + "\xff\x10" + strings.Repeat("\x00", 8) + two + "\xff\x08" + two + "\xff\x10" + one + three + "\xff\x08" + three + "\xff\x08" + one,
	}
	for topic, want := range map[string]int{"quickstart": 16, "failures": 23, "pages": 3, "api": 10, "mail": 10, "policies": 22, "cron": 11, "concepts": 3, "operations": 37, "metrics": 2, "security": 3, "settings": 2, "dwork": 12, "troubleshooting": 1} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			text, err := page(topic)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := exec.LookPath("python3"); err != nil && topic == "mail" {
				t.Skip("this machine has no python3")
			}
			s := newSession(t)
			for name, text := range files {
				s.write(name, text)
			}
			if topic == "concepts" { // it tells of a server that is there
				s.begin(nil)
			}
			if got := s.console(text); got != want {
				t.Errorf("%d commands", got)
			}
		})
	}
}

// TestReadmeCommands does the first job as the README's first screen tells, and holds its length.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	text := everyPage(t)["README.md"]
	s := newSession(t)
	blocks := strings.Split(text, "```")
	var lines []string
	for i := 1; i < len(blocks); i += 2 {
		if code, ok := strings.CutPrefix(blocks[i], "sh\n"); ok {
			lines = append(lines, strings.Split(strings.TrimSpace(code), "\n")...)
		}
	}
	for _, line := range lines {
		command, note, _ := strings.Cut(line, " # ")
		command = strings.TrimPrefix(strings.TrimSpace(command), "bin/")
		switch {
		case command == "make run":
			s.begin(nil)
		case strings.HasPrefix(command, "treadle work "):
			s.run(command+" &", "")
		case strings.HasPrefix(note, "prints "):
			s.run(command, strings.Trim(note, `prints "`))
		default:
			s.run(command, "...")
		}
	}
	if len(lines) != 5 {
		t.Errorf("the README has %d commands", len(lines))
	}
	if words := len(strings.Fields(text)); words > 1000 {
		t.Errorf("the README has %d words: what is more belongs in a page", words)
	}
	for _, worker := range s.workers {
		worker.signal(os.Interrupt)
	}
	s.end()
}
