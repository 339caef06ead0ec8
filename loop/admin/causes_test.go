package admin

import (
	"strings"
	"testing"

	codec "treadle/codec/admin"
)

// TestCauseOf: errors that differ in numbers alone are one cause, with their longest common part.
func TestCauseOf(t *testing.T) {
	f := func(text, pattern, common string) {
		t.Helper()
		if p, c := causeOf(text); p != pattern || c != common {
			t.Errorf("%q: %q, %q, want %q, %q", text, p, c, pattern, common)
		}
	}
	f("", "", "")
	f("timed out", "timed out", "timed out")
	f("timed out after 30s", "timed out after #s", "timed out after")
	f("dial tcp 10.0.0.7:5432: connection refused", "dial tcp #.#.#.#:#: connection refused", ": connection refused")
	f("row 5\nat line 7", "row #", "")
	f("  order 0xDEADbeef of user42  ", "order #xDEADbeef of user#", "order")
	f("request 4f9a0c11-77aa: gone", "request #-#: gone", "request")
	f("Traceback (most recent call last):\n  File \"w.py\", line 3, in send\nKeyError: 'to'\n", "KeyError: 'to'", "KeyError: 'to'")
	f("é1\xff", "é#", "")
	if p, c := causeOf(strings.Repeat("x", 10_000)); len(p) != maxCause || c != p {
		t.Errorf("%d bytes, %d", len(p), len(c))
	}
}

// TestCauses: failed jobs are grouped by queue, outcome and cause; further groups are counted alone.
func TestCauses(t *testing.T) {
	g := causes{all: make(map[causeKey]*codec.FailureCause)}
	failed := func(text string) []codec.Attempt {
		return []codec.Attempt{{Outcome: "failed", Text: text}, {Outcome: outcomeMoved, Text: "other"}}
	}
	g.add("mail", 100, "1", failed("user 7: no"))
	g.add("mail", 50, "2", failed("user 8: no"))
	g.add("mail", 70, "3", []codec.Attempt{{Outcome: "timeout", Text: "user 8: no"}})
	g.add("post", 70, "4", failed("user 8: no"))
	if one := g.all[causeKey{"mail", "failed\x00user #: no"}]; len(g.all) != 3 || one == nil || one.Jobs != 2 || one.First != 50 || one.Last != 100 || one.ID != "1" || one.Text != "user 7: no" {
		t.Errorf("%+v", g.all)
	}
	for n := range 2 * maxCauses {
		g.add("mail", 1, "5", failed(strings.Repeat("a", n+1)))
	}
	if len(g.all) != maxCauses || g.other != maxCauses+3 {
		t.Errorf("%d groups, %d others", len(g.all), g.other)
	}
}
