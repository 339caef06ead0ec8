//go:build canary

package fuzz

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// canarySeeds is how many seeds, of 1,000 steps each, the simulation may need to find a
// bug; a third as many of a site. Seeds, not seconds: how many fit into a minute is the machine's affair.
const canarySeeds = 3000

var (
	every = flag.Int("canary.every", 1, "plant every so many bugs")
	first = flag.Int("canary.first", 0, "the first bug that is planted, less than -canary.every")
)

// TestCanary plants each bug of the tables, in a copy that the compiler is shown instead of the
// file, and fails unless the simulation finds it within so many seeds, or the Go tests that are named.
func TestCanary(t *testing.T) {
	for i := *first; i < len(canaries); i += *every {
		c := &canaries[i]
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // one is linked while another plays
			c.mustBeFound(t, "./sim", `seed \d+, step \d+: .*|panic: .*`, "-test.run", "^"+c.test()+"$", "-sim.seeds", strconv.Itoa(canarySeeds), "-sim.shorten=false")
		})
	}
	for i := *first; i < len(testCanaries); i += *every {
		c := &testCanaries[i]
		t.Run(c.name, func(t *testing.T) {
			c.mustBeFound(t, "../"+c.pkg, `_test\.go:\d+: .*`, "-test.run", "^"+c.tests+"$")
		})
	}
}

// mustBeFound has a package's tests find the bug, with a message like the pattern why.
func (c *canary) mustBeFound(t *testing.T, pkg, why string, args ...string) {
	t.Helper()
	dir := t.TempDir()
	source, err := filepath.Abs(filepath.Join("..", c.file))
	if err != nil {
		t.Fatal(err)
	}
	copied, overlay := filepath.Join(dir, filepath.Base(c.file)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {source: copied}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{copied: c.overlaid(t), overlay: string(list)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "play.test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-tags", "invariants", "-ldflags", "-s -w", "-overlay", overlay, "-o", binary, pkg).CombinedOutput(); err != nil {
		t.Fatalf("it does not build: %v\n%s", err, out)
	}
	began := time.Now()
	play := exec.CommandContext(t.Context(), binary, append(args, "-test.timeout", "0")...)
	play.Dir = pkg
	play.Env = append(os.Environ(), "GOFLAGS=-overlay="+overlay) // for tests that build the program
	out, err := play.CombinedOutput()
	if err == nil {
		t.Fatalf("not found by %v", args)
	}
	found := regexp.MustCompile(why).Find(out)
	if found == nil {
		t.Fatalf("the play ends, and finds nothing:\n%s", out)
	}
	t.Logf("found after %v: %s", time.Since(began).Round(time.Millisecond), found)
}

// test is the play that must find it: bugs of the node are not in the server's.
func (c *canary) test() string {
	if strings.HasPrefix(c.file, "loop/disbatch/") {
		return "TestSimulationSite"
	}
	return "TestSimulation"
}
