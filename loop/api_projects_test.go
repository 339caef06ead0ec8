package loop

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	codec "treadle/codec/admin"
)

// TestAPIProjects: the projects of kts46 come by name, each once on pages of any size, with their jobs added up; one
// project has its jobs with their workers.
func TestAPIProjects(t *testing.T) {
	o := Options{HTTP: "127.0.0.1:0"}
	o.Kts46 = ktsOn
	r := startServer(t, o)
	a, k := api{t, r}, ktsCaller{r.Server, t}
	for _, project := range []string{"b", "a\u202e", "c"} {
		k.does("createProject", project)
	}
	for n := range 3 {
		job := fmt.Sprint("j", n)
		k.does("addJob", "b", job, "simulationParameters: {duration: 60.0, stepDuration: 0.5, batchLength: 4}")
		k.does("runJob", "b", job)
	}
	k.does("getJob", "w1")
	projects := func(query string) (names []string, jobs []codec.ProjectJob, all []codec.Project) {
		t.Helper()
		for after := ""; ; {
			var page codec.Projects
			if code := a.do(http.MethodGet, "/projects?after="+after+query, "", nil, &page); code != http.StatusOK {
				t.Fatalf("%s: %d", query, code)
			}
			for _, p := range page.Projects {
				names = append(names, p.Project)
			}
			all, jobs = append(all, page.Projects...), append(jobs, page.Jobs...)
			if after = page.Next; after == "" {
				return names, jobs, all
			}
		}
	}
	for _, limit := range []int{1, 2, 3, 100} {
		names, _, all := projects(fmt.Sprint("&limit=", limit))
		if !slices.Equal(names, []string{"a\u202e", "b", "c"}) {
			t.Fatalf("limit %d: %q", limit, names)
		}
		if b := all[1]; b.Jobs != 3 || b.Finished != 0 || b.Done != 0 || b.Total < 3 || b.Held != 1 {
			t.Errorf("%+v", b)
		}
		_, jobs, _ := projects(fmt.Sprint("&project=b&limit=", limit))
		if len(jobs) != 3 || jobs[2].Job != "j2" || jobs[0].Total < 1 {
			t.Fatalf("limit %d: %+v", limit, jobs)
		}
		if held := slices.Concat(jobs[0].Workers, jobs[1].Workers, jobs[2].Workers); !slices.Equal(held, []string{"w1"}) {
			t.Errorf("workers %q", held)
		}
	}
	for query, want := range map[string]int{"project=nowhere": 404, "after=%25": 400, "limit=0": 400} {
		if code := a.do(http.MethodGet, "/projects?"+query, "", nil, nil); code != want {
			t.Errorf("%s: %d, want %d", query, code, want)
		}
	}
}

// TestAPICauses: failed jobs are counted by queue and cause, the largest group first, of one queue or of all.
func TestAPICauses(t *testing.T) {
	o := Options{HTTP: "127.0.0.1:0"}
	o.Admin.Rules = []PolicyRule{{Pattern: "*", Values: map[string]string{"retries": "0", "keep-failed": "100"}}}
	a := api{t, startServer(t, o)}
	fail := func(queue, text string) {
		t.Helper()
		a.submit(`{"queue":"` + queue + `"}`)
		var leased codec.Leased
		if a.do(http.MethodPost, "/reserve", "application/json", strings.NewReader(`{"queues":["`+queue+`"]}`), &leased); len(leased.Jobs) != 1 {
			t.Fatalf("%+v", leased)
		}
		body := `{"token":"` + leased.Jobs[0].Token + `","error":"` + text + `"}`
		if code := a.do(http.MethodPost, "/leases/fail", "application/json", strings.NewReader(body), nil); code != http.StatusOK {
			t.Fatal(code)
		}
	}
	for n := range 3 {
		fail("mail", fmt.Sprintf("no route to 10.0.0.%d", n))
	}
	fail("mail", "disk full")
	fail("post", "disk full")
	causes := func(query string) (c codec.FailureCauses, text string) {
		t.Helper()
		if code := a.do(http.MethodGet, "/jobs/causes"+query, "", nil, &c); code != http.StatusOK {
			t.Fatal(code)
		}
		for _, one := range c.Causes {
			text += fmt.Sprintf("%s/%s/%d ", one.Queue, one.Cause, one.Jobs)
		}
		return c, text
	}
	if c, text := causes(""); text != "mail/no route to #.#.#.#/3 mail/disk full/1 post/disk full/1 " || c.Looked != 5 || c.Of != 5 || c.More || c.Other != 0 {
		t.Errorf("%s%+v", text, c)
	}
	if c, text := causes("?queue=post"); text != "post/disk full/1 " || c.Of != 1 {
		t.Errorf("%s%+v", text, c)
	}
	if _, text := causes("?queue=nowhere"); text != "" {
		t.Error(text)
	}
}
