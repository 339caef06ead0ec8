package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCompletionWords: the program proposes commands, flags, values of flags, and the queues of a server.
func TestCompletionWords(t *testing.T) {
	t.Parallel()
	server, o, u := operated(t)
	for _, name := range []string{"mail.a 1", "mail.b 1", "zoo 1", "zoo 13", "zoo 2"} {
		u.gets("", "submit "+name)
	}
	f := func(want string, words ...string) {
		t.Helper()
		out, errs, code := treadle(t, "", append([]string{"completion", "words", "--"}, words...)...)
		var got []string
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			got = append(got, word)
		}
		if code != 0 || errs != "" || strings.Join(got, " ") != want {
			t.Errorf("%q: exit code %d, %q, %q; want %q", words, code, got, errs, want)
		}
	}
	f("cron", "cro")
	f("drain empty list pause resume rules set show unset", "queue", "")
	f("--json", "queue", "list", "--j")
	f("--host", "queue", "--ho")
	f("once skip", "cron", "add", "--missed", "")
	f("skip", "cron", "add", "--missed", "s")
	f("skip", "cron", "add", "--missed", "=", "s")
	f("once skip", "cron", "add", "--missed", "=")
	f("", "work", "f", "--", "--t")
	f("mail.a mail.b zoo", "-H", o.host, "queue", "show", "")
	f("zoo", "--host", "=", "unix", ":", "//"+o.host, "queue", "show", "z")
	f("mail.a mail.b", "--host="+o.host, "queue", "show", "mail")
	f("mail.a mail.b", "-H", o.host, "queue", "pause", "--submits", "--why", "x", "mail")
	f("", "-H", o.host, "queue", "show", "zoo", "")
	f("zoo", "-H", o.host, "job", "show", "z")
	f("1 13", "-H", o.host, "job", "retry", "zoo", "1")
	f("", "-H", o.host, "job", "retry", "1.2.3", "1")
	f("mail.a mail.b zoo", "-H", o.host, "job", "move", "")
	f("queue:mail.a queue:mail.b", "-H", o.host, "job", "list", "queue:m")
	f("queue:mail.a", "-H", o.host, "job", "list", "queue", ":", "mail.a")
	f("text:x queue:zoo", "-H", o.host, "job", "list", "'text:x queue:z")
	f("state:failed", "job", "list", "state:fa")
	f("state:ready,failed", "job", "list", "state:ready,f")
	f("age: id: name: prio: priority: protocol: queue: state: text: worker:", "job", "remove", "--filter", "")
	f("table wide", "job", "list", "-o", "")
	f("", "-H", "127.0.0.1:1", "queue", "show", "")
	server.stop()
}

// TestCompletionScripts: the shells understand their scripts, and complete with them. A machine may lack a shell.
func TestCompletionScripts(t *testing.T) {
	t.Setenv("PATH", filepath.Dir(binary)+":/usr/bin:/bin")
	dir := t.TempDir()
	for shell, ask := range map[string]string{
		"bash": `source <(treadle completion bash); COMP_WORDS=(treadle queue "$1"); COMP_CWORD=2; _treadle; printf '%s\n' "${COMPREPLY[@]}"; complete -p treadle >&2`,
		"zsh":  `compdef() { :; }; source <(treadle completion zsh); _describe() { print -l -- ${found%%:*}; }; words=(treadle queue "$1"); CURRENT=3; _treadle`,
		"fish": `treadle completion fish | source; complete -C "treadle queue $argv[1]" | string split -f1 \t`,
	} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skipf("this machine has no %s", shell)
			}
			args := []string{"-c", ask, shell, "ru"}
			if shell == "fish" {
				args = []string{"-c", ask, "ru"}
			}
			cmd := exec.Command(shell, args...)
			cmd.Dir = dir
			out, err := cmd.Output()
			if err != nil || strings.TrimSpace(string(out)) != "rules" {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	for shell, c := range map[string]struct{ ask, want string }{ // bash takes the part behind a colon for a word of its own
		"bash": {`source <(treadle completion bash); COMP_WORDS=(treadle job list state : fa); COMP_CWORD=5; _treadle; printf '%s\n' "${COMPREPLY[@]}"`, "failed"},
		"fish": {`treadle completion fish | source; complete -C "treadle job list state:fa" | string split -f1 \t`, "state:failed"},
	} {
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		cmd := exec.Command(shell, "-c", c.ask)
		cmd.Dir = dir
		if out, err := cmd.Output(); err != nil || strings.TrimSpace(string(out)) != c.want {
			t.Errorf("%s completes a filter with %q, %v", shell, out, err)
		}
	}
	script := outputOf(t, "completion", "bash")
	cmd := exec.Command("bash", "-n")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("bash -n: %v, %s", err, out)
	}
}

// TestManual: the page has each command with its flags, and man takes it without a warning. A machine may lack man.
func TestManual(t *testing.T) {
	t.Parallel()
	text := outputOf(t, "print", "man")
	program, err := newParser(&cli{}, &console{}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range program.Model.Leaves(true) {
		section := ".SS \"" + plain("treadle "+command.Summary()) + "\"\n"
		_, behind, found := strings.Cut(text, section)
		behind, _, _ = strings.Cut(behind, "\n.SS ")
		if !found {
			t.Errorf("the page has no %q", section)
		}
		for _, flag := range command.Flags {
			if !flag.Hidden && !strings.Contains(behind, plain("--"+flag.Name)) {
				t.Errorf("%s lacks --%s", command.Path(), flag.Name)
			}
		}
	}
	for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "SEE ALSO"} {
		if strings.Count(text, ".SH \""+section+"\"\n") != 1 {
			t.Errorf("the section %s", section)
		}
	}
	known := []string{"TH", "SH", "SS", "PP", "TP", "RS", "RE", "nf", "fi"}
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(line, ".")), " ")
		if strings.HasPrefix(line, ".") && !slices.Contains(known, name) || strings.HasPrefix(line, "'") {
			t.Errorf("the line %q is a macro", line)
		}
	}
	if _, err := exec.LookPath("groff"); err != nil {
		return
	}
	cmd := exec.Command("groff", "-man", "-Tutf8", "-ww", "-z")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v, %s", err, out)
	}
}

// TestManualEscapes: text that looks like commands of roff is text.
func TestManualEscapes(t *testing.T) {
	t.Parallel()
	m := &roff{}
	m.help(".so /etc/passwd\n'quoted'\n\n\tback\\slash -x\n")
	if want := "\\&.so /etc/passwd\n\\(aqquoted\\(aq\n.PP\n.RS\n.nf\nback\\eslash \\-x\n.fi\n.RE\n"; m.b.String() != want {
		t.Errorf("%q, want %q", m.b.String(), want)
	}
}
