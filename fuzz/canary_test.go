//go:build canary

package fuzz

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// canaryTime is how long the simulation may need to find a bug, without the building.
const canaryTime = time.Minute

// TestCanary plants each bug of the table, in a copy that the compiler is shown instead of the
// file, and fails unless the simulation finds it.
func TestCanary(t *testing.T) {
	for i := range canaries {
		c := &canaries[i]
		t.Run(c.name, func(t *testing.T) {
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
			binary := filepath.Join(dir, "sim.test")
			if out, err := exec.Command("go", "test", "-c", "-tags", "invariants", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
				t.Fatalf("it does not build: %v\n%s", err, out)
			}
			ctx, cancel := context.WithTimeout(t.Context(), canaryTime)
			defer cancel()
			began := time.Now()
			out, err := exec.CommandContext(ctx, binary, "-test.run", "^"+c.test()+"$", "-sim.seeds", "1000000").CombinedOutput()
			if ctx.Err() != nil || err == nil {
				t.Fatalf("not found in %v", canaryTime)
			}
			why := regexp.MustCompile(`seed \d+, step \d+: .*|panic: .*`).Find(out)
			if why == nil {
				t.Fatalf("the simulation ends, and finds nothing:\n%s", out)
			}
			t.Logf("found after %v: %s", time.Since(began).Round(time.Millisecond), why)
		})
	}
}

// test is the play that must find it: bugs of the node are not in the server's.
func (c *canary) test() string {
	if strings.HasPrefix(c.file, "loop/disbatch/") {
		return "TestSimulationSite"
	}
	return "TestSimulation"
}
