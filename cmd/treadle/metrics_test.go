package main

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/loop/certs/certtest"
)

// metric is one metric of a scrape.
type metric struct {
	name, kind, help string
	labels           []string
}

// scraped starts the built server with all that has metrics, uses each protocol once, and returns the text of a scrape.
func scraped(t *testing.T) string {
	t.Helper()
	data := t.TempDir()
	file := config(t, `
[[cron]]
name = "nightly"
schedule = "30 2 * * *"
queue = "reports"
workload = "x"
`)
	own := certtest.New(t, "ours").Issue(data, "server", time.Now().Add(time.Hour))
	p := start(t, false, "serve", "--config", file, "--gloom-masters", "tls://127.0.0.1:0?cert="+own.Cert+"&key="+own.Key, "--data", filepath.Join(data, "d"), "--periodic", "tcp://127.0.0.1:0", "--http", "127.0.0.1:0",
		"--gloom-masters", "tcp://127.0.0.1:0", "--gloom-slaves", "tcp://127.0.0.1:0", "--dwork", "tcp://127.0.0.1:0",
		"--kts46", "tcp://127.0.0.1:0", "--kts46-json", "off", "--kts46-mongodb", "mongodb://127.0.0.1:1", "--min-free", "128MiB")
	at := map[string]string{}
	for lines := 0; lines < 8; lines++ {
		line := p.until("listening")
		words := regexp.MustCompile(`protocol="?([a-z0-9 -]+)"? address=(\S+)`).FindStringSubmatch(line)
		if words == nil {
			t.Fatalf("the line %q names no address", line)
		}
		at[words[1]] = words[2]
	}
	p.drain()
	for _, args := range [][]string{
		{"-H", at["periodic"], "submit", "echo", "a", "-w", "x"},
		{"-H", at["dwork"], "dwork", "status"},
		{"-H", at["kts46"], "kts46", "status"},
		{"-H", at["admin"], "cron", "run", "nightly"},
		{"-H", at["http"], "health"},
	} {
		if out, errs, code := treadle(t, "", args...); code != 0 && args[2] != "kts46" { // its MongoDB is away
			t.Fatalf("%q: %d %s%s", args, code, out, errs)
		}
	}
	answer, err := http.Get(at["http"] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %v", answer.Status, err)
	}
	return string(text)
}

var sampleLine = regexp.MustCompile(`^([a-zA-Z_:]+[a-zA-Z0-9_:]*)(\{.*\})? \S+$`)

// metricsOf returns the metrics of a scrape. Each has a help text.
func metricsOf(t *testing.T, text string) (all []metric) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		last := len(all) - 1
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			all = append(all, metric{name: name, help: help})
		} else if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			_, all[last].kind, _ = strings.Cut(rest, " ")
		} else if m := sampleLine.FindStringSubmatch(line); m == nil || !strings.HasPrefix(m[1], all[last].name) {
			t.Fatalf("the line %q does not belong to %s", line, all[last].name)
		} else if all[last].labels == nil {
			for _, label := range regexp.MustCompile(`([a-z]+)="`).FindAllStringSubmatch(m[2], -1) {
				if label[1] != "le" {
					all[last].labels = append(all[last].labels, label[1])
				}
			}
		}
	}
	for _, m := range all {
		if m.help == "" || m.kind == "" {
			t.Errorf("%s has the help %q and the type %q", m.name, m.help, m.kind)
		}
	}
	return all
}

// metricsList is the list of docs/metrics.md.
func metricsList(all []metric) string {
	var b strings.Builder
	for _, m := range all {
		if strings.HasPrefix(m.name, "treadle_") {
			labels := ""
			if len(m.labels) > 0 {
				labels = "{" + strings.Join(m.labels, ",") + "}"
			}
			writeEntry(&b, "* `"+m.name+labels+"`, "+m.kind+": "+m.help)
		}
	}
	return b.String()
}

// errorKinds checks that the table of the page has the kinds of treadle_protocol_errors_total in a scrape, and no
// others.
func errorKinds(t *testing.T, page, scrape string) {
	t.Helper()
	documented, counted := map[string]bool{}, map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z0-9]+) \| (`+"`"+`[^|]+) \|`).FindAllStringSubmatch(page, -1) {
		for kind := range strings.SplitSeq(row[2], ", ") {
			documented[row[1]+" "+strings.Trim(kind, "`")] = true
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^treadle_protocol_errors_total\{kind="(.+)",protocol="(.+)"\}`).FindAllStringSubmatch(scrape, -1) {
		counted[line[2]+" "+line[1]] = true
	}
	if len(counted) == 0 || !maps.Equal(documented, counted) {
		t.Errorf("docs/metrics.md has the kinds of errors %q, the server %q", slices.Sorted(maps.Keys(documented)), slices.Sorted(maps.Keys(counted)))
	}
}

// TestDocsMetrics: the page has each metric of a server with its help text, and what treadle print writes uses no
// other.
func TestDocsMetrics(t *testing.T) {
	t.Parallel()
	scrape := scraped(t)
	all := metricsOf(t, scrape)
	text, err := page("metrics")
	if err != nil {
		t.Fatal(err)
	}
	errorKinds(t, text, scrape)
	before, _, ok := strings.Cut(text, "## List\n\n")
	want := before + "## List\n\n" + metricsList(all)
	if *rewriteDocs {
		if err := os.WriteFile("docs/metrics.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !ok || text != want {
		t.Errorf("docs/metrics.md is not what the server says: go test ./cmd/treadle -run TestDocsMetrics -docs.rewrite\n%s", metricsList(all))
	}

	series := map[string]bool{"up": true}
	for _, m := range all {
		series[m.name] = true
		if m.kind == "histogram" {
			series[m.name+"_bucket"], series[m.name+"_sum"], series[m.name+"_count"] = true, true, true
		}
	}
	for file, least := range map[string]int{"alerts": 20, "grafana": 30} {
		printed, errs, code := treadle(t, "", "print", file)
		if code != 0 || errs != "" {
			t.Fatalf("print %s: %d %s", file, code, errs)
		}
		names := regexp.MustCompile(`\b(?:treadle|process|go)_[a-z0-9_]+\b`).FindAllString(printed, -1)
		if len(names) < least {
			t.Errorf("%s has %d names", file, len(names))
		}
		for _, name := range names {
			if !series[name] {
				t.Errorf("%s uses %s, which the server does not have", file, name)
			}
		}
	}
}

// TestAlertsSay: each alert has a severity and a summary, and says what to do and where to read more.
func TestAlertsSay(t *testing.T) {
	t.Parallel()
	text, _, _ := treadle(t, "", "print", "alerts")
	alerts := strings.Split(text, "      - alert: ")[1:]
	if len(alerts) < 15 {
		t.Errorf("%d alerts", len(alerts))
	}
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		see := regexp.MustCompile(`(?m)^          do: ".*\. See ([a-z]+), ([A-Za-z ,]+)\."$`).FindStringSubmatch(alert)
		if see == nil || !strings.Contains(alert, "\n          summary: \"") || !regexp.MustCompile(`severity: (info|warning|critical)}`).MatchString(alert) {
			t.Errorf("%s has no severity, summary or advice", name)
			continue
		}
		if page, err := page(see[1]); err != nil || !strings.Contains(page, "\n## "+see[2]+"\n") {
			t.Errorf("%s names %q of %s, which is not there: %v", name, see[2], see[1], err)
		}
	}
}

// TestDashboardIntervals: rates of the board fit the scrape interval, and its panels have numbers and places of their
// own.
func TestDashboardIntervals(t *testing.T) {
	t.Parallel()
	text, _, _ := treadle(t, "", "print", "grafana")
	var board struct {
		Panels []struct {
			ID      int
			GridPos struct{ X, Y int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(text), &board); err != nil {
		t.Fatal(err)
	}
	var places []struct{ X, Y int }
	for i, p := range board.Panels {
		if p.ID != i+1 || slices.Contains(places, p.GridPos) {
			t.Errorf("panel %d has the number %d and the place %+v", i, p.ID, p.GridPos)
		}
		places = append(places, p.GridPos)
		for _, target := range p.Targets {
			for _, interval := range regexp.MustCompile(`\[([^\]]*)\]`).FindAllStringSubmatch(target.Expr, -1) {
				if interval[1] != "$__rate_interval" {
					t.Errorf("%s has a fixed interval", target.Expr)
				}
			}
			if !strings.Contains(target.Expr, `job=~"$job", instance=~"$instance"`) {
				t.Errorf("%s is of all servers", target.Expr)
			}
		}
	}
}

// TestHealth: the command says what /readyz says, with an exit code for scripts.
func TestHealth(t *testing.T) {
	t.Parallel()
	s := serveEverywhere(t, "127.0.0.1:0", filepath.Join(t.TempDir(), "s"))
	f := func(code int, stdout, stderr string, args ...string) {
		t.Helper()
		out, errs, got := treadle(t, "", append([]string{"-H", s.http, "health"}, args...)...)
		if got != code || out != stdout || !strings.HasPrefix(errs, stderr) || stderr == "" && errs != "" {
			t.Errorf("%q: %d %q %q, want %d %q %q", args, got, out, errs, code, stdout, stderr)
		}
	}
	f(0, "ok\n", "")
	f(0, `{"status":"ready","text":"ok"}`+"\n", "", "--json")
	s.stop()
	f(3, "", "treadle: cannot reach "+s.http+": connection refused")
	f(3, `{"status":"unreachable","text":"cannot reach `+s.http+": connection refused (is `treadle serve` running? -H or TREADLE_HTTP names it)\"}\n", "", "--json")

	probe := http.NewServeMux()
	probe.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "stopping", http.StatusServiceUnavailable) })
	s.http = serveHTTP(t, probe)
	f(1, "stopping\n", "")
	f(1, `{"status":"not ready","text":"stopping"}`+"\n", "", "--json")
	s.http = serveHTTP(t, http.NotFoundHandler())
	f(3, "", "treadle: cannot reach "+s.http+": it answers 404 Not Found to /readyz")
}

// serveHTTP serves a handler until the end of the test and returns its URL.
func serveHTTP(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}
