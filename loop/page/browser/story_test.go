package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// hand uses the page as a person does: it presses the element of a selector, and types into one.
type hand interface {
	press(b *tab, selector string)
	write(b *tab, selector, text string)
}

// place is the middle of an element, in pixels of the window, and whether nothing covers it.
type place struct {
	X, Y float64
	Free bool
}

// mouse clicks elements that nothing covers.
type mouse struct{}

func (mouse) press(b *tab, selector string) {
	b.t.Helper()
	var at place
	b.await("a free "+selector, func() bool {
		at = value[place](b, fmt.Sprintf(`(() => {
			const e = document.querySelector(%q);
			if (!e) return {};
			e.scrollIntoView({block: "center", behavior: "instant"});
			const box = e.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
			return {x, y, free: e.contains(document.elementFromPoint(x, y))};
		})()`, selector))
		return at.Free
	})
	b.run(chromedp.MouseClickXY(at.X, at.Y))
}

func (m mouse) write(b *tab, selector, text string) {
	b.t.Helper()
	m.press(b, selector)
	b.run(chromedp.KeyEvent(text))
}

// keyboard goes from stop to stop and fails the test when the focus cannot be seen.
type keyboard struct{}

// mostStops bounds the stops of a page.
const mostStops = 300

// goTo goes to the element of a selector.
func (keyboard) goTo(b *tab, selector string) {
	b.t.Helper()
	for range mostStops {
		b.run(chromedp.KeyEvent(kb.Tab))
		stop := value[struct {
			Found, Seen bool
			Name        string
		}](b, fmt.Sprintf(`(() => {
			const at = document.activeElement, drawn = at.matches("#menu") ? at.nextElementSibling : at, box = drawn.getBoundingClientRect();
			return {found: at.matches(%q), seen: at === document.body || getComputedStyle(drawn).outlineStyle !== "none" && box.width > 2 && box.height > 2, name: at.outerHTML.slice(0, 200)};
		})()`, selector))
		if !stop.Seen {
			b.t.Errorf("the focus cannot be seen on %s", stop.Name)
		}
		if stop.Found {
			return
		}
	}
	b.t.Fatalf("the keyboard does not reach %s", selector)
}

func (k keyboard) press(b *tab, selector string) {
	b.t.Helper()
	k.goTo(b, selector)
	key := kb.Enter
	if selector == "#menu" {
		key = " "
	}
	b.run(chromedp.KeyEvent(key))
}

func (k keyboard) write(b *tab, selector, text string) {
	b.t.Helper()
	k.goTo(b, selector)
	b.run(chromedp.KeyEvent(text))
}

// bulk is the number of jobs that the story removes.
const bulk = 10_000

// story is what a person does: find a job by its text, read it, retry it, remove 10,000 others, pause a queue and
// resume it.
func story(b *tab, h hand) {
	t, s := b.t, b.s
	t.Helper()
	b.load("/")
	if b.narrow {
		h.press(b, map[bool]string{false: "label.menu", true: "#menu"}[h == hand(keyboard{})])
	}
	h.press(b, `nav a[href="/jobs"]`)
	b.until("h1", "Jobs")
	h.write(b, "#filter", `state:failed "user 7:"`+kb.Enter)
	b.await("the jobs of the filter", func() bool {
		return strings.Contains(value[string](b, "location.search"), "filter=") && b.text("footer") != ""
	})
	b.until("main tbody", "user-7")
	if text := b.text("main tbody"); strings.Contains(text, "user-8") {
		t.Errorf("other jobs are found: %s", text)
	}
	h.press(b, "main tbody th a")
	b.until("h1", "user-7")
	if text := b.text("#workload pre"); !strings.Contains(text, `"n": 12345678901234567890`) {
		t.Errorf("the workload is %s", text)
	}
	b.until(".timeline", "550 user 7: no such <b>mailbox</b>")
	h.press(b, `button[value="retry"]`)
	b.until(".notice", "1 job made ready again.")
	b.until("dd", "ready")
	h.press(b, ".acts a.danger")
	b.until("h1", "Remove 1 job?")

	var lines strings.Builder
	for n := range bulk {
		fmt.Fprintf(&lines, `{"queue":"bulk","name":"%d","delay":"1h"}`+"\n", n)
	}
	s.api("/jobs", lines.String())
	b.load("/jobs?filter=queue:bulk")
	h.press(b, "details.all summary")
	h.press(b, "details.all a.bad")
	b.until("h1", "Remove all jobs that match: 10,000 jobs")
	h.write(b, "#typed", "9999")
	h.press(b, "form.fields button")
	b.until(".notice.failed", "Nothing was changed")
	h.write(b, "#typed", "10000")
	h.press(b, "form.fields button")
	b.until("h1", "Remove all that match")
	b.until(".lead", "done")
	b.until(".numbers", "10,000")
	if left := s.get("/jobs?filter=queue:bulk")["jobs"].([]any); len(left) > 0 {
		t.Errorf("%d jobs are left", len(left))
	}

	b.load("/queue?queue=mail.welcome")
	h.press(b, `a[href="#pause"]`)
	h.write(b, "#why", "deploy")
	h.write(b, "#by", "ana")
	h.press(b, "#pause button")
	b.until(".banner", "hands out no jobs, by ana: deploy.")
	h.press(b, `button[value="resume"]`)
	b.until(".notice", "Resumed.")
}

// TestStory: a person can do everything with a mouse, and another one, in a window of its own, sees it at once.
func TestStory(t *testing.T) {
	t.Parallel()
	s := serve(t, configured(t)...)
	s.fill()
	b, other := openTab(t, newBrowser(t), s), openTab(t, newBrowser(t), s)
	other.load("/queue?queue=mail.welcome")
	other.until("#live", "live")
	story(b, mouse{})
	other.until(`[data-live="failed"]`, "19")
	s.api("/queues/pause", map[string]any{"queue": "mail.welcome", "by": "bob", "why": "to be seen"})
	other.until(".banner", "by bob: to be seen")
	before := other.text(`[data-live="ready"]`)
	s.api("/jobs", map[string]any{"queue": "mail.welcome", "name": "seen"})
	other.await("another number of ready jobs", func() bool { return other.text(`[data-live="ready"]`) != before })
	mouse{}.press(other, "#hold")
	other.until("#live", "paused")
}

// TestStoryWithoutScripts: a person whose browser runs no scripts can do the same.
func TestStoryWithoutScripts(t *testing.T) {
	t.Parallel()
	s := serve(t, configured(t)...)
	s.fill()
	b := openTab(t, newBrowser(t), s)
	b.run(command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	story(b, mouse{})
	if b.text("#live") != "" {
		t.Error("the page has run its script")
	}
}

// TestStoryByKeyboard: a person without a mouse can do the same, in the dark, and sees at each step where the focus is.
// The first stop skips the menu.
func TestStoryByKeyboard(t *testing.T) {
	t.Parallel()
	s := serve(t, configured(t)...)
	s.fill()
	b := openTab(t, newBrowser(t), s)
	b.theme("dark")
	b.load("/")
	b.run(chromedp.KeyEvent(kb.Tab))
	if got := value[string](b, `document.activeElement.textContent`); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	story(b, keyboard{})
}

// TestStoryOnPhone: a person can do the same on a telephone, by touch and by a keyboard.
func TestStoryOnPhone(t *testing.T) {
	t.Parallel()
	for _, h := range []hand{mouse{}, keyboard{}} {
		s := serve(t, configured(t)...)
		s.fill()
		b := openTab(t, newBrowser(t), s)
		b.size(375, 812)
		story(b, h)
	}
}

// TestStoryZoomed: a person can do the same with a window of 1280 pixels at a zoom of 200 %.
func TestStoryZoomed(t *testing.T) {
	t.Parallel()
	s := serve(t, configured(t)...)
	s.fill()
	b := openTab(t, newBrowser(t), s)
	b.size(640, 400)
	story(b, mouse{})
}
