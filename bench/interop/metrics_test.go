package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// promtool runs Prometheus' own checker, of Debian's package prometheus, with a standard input.
func promtool(t *testing.T, stdin []byte, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// printed returns what treadle print writes.
func printed(t *testing.T, what string) []byte {
	t.Helper()
	out, err := exec.Command(os.Getenv("TREADLE_BINARY"), "print", what).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPromtoolMetrics checks a scrape of a server with a journal.
func TestPromtoolMetrics(t *testing.T) {
	address := serve(t, "http", "--http", "127.0.0.1:0", "--data", t.TempDir())
	answer, err := http.Get(address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil || text.Len() < 10_000 {
		t.Fatalf("%d bytes, %v", text.Len(), err)
	}
	promtool(t, text.Bytes(), "check", "metrics")
}

// TestPromtoolAlerts checks the alerts, and that some of them fire when they should.
func TestPromtoolAlerts(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "alerts.yml"), printed(t, "alerts"))
	cases, err := os.ReadFile("testdata/alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cases.yml"), cases)
	promtool(t, nil, "check", "rules", filepath.Join(dir, "alerts.yml"))
	promtool(t, nil, "test", "rules", filepath.Join(dir, "cases.yml"))
}

// TestPromtoolBoard checks every expression of the board, each as a recording rule.
func TestPromtoolBoard(t *testing.T) {
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(printed(t, "grafana"), &board); err != nil {
		t.Fatal(err)
	}
	rules, n := "groups:\n- name: board\n  rules:\n", 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			n++
			expr := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*").Replace(target.Expr)
			rules += fmt.Sprintf("  - {record: 'board:expression:%d', expr: %q}\n", n, expr)
		}
	}
	if n < 30 {
		t.Errorf("%d expressions", n)
	}
	path := filepath.Join(t.TempDir(), "board.yml")
	write(t, path, []byte(rules))
	promtool(t, nil, "check", "rules", path)
}
