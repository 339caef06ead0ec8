package browser

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// pollPause is the time between two looks at a page: a browser has no event for a text.
const pollPause = 50 * time.Millisecond

// tab is a window of a browser at a server. It fails the test for each deed that no page may do: an error in the
// console, which a breach of the content security policy is as well, a dialog, a request to another host.
type tab struct {
	t      *testing.T
	s      *server
	ctx    context.Context
	away   bool // the server may be away, and refuse what is loaded
	narrow bool // the areas are behind the button of the menu

	mu    sync.Mutex
	wrong []string // forbidden deeds since the last check
	sent  int      // requests
}

// newBrowser starts a browser of its own, with a directory of its own, for a test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Fatal("Chromium is not on PATH: install it, as Debian's package chromium")
	}
	all, end := chromedp.NewExecAllocator(context.Background(), chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("headless", "new"),
		chromedp.UserDataDir(t.TempDir()), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en"), chromedp.Flag("force-prefers-reduced-motion", true))
	t.Cleanup(end)
	ctx, end := chromedp.NewContext(all)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// openTab opens a window.
func openTab(t *testing.T, browser context.Context, s *server) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser)
	t.Cleanup(end)
	b := &tab{t: t, s: s, ctx: ctx}
	if err := chromedp.Listen(ctx, b.saw); err != nil {
		t.Fatal(err)
	}
	b.run(command(network.Enable, network.EnableParams{}), command(log.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{}), command(page.Enable, page.EnableParams{}))
	b.size(1280, 900)
	return b
}

// saw notes an event of the browser.
func (b *tab) saw(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.wrong = append(b.wrong, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		refused := strings.Contains(e.Entry.Text, "status of 40") || b.away && strings.HasPrefix(e.Entry.Text, "Failed to load resource")
		if e.Entry.Level == log.EntryLevelError && !refused {
			b.wrong = append(b.wrong, "console: "+e.Entry.Text)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			b.wrong = append(b.wrong, "console.error")
		}
	case *page.EventJavascriptDialogOpening:
		b.wrong = append(b.wrong, "dialog: "+e.Message)
	case *network.EventRequestWillBeSent:
		b.sent++
		if url := e.Request.URL; !strings.HasPrefix(url, b.s.root+"/") && !strings.HasPrefix(url, "about:") && !strings.HasPrefix(url, "chrome") &&
			!(b.away && strings.HasPrefix(url, "data:")) { // pictures of the browser's own page
			b.wrong = append(b.wrong, "request: "+url)
		}
	}
}

// check fails the test for the forbidden deeds of the tab.
func (b *tab) check() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.wrong {
		b.t.Error(one)
	}
	b.wrong = nil
}

// command returns a command of the browser's protocol as an action.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// get does an action and returns its value.
func get[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// value returns the value of a script on the page.
func value[T any](b *tab, script string, options ...chromedp.EvaluateOption) T {
	b.t.Helper()
	return get(b, chromedp.Evaluate[T](script, options...))
}

// run does actions within patience.
func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, end := context.WithTimeout(b.ctx, patience)
	defer end()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v at %s", err, value[string](b, `location + "\n" + document.body.innerText.slice(0, 1500)`))
	}
	b.check()
}

// load loads a page, again and again if the server may be away.
func (b *tab) load(path string) {
	b.t.Helper()
	if b.away {
		b.await(path, func() bool {
			ctx, end := context.WithTimeout(b.ctx, patience)
			defer end()
			return chromedp.Do(ctx, chromedp.Navigate(b.s.root+path)) == nil && value[bool](b, `document.querySelector("footer") != null && document.styleSheets.length > 0`)
		})
		b.check()
		return
	}
	b.run(chromedp.Navigate(b.s.root+b.s.at(path)), chromedp.WaitReady(chromedp.CSS("footer")))
}

// text returns the text of the first element of a selector.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return strings.TrimSpace(value[string](b, fmt.Sprintf(`(document.querySelector(%q) || {textContent: ""}).textContent`, selector)))
}

// until waits for a text in the first element of a selector.
func (b *tab) until(selector, text string) {
	b.t.Helper()
	b.await(fmt.Sprintf("%q in %s", text, selector), func() bool { return strings.Contains(b.text(selector), text) })
}

// await waits for a condition.
func (b *tab) await(name string, holds func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(pollPause) {
		if time.Now().After(deadline) {
			b.t.Fatalf("there is never %s at %s", name, value[string](b, `location + "\n" + document.body.innerText.slice(0, 1500)`))
		}
	}
}

// size sets the size of the window, in pixels of the page. One below 48 rem has the areas behind a button.
func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.narrow = width < 768
	b.run(command(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500}))
}

// theme has the browser prefer a theme.
func (b *tab) theme(name string) {
	b.t.Helper()
	b.run(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}))
}

// overflow returns by how many pixels the page is wider than its window.
func (b *tab) overflow() int {
	b.t.Helper()
	return value[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`)
}
