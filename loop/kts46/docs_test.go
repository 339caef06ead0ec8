package kts46

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestDocsMethods: the page names exactly the methods that each version serves.
func TestDocsMethods(t *testing.T) {
	text, err := os.ReadFile("../../cmd/treadle/docs/kts46.md")
	if err != nil {
		t.Fatal(err)
	}
	f := func(row string, want []string) {
		t.Helper()
		cells := regexp.MustCompile(`(?m)^\| ` + row + ` \|.*\| (.*) \|$`).FindSubmatch(text)
		if cells == nil {
			t.Fatalf("the page has no row %s", row)
		}
		got := regexp.MustCompile(`, `).Split(string(cells[1]), -1)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: the page names %q, served are %q", row, got, want)
		}
	}
	f("1, XML-RPC", slices.Sorted(maps.Keys(xmlMethods)))
	f("2, JSON-RPC 1.0", slices.Sorted(maps.Keys(jsonMethods)))
}
