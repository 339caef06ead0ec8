package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	siteconfig "treadle/loop/disbatch/config"
)

// TestDisbatchPage runs the client commands of the page against a command interface; those that start a program of a
// site need not run here, but are understood.
func TestDisbatchPage(t *testing.T) {
	d := startDCI(t, `"treadle_plugins": {"Disbatch::Plugin::Demo": {"kind": "exec", "command": ["true"]}}`)
	t.Setenv("TREADLE_DISBATCH_URL", d.url)
	commands := pageCommands(t, "disbatch.md")
	for _, c := range commands {
		if slices.Contains([]string{"web", "node"}, c.words[1]) {
			if _, err := parse(t, c.words...); err != nil {
				t.Errorf("treadle %q: %v", c.words, err)
			}
			continue
		}
		out, err := exec.Command(binary, c.words...).Output()
		shown := regexp.MustCompile(`[0-9a-f]{24}`).ReplaceAllString(c.outputs, "*")
		if err != nil || c.prompt && !like(string(out), shown) {
			t.Errorf("treadle %q: %v, %q; the page shows %q", c.words, err, out, c.outputs)
		}
	}
	if len(commands) != 10 {
		t.Errorf("the page has %d commands", len(commands))
	}
	d.stop()
	_, text, _ := strings.Cut(everyPage(t)["cmd/treadle/docs/disbatch.md"], "```\n{")
	text, _, _ = strings.Cut(text, "```")
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, []byte("{"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := siteconfig.Read(file); err != nil {
		t.Errorf("the page's file: %v", err)
	}
}
