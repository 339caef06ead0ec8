package main

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHelpTopics: help lists the topics, prints each as it is written, and names the nearest ones to a typo.
func TestHelpTopics(t *testing.T) {
	t.Parallel()
	list, _, code := treadle(t, "", "help")
	for _, topic := range topics {
		text, err := page(topic)
		if err != nil {
			t.Fatal(err)
		}
		if code != 0 || !strings.Contains(list, "\n  "+topic+" ") || !strings.Contains(list, subject(text)) {
			t.Errorf("the list of topics lacks %s: %s", topic, list)
		}
		if out, errs, code := treadle(t, "", "help", topic); code != 0 || errs != "" || out != text {
			t.Errorf("help %s: exit code %d, %q, %d bytes instead of %d", topic, code, errs, len(out), len(text))
		}
	}
	f := func(typed, want string) {
		t.Helper()
		out, errs, code := treadle(t, "", "help", typed)
		if code != exitUsage || out != "" || errs != "treadle: no topic, command, setting or message \""+typed+"\", the nearest: "+want+" (see treadle help)\n" {
			t.Errorf("help %s: exit code %d, %q, %q", typed, code, out, errs)
		}
	}
	f("trubleshooting", "troubleshooting")
	f("oper", "operations")
	f("setings", "settings")
	f("perodic", "periodic")
	f("wrk", "work")
	f("xyzzy", strings.Join(topics, ", "))
}

// TestHelpFinds: help TEXT prints the entry of a message that is pasted with its values, and of a setting by its name.
func TestHelpFinds(t *testing.T) {
	t.Parallel()
	f := func(typed, want string) {
		t.Helper()
		out, errs, code := treadle(t, "", append([]string{"help"}, strings.Split(typed, "|")...)...)
		if code != 0 || errs != "" || !strings.Contains(out, want) {
			t.Errorf("help %s: exit code %d, %q, %q; want %q", typed, code, out, errs, want)
		}
	}
	_, unreachable, _ := treadle(t, "", "-H", "127.0.0.1:1", "ping")
	f(unreachable, "treadle help troubleshooting:\n\n### `cannot connect to ...: ...")
	f(`time=2026-11-23T20:05:29.547Z level=WARN msg="the disk is almost full: no new jobs are taken" free=3`, "### `the disk is almost full: no new jobs are taken`\n\n")
	f("the|data|directory|/x|is|damaged:|x;|run|treadle|journal|check,|then|treadle|journal|repair", "`the data directory ... is damaged: ...; run")
	f("timeout", "treadle help settings:\n\n| `timeout` | 600 | seconds that")
	f("timeout", "* `--frame-timeout TIME`: ")
	f("timeout", "## Raise a time-out\n")
	f("Time-Out", "| `timeout` | 600 | seconds that")
	f("time-out", "treadle help concepts: ")
	f("drain", "* `--drain TIME`: ")
	f("upgrade", "## Upgrade\n")
	f("priority", "treadle help gloom: * Priority: the larger one first")
	f("failed|jobs", "treadle help metrics: ")
	explained := false // whether the troubleshooting page has the messages of the section
	for _, listed := range partsOf("messages", string(worked(os.ReadFile("messages.md"))(t))) {
		if strings.HasPrefix(listed.text, "## ") {
			explained = strings.Contains(listed.text, "has each.")
			continue
		}
		if !explained {
			continue
		}
		for _, name := range listed.names {
			letters := matchedLetters(name, strings.ReplaceAll(name, "...", "of 3"))
			if found, err := find("treadle: " + strings.ReplaceAll(name, "...", "of 3") + ": more"); err != nil || letters > 0 && len(found) == 0 {
				t.Errorf("%s: %v, %d found", name, err, len(found))
			}
		}
	}
}

// TestHelpPager: at a terminal a page goes through PAGER, and is printed without one.
func TestHelpPager(t *testing.T) {
	t.Parallel()
	f := func(pager, begins string, want int) {
		t.Helper()
		master, terminal := openTerminal(t)
		cmd := exec.Command(binary, "help", "quickstart")
		cmd.Env = append(os.Environ(), "PAGER="+pager)
		cmd.Stdout, cmd.Stderr = terminal, io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		terminal.Close()
		out, _ := io.ReadAll(master) // ends with an error when the last of its writers has gone
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != want || !strings.HasPrefix(string(out), begins) {
			t.Errorf("PAGER=%q: exit code %d, %.80q; want %d, %q", pager, got, out, want, begins)
		}
	}
	f("sed 's/^/paged: /'", "paged: # Quickstart", 0)
	f("", "# Quickstart", 0)
	f("exit 3", "", exitFailure)
	f("head -c 8", "# Quicks", 0) // leaves before the end
}

// openTerminal returns both sides of a new pseudo-terminal.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, terminal
}
