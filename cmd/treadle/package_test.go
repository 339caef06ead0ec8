package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// installed is where the packages put the program.
const installed = "/usr/bin/treadle"

// TestUnits: the commands in the units have the flags of this program, systemd finds nothing wrong with the units, and
// that of the server gives away no more than it must.
func TestUnits(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob("package/systemd/*.service")
	if err != nil || len(units) < 2 {
		t.Fatal(units, err)
	}
	dir := t.TempDir()
	var copies []string
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		commands := 0
		for line := range strings.Lines(string(text)) {
			_, command, ok := strings.Cut(line, installed+" ")
			if !ok {
				continue
			}
			commands++
			args := strings.Fields(command)
			parser, err := newParser(&cli{}, &console{}, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := parser.Parse(withoutFiles(args)); err != nil {
				t.Errorf("%s: %s: %v", unit, command, err)
			}
		}
		if commands == 0 {
			t.Errorf("%s runs nothing", unit)
		}
		own := filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(own, []byte(strings.ReplaceAll(string(text), installed, binary)), 0o600); err != nil {
			t.Fatal(err)
		}
		copies = append(copies, own)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("this machine has no systemd-analyze")
	}
	for _, args := range [][]string{append([]string{"verify", "--man=no"}, copies...), {"security", "--offline=true", "--threshold=20", filepath.Join(dir, "treadle.service")}} {
		if out, err := exec.Command("systemd-analyze", args...).CombinedOutput(); err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v: %.2000s", args[0], err, out)
		}
	}
}

// withoutFiles returns the arguments without configuration files, which this machine has not.
func withoutFiles(args []string) (rest []string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--config" && args[0] == "serve" {
			i++
			continue
		}
		rest = append(rest, args[i])
	}
	return rest
}
