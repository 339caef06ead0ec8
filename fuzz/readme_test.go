package fuzz

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// byTest marks the planted bugs that a Go test finds instead of the simulation.
const byTest = " †"

// TestReadme: the page lists the planted bugs, each once and no others, with the marks of testCanaries, and the
// tests that it names for what Treadle promises exist.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	_, planted, _ := strings.Cut(string(readme), "\n## Planted bugs\n")
	planted, _, _ = strings.Cut(planted, "\n## ")
	for line := range strings.SplitSeq(planted, "\n") {
		if name, ok := strings.CutPrefix(line, "* "); ok {
			listed[name]++
		}
	}
	for i, c := range allCanaries() {
		name := c.name
		if i >= len(canaries) {
			name += byTest
		}
		if listed[name] != 1 {
			t.Errorf("the page lists %q %d times", name, listed[name])
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("the page lists %q, which is not planted or has the wrong mark", name)
	}
	var code strings.Builder
	err = filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, promises, _ := strings.Cut(string(readme), "## What Treadle promises")
	promises, _, _ = strings.Cut(promises, "\n## ")
	named := regexp.MustCompile("`(Test[A-Z][A-Za-z]+)`").FindAllStringSubmatch(promises, -1)
	if len(named) < 20 {
		t.Errorf("the page names %d tests for its promises", len(named))
	}
	for _, name := range named {
		if !strings.Contains(code.String(), "\nfunc "+name[1]+"(t *testing.T)") {
			t.Errorf("the page promises something that %s tests, and there is no such test", name[1])
		}
	}
}
