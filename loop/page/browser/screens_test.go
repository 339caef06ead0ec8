package browser

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var (
	screens      = flag.String("screens", "", "write pictures of the pages to this directory")
	screensAfter = flag.Duration("screens.after", 0, "how long the demo works before its pictures, which fills the charts")
)

// tallest is the height from which a picture leaves out the rest of a page, in pixels.
const tallest = 1800

// picture writes a picture of the whole page.
func (b *tab) picture(path, name, theme string, width int64) {
	b.t.Helper()
	b.theme(theme)
	b.size(width, 812)
	b.load(path)
	b.size(width, min(max(value[int64](b, `document.documentElement.scrollHeight`), 812), tallest))
	all, err := png.Decode(bytes.NewReader(get(b, chromedp.CaptureScreenshot())))
	if err != nil {
		b.t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(*screens, name+".png"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer file.Close()
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(file, reduced(all)); err != nil {
		b.t.Fatal(err)
	}
}

// reduced returns a picture with at most 256 colors, those that it has most of, which makes it a third of the size.
// Pages have few colors, and edges of letters between them.
func reduced(all image.Image) image.Image {
	counts := make(map[color.Color]int)
	bounds := all.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[all.At(x, y)]++
		}
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	var palette color.Palette
	for _, c := range colors {
		if len(palette) < 256 && (len(palette) == 0 || distance(c, palette[palette.Index(c)]) > closest) {
			palette = append(palette, c)
		}
	}
	nearest := make(map[color.Color]uint8)
	for _, c := range colors {
		nearest[c] = uint8(palette.Index(c)) //nolint:gosec // below 256
	}
	small := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[all.At(x, y)])
		}
	}
	return small
}

// closest is the distance below which two colors look the same.
const closest = 6

// distance returns the largest difference of the parts of two colors, of 255.
func distance(a, b color.Color) int {
	r, g, bl, _ := a.RGBA()
	r2, g2, bl2, _ := b.RGBA()
	part := func(x, y uint32) int { return max(int(x>>8)-int(y>>8), int(y>>8)-int(x>>8)) }
	return max(part(r, r2), part(g, g2), part(bl, bl2))
}

// TestScreens writes a picture of each page: light, dark and on a telephone, and of an empty server, one that is read
// only, one with hostile names, and one with a million jobs. It runs when -screens names a directory.
func TestScreens(t *testing.T) {
	if *screens == "" {
		t.Skip("-screens names no directory")
	}
	s, pages := demo(t)
	time.Sleep(*screensAfter)
	browser := newBrowser(t)
	b := openTab(t, browser, s)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		b.picture(pages[name], name+"-light", "light", 1280)
		b.picture(pages[name], name+"-dark", "dark", 1280)
		b.picture(pages[name], name+"-phone", "light", 375)
	}
	empty := openTab(t, browser, serve(t))
	for _, path := range emptyPages {
		empty.picture(path, "empty"+strings.ReplaceAll(path, "/", "-"), "light", 1280)
	}
	site, sitePages := disbatch(t)
	b = openTab(t, browser, site)
	for _, name := range []string{"disbatch", "disbatch-tasks", "disbatch-wrong", "disbatch-task-0", "disbatch-task-3"} {
		b.picture(sitePages[name], name+"-light", "light", 1280)
		b.picture(sitePages[name], name+"-dark", "dark", 1280)
		b.picture(sitePages[name], name+"-phone", "light", 375)
	}
	nodes := cluster(t)
	b = openTab(t, browser, nodes[0])
	b.away = true
	for _, state := range []string{"cluster", "cluster-lost", "cluster-no-leader"} {
		switch state {
		case "cluster-lost":
			nodes[1].end()
			nodes[0].awaitStatus(http.StatusOK)
		case "cluster-no-leader":
			nodes[2].end()
			nodes[0].awaitStatus(http.StatusServiceUnavailable)
		}
		b.picture("/cluster", state+"-light", "light", 1280)
		b.picture("/cluster", state+"-dark", "dark", 1280)
		b.picture("/cluster", state+"-phone", "light", 375)
	}
	readOnly := openTab(t, browser, serve(t, "--web", "read-only"))
	readOnly.picture("/", "read-only", "light", 1280)
	odd := serve(t, configured(t)...)
	odd.submitHostile()
	b = openTab(t, browser, odd)
	b.picture("/queues", "hostile-queues", "light", 1280)
	b.picture(hostileJob(3), "hostile-job", "light", 1280)
	million := serve(t)
	million.million()
	b = openTab(t, browser, million)
	for name, path := range map[string]string{"overview": "/", "queues": "/queues", "search": "/jobs?filter=queue:queue-345+name:job-99*"} {
		b.picture(path, "million-"+name, "light", 1280)
	}
}

// million submits a million jobs to a thousand queues.
func (s *server) million() {
	s.t.Helper()
	for part := range 20 {
		var lines strings.Builder
		for n := range 50_000 {
			n += part * 50_000
			fmt.Fprintf(&lines, `{"queue":"queue-%d","name":"job-%d"}`+"\n", n%1000, n)
		}
		s.api("/jobs", lines.String())
	}
}
