package loop

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	codec "treadle/codec/admin"
	"treadle/loop/client"
)

// TestAPIGraph: the tasks around one are those two links far, each once, with the number of those that are left out.
func TestAPIGraph(t *testing.T) {
	o := Options{HTTP: "127.0.0.1:0"}
	o.Dwork.Listen = []string{"tcp://127.0.0.1:0"}
	r := startServer(t, o)
	a, h := api{t, r}, r.hub()
	create := func(name string, after ...string) {
		t.Helper()
		if err := h.Create(t.Context(), client.DworkTask{Name: name, After: after}); err != nil {
			t.Fatal(err)
		}
	}
	create("far")
	create("a", "far")
	var parts []string
	for n := range 20 {
		name := fmt.Sprintf("part-%d", n)
		create(name)
		parts = append(parts, name)
	}
	create("merge", append(parts, "a")...)
	create("b", "merge", "a")
	create("c", "b")
	create("d", "c")
	graph := func(name string) (g codec.Graph, names []string) {
		t.Helper()
		if code := a.do(http.MethodGet, "/job/graph?queue=dwork&name="+name, "", nil, &g); code != http.StatusOK {
			t.Fatalf("%s: %d", name, code)
		}
		for _, one := range g.Tasks {
			names = append(names, fmt.Sprintf("%s%+d", one.Name, one.Step))
		}
		return g, names
	}
	g, names := graph("b")
	if first := g.Tasks[0]; first.Name != "b" || first.State != "waiting" || first.After != 2 || first.Before != 1 {
		t.Errorf("%+v", first)
	}
	for _, want := range []string{"b+0", "merge-1", "a-1", "far-2", "c+1", "d+2"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in %q", want, names)
		}
	}
	if slices.Sort(names); len(slices.Compact(names)) != len(g.Tasks) || len(g.Tasks) > 20 {
		t.Errorf("%d tasks: %q", len(g.Tasks), names)
	}
	for _, l := range g.Links {
		if l.From < 0 || l.To < 0 || l.From >= len(g.Tasks) || l.To >= len(g.Tasks) {
			t.Errorf("link %v", l)
		}
	}
	if g, _ := graph("merge"); g.Tasks[0].After != 21 {
		t.Errorf("%+v", g.Tasks[0])
	}
	text, _ := newBrowser(t, r).load("/job?queue=dwork&name=b", http.StatusOK)
	for _, part := range []string{"<h2>Graph</h2>", "<bdi>merge</bdi>", `class="graph"`} {
		if !strings.Contains(text, part) {
			t.Errorf("the page of the job has no %s", part)
		}
	}
	a.submit(`{"queue":"f","name":"x"}`)
	if code := a.do(http.MethodGet, "/job/graph?queue=f&name=x", "", nil, nil); code != http.StatusConflict {
		t.Errorf("a job that is no task: %d", code)
	}
	if code := a.do(http.MethodGet, "/job/graph?queue=dwork&name=nowhere", "", nil, nil); code != http.StatusNotFound {
		t.Errorf("no job: %d", code)
	}
}
