package browser

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

var axeFile = flag.String("axe", "", "axe.min.js of axe-core")

// emptyPages are the pages of a server that has done nothing.
var emptyPages = []string{"/", "/queues", "/jobs", "/failed", "/connections", "/dwork", "/kts46", "/cron", "/cluster", "/activity", "/settings", "/docs", "/submit"}

// taskPath is the page of a task that waits for others. Tasks are gone when they are done, so at looks for one.
const taskPath = "task"

// at returns the address of a page.
func (s *server) at(path string) string {
	if path == taskPath {
		return "/job?id=" + s.first("state:waiting queue:dwork name:*/report")
	}
	return path
}

// hostileJob is the page of a job of submitHostile.
func hostileJob(n int) string {
	return "/job?queue=" + url.QueryEscape(hostile[n]) + "&name=" + url.QueryEscape(string(hostileName(hostile[n], "fail")))
}

// demo starts a server with clients of every protocol at work, pauses a queue, changes many jobs, and returns the
// server's pages by their names, each with content.
func demo(t *testing.T) (*server, map[string]string) {
	t.Helper()
	s := start(t, "demo", "--http", "127.0.0.1:0")
	s.api("/queues/pause", map[string]any{"queue": "invoices", "by": "ana", "why": "deploy"})
	var lines strings.Builder
	for n := range 1500 {
		fmt.Fprintf(&lines, `{"queue":"newsletter","name":"reader-%d","delay":"%dm"}`+"\n", n, 60+n)
	}
	s.api("/jobs", lines.String())
	changed := s.api("/jobs/change", map[string]any{"verb": "move", "to": "archive", "filter": "queue:newsletter name:reader-1*", "by": "ana", "why": "left the list"})
	return s, map[string]string{
		"overview": "/", "queues": "/queues", "queue": "/queue?queue=mail.welcome", "queue-paused": "/queue?queue=invoices", "jobs": "/jobs", "search": "/jobs?filter=queue:newsletter+state:delayed",
		"wrong": "/jobs?filter=color:red", "job": "/job?id=" + s.first("state:failed queue:mail.welcome"), "job-done": "/job?id=" + s.first("state:done queue:webhooks"),
		"failed": "/failed", "connections": "/connections", "cron": "/cron", "cron-entry": "/cron?entry=digest", "dwork": "/dwork", "task": taskPath,
		"kts46": "/kts46", "kts46-project": "/kts46?project=traffic1", "activity": "/activity", "operation": "/operation?id=" + url.QueryEscape(changed["operation"].(string)),
		"settings": "/settings", "docs": "/docs", "document": "/docs/api", "submit": "/submit",
		"confirm": "/confirm?do=remove&filter=queue:newsletter", "missing": "/job?id=1.2.3",
	}
}

// axe returns the violations of WCAG 2.2 AA, and of its best practice, that axe-core finds on the page.
func (b *tab) axe(source string) []string {
	b.t.Helper()
	value[bool](b, source+"; true")
	return value[[]string](b, `axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})
		.then((r) => r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).slice(0, 3).join(" | ")))`, chromedp.EvalAwaitPromise)
}

// accessible fails the test for each violation on a page, in both themes and on a telephone, and for a width at which
// it is wider than its window: that of a desk, 200 % of it, a telephone, and 400 %.
func (b *tab) accessible(name, path, source string) {
	b.t.Helper()
	for _, look := range []struct {
		theme string
		width int64
	}{{"light", 1280}, {"dark", 1280}, {"dark", 375}} {
		b.theme(look.theme)
		b.size(look.width, 800)
		b.load(path)
		for _, v := range b.axe(source) {
			b.t.Errorf("%s, %s, %d px: %s", name, look.theme, look.width, v)
		}
	}
	for _, width := range []int64{1280, 640, 375, 320} {
		b.size(width, 800)
		if wide := b.overflow(); wide > 0 {
			b.t.Errorf("%s is %d px too wide at %d px", name, wide, width)
		}
	}
}

// axeSource returns axe-core.
func axeSource(t *testing.T) string {
	t.Helper()
	if *axeFile == "" {
		t.Fatal("-axe does not name axe.min.js: run make browser")
	}
	source, err := os.ReadFile(*axeFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// TestAccessible: every page of a busy server has no violation that axe-core finds, in both themes and on a telephone,
// and is never wider than its window.
func TestAccessible(t *testing.T) {
	t.Parallel()
	source := axeSource(t)
	s, pages := demo(t)
	b := openTab(t, newBrowser(t), s)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		b.accessible(name, pages[name], source)
	}
}

// TestAccessibleEmpty: the same of an empty server, of one that is read only, and of one with hostile names.
func TestAccessibleEmpty(t *testing.T) {
	t.Parallel()
	source, browser := axeSource(t), newBrowser(t)
	b := openTab(t, browser, serve(t))
	for _, path := range emptyPages {
		b.accessible("empty "+path, path, source)
	}
	readOnly := serve(t, "--web", "read-only")
	readOnly.fill()
	b = openTab(t, browser, readOnly)
	b.accessible("read only", "/queue?queue=mail.welcome", source)
	odd := serve(t, configured(t)...)
	odd.submitHostile()
	b = openTab(t, browser, odd)
	for name, path := range map[string]string{"hostile queues": "/queues", "hostile failed": "/failed", "hostile job": hostileJob(3)} {
		b.accessible(name, path, source)
	}
}

// TestAccessibleCluster: the same of a cluster: complete, with a node lost, and as a node without a leader shows it.
// That page gives way to the one of its address when a node leads again.
func TestAccessibleCluster(t *testing.T) {
	t.Parallel()
	source := axeSource(t)
	nodes := cluster(t)
	b := openTab(t, newBrowser(t), nodes[0])
	b.away = true // on a busy machine the leader may change
	b.accessible("cluster", "/cluster", source)
	nodes[1].end()
	nodes[0].awaitStatus(http.StatusOK)
	b.accessible("cluster with a node lost", "/cluster", source)
	nodes[2].end()
	nodes[0].awaitStatus(http.StatusServiceUnavailable)
	b.accessible("no leader", "/jobs", source)
	b.until("h1", "Cluster jobs")
	nodes[2].again()
	b.until("h1", "Jobs")
}

// hostileParts counts the scripts and images of a page, and tells whether it has marks that turn text round.
const hostileParts = `[document.scripts.length, document.images.length, /[\u202a-\u202e\u2066-\u2069\u200e\u200f]/.test(document.body.innerText)].join()`

// mostHTML bounds a page, in bytes, however large the payloads on it are.
const mostHTML = 200_000

// TestHostileNames: names, workloads, results and errors are text on each page that has them, whatever their bytes: no
// script runs, no element is made, no text is turned round.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	s := serve(t, configured(t)...)
	s.submitHostile()
	b := openTab(t, newBrowser(t), s)
	paths := []string{"/", "/queues", "/jobs", "/failed", "/activity", "/jobs?filter=" + url.QueryEscape(`text:"`+hostile[0]+`"`)}
	for _, name := range hostile {
		paths = append(paths, "/queue?queue="+url.QueryEscape(name))
		for _, end := range []string{"done", "fail"} {
			job := "/job?queue=" + url.QueryEscape(name) + "&name=" + url.QueryEscape(string(hostileName(name, end)))
			paths = append(paths, job, job+"&workload=hex&result=hex")
		}
	}
	b.size(375, 812)
	for _, path := range paths {
		b.load(path)
		if got := value[string](b, hostileParts); got != "1,0,false" {
			t.Errorf("%.100s has scripts, images, turned text: %s", path, got)
		}
		if wide := b.overflow(); wide > 0 {
			t.Errorf("%.100s is %d px too wide", path, wide)
		}
		if n := len(s.page(path)); n > mostHTML {
			t.Errorf("%.100s has %d bytes", path, n)
		}
	}
}

// mostResult is the size to which a result is kept, in bytes.
const mostResult = 1 << 20

// TestLargePayloads: a job with 64 MiB, and one with JSON 100,000 deep, as workload and result, have small pages that
// show the beginning, in each form.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	s := serve(t, append(configured(t), "--max-frame", "80MiB")...)
	deep := strings.Repeat(`{"a":`, 50_000) + strings.Repeat("[", 50_000) + strings.Repeat("]", 50_000) + strings.Repeat("}", 50_000)
	payloads := map[string]string{"large": `{"a":"` + strings.Repeat("x", 64<<20-8) + `"}`, "deep": deep, "unclosed": strings.Repeat("[", 100_000)}
	b := openTab(t, newBrowser(t), s)
	for name, payload := range payloads {
		s.api("/jobs", map[string]any{"queue": name, "name": name, "workload": payload})
		s.api("/leases/done", map[string]any{"token": s.lease([]byte(name), "w"), "result": payload[:min(len(payload), mostResult)]})
		for _, form := range []string{"", "text", "json", "hex"} {
			path := "/job?queue=" + name + "&name=" + name + "&workload=" + form + "&result=" + form
			if n := len(s.page(path)); n > mostHTML {
				t.Errorf("%s has %d bytes", path, n)
			}
			if form == "hex" || form == "text" {
				continue
			}
			b.load(path)
			if got := b.text("#workload .aside"); name == "large" && got != "64.0 MiB" {
				t.Errorf("the size of %s is %q", path, got)
			}
			for _, part := range []string{"#workload pre", "#result pre"} {
				if len(b.text(part)) < 1000 {
					t.Errorf("%s has no content in %s", path, part)
				}
			}
		}
	}
}

// TestFirstPage: the first page is small, and comes in one round of requests.
func TestFirstPage(t *testing.T) {
	t.Parallel()
	s := serve(t, configured(t)...)
	s.fill()
	b := openTab(t, newBrowser(t), s)
	b.load("/")
	b.until("#live", "live")
	size := value[float64](b, `performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource")).filter((e) => !e.name.includes("/live")).reduce((n, e) => n + e.transferSize, 0)`)
	b.mu.Lock()
	defer b.mu.Unlock()
	if size == 0 || size > 50<<10 || b.sent > 5 { // the page, style sheet, script, icon, and the stream
		t.Errorf("the first page has %v bytes in %d requests", size, b.sent)
	}
}
