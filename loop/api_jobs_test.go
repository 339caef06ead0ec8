package loop

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	codec "treadle/codec/admin"
	"treadle/codec/periodic"
)

// jobs returns a page of the jobs of a filter: their names and states.
func (a api) jobs(filter, after string, limit int) (all []string, page codec.Jobs) {
	a.t.Helper()
	q := url.Values{"filter": {filter}, "after": {after}, "limit": {fmt.Sprint(limit)}}
	if code := a.do(http.MethodGet, "/jobs?"+q.Encode(), "", nil, &page); code != http.StatusOK {
		a.t.Fatalf("%s: %d", filter, code)
	}
	for _, j := range page.Jobs {
		all = append(all, j.Name+string(j.NameBytes)+" "+j.State)
	}
	return all, page
}

// TestAPIJobs: filters list the jobs that they mean, with what a person wants to know of each, in pages.
func TestAPIJobs(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Admin: AdminOptions{Rules: []PolicyRule{{Pattern: "f", Values: map[string]string{"retries": "0", "keep-results": "9"}}}}})
	a := api{t, r}
	w := r.greet(periodic.Worker)
	w.send(request(1, periodic.CanDo, str8("f")))
	for _, c := range []struct {
		name string
		end  periodic.Command
	}{{"done", periodic.WorkDone}, {"failed", periodic.WorkFail}, {"running", periodic.Noop}} {
		a.submit(`{"queue":"f","name":"` + c.name + `"}`)
		w.send(request(2, periodic.GrabJob))
		handle, _ := assigned(t, w.next())
		if c.end != periodic.Noop {
			w.send(request(3, c.end, handle, []byte("it hurts"+strings.Repeat(".", 300))))
		}
	}
	a.submit(`{"queue":"f","name":"later","delay":"1h","priority":-3}`)
	a.submit(`{"queue":"f","name_b64":"/w==","workload":"two words"}`)
	a.submit(`{"queue_b64":"/2E=","name":"odd"}`)
	f := func(filter string, want ...string) {
		t.Helper()
		for _, limit := range []int{1, 2, 1000} {
			var got []string
			for after, more := "", true; more; more = after != "" {
				page, p := a.jobs(filter, after, limit)
				got, after = append(got, page...), p.Next
				if p.Looked > int64(p.Of) || after == "" && p.Looked == 0 && len(want) > 0 {
					t.Errorf("%s: looked at %d of %d", filter, p.Looked, p.Of)
				}
			}
			if strings.Join(got, ", ") != strings.Join(want, ", ") {
				t.Errorf("%s in pages of %d: %q, want %q", filter, limit, got, want)
			}
		}
	}
	f("queue:f", "running running", "\xff ready", "later delayed", "failed failed", "done done")
	f("queue:f state:delayed,failed", "later delayed", "failed failed")
	f("queue:\xffa", "odd ready")
	f("queue:? name:\xff", "\xff ready")
	f(`"two words"`, "\xff ready")
	f("queue:f hurts", "failed failed", "done done")
	f("prio:<0 protocol:periodic", "later delayed")
	f("protocol:gloom")
	f("queue:nobody")
	f("state:done age:<1h worker:periodic", "done done")
	_, page := a.jobs("name:failed", "", 9)
	j := page.Jobs[0]
	if j.Error != "it hurts"+strings.Repeat(".", 192) || j.Tries != 1 || j.Since == 0 || j.Worker == "" || j.Protocol != "periodic" || j.Due != 0 {
		t.Errorf("the failed job is %+v", j)
	}
	f("id:"+j.ID, "failed failed")
	f("id:" + j.ID + " state:done")
	_, page = a.jobs("state:running", "", 9)
	if j := page.Jobs[0]; j.Worker == "" || j.Since == 0 || j.Due == 0 || j.Size != 0 {
		t.Errorf("the running job is %+v", j)
	}
}

// TestAPIJobsRefuses: what cannot be meant is refused with an error that says what may stand there.
func TestAPIJobsRefuses(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	for range 3 {
		a.submit(`{"queue":"f"}`)
	}
	_, all := a.jobs("", "", 1)
	_, one := a.jobs("queue:f", "", 1)
	f := func(query, want string) {
		t.Helper()
		var e codec.Error
		if code := a.do(http.MethodGet, "/jobs?"+query, "", nil, &e); code != http.StatusBadRequest || !strings.Contains(e.Error, want) {
			t.Errorf("%.80s: %d %s, want %s", query, code, e.Error, want)
		}
	}
	f("limit=0", "from 1 to 1000")
	f("limit=-5", "from 1 to 1000")
	f("limit=1001", "from 1 to 1000")
	f("limit=99999999999999999999", "from 1 to 1000")
	f("limit=many", "from 1 to 1000")
	f("filter=state:odd", "is no state")
	f("filter="+strings.Repeat("a", 5000), "at most 4096 bytes")
	f("filter=protocol:smtp", "the protocols are")
	f("filter=id:1.2", "three numbers")
	f("filter=id:1.2.-3", "three numbers")
	f("filter=%zz", "cannot be read")
	f("filter=a;limit=1", "cannot be read")
	f("after=!", "next of an earlier page")
	f("after=AAAA", "next of an earlier page")
	f("after="+one.Next, "next of an earlier page")
	f("filter=queue:f&after="+all.Next, "next of an earlier page")
	f("after="+all.Next+"AA", "next of an earlier page")
	if code := a.do(http.MethodGet, "/jobs?filter="+strings.Repeat("a", 10<<20), "", nil, nil); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a filter of 10 MiB: %d", code)
	}
}
