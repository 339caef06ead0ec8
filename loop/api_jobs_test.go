package loop

import (
	"fmt"
	"io"
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
	t.Parallel()
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
	a.submit(`{"queue":"f","name":"later","delay":"1h","priority":-3,"workload":".*[a-z]+(x|y)$ \\d"}`)
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
	f(`.*[a-z]+(x|y)$`, "later delayed") // a text is no expression
	f(`text:"$ \\d"`, "later delayed")
	f(`t.o`)
	f(`name:*a*a*a*a*a*a*a*a*a*a*a*b`)
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
	a.submit(`{"queue":"f","name":"mute","priority":9}`)
	w.send(request(2, periodic.GrabJob))
	handle, _ := assigned(t, w.next())
	w.send(request(3, periodic.WorkFail, handle))
	w.send(request(4, periodic.Ping))
	w.next() // the failure is noted
	_, page = a.jobs("name:mute", "", 9)
	if d, _ := a.job("id=" + page.Jobs[0].ID); page.Jobs[0].Error != "failed" || d.Error != "failed" || len(d.Why) != 1 || !strings.HasSuffix(d.Why[0].Text, ": failed") {
		t.Errorf("the job that failed without a text is %+v, %+v", page.Jobs[0], d)
	}
	f("queue:f text:failed", "mute failed")
	f("id:" + j.ID + " state:done")
	_, page = a.jobs("state:running", "", 9)
	if j := page.Jobs[0]; j.Worker == "" || j.Since == 0 || j.Due == 0 || j.Size != 0 {
		t.Errorf("the running job is %+v", j)
	}
}

// TestAPIJobsRefuses: an invalid request is refused with an error that says what may stand there.
func TestAPIJobsRefuses(t *testing.T) {
	t.Parallel()
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

// TestAPIWaitFailed: a submission that waits for a job that fails for good is told the error, whether the job is kept
// or not, and that a job has expired.
func TestAPIWaitFailed(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Admin: AdminOptions{Rules: []PolicyRule{
		{Pattern: "kept", Values: map[string]string{"retries": "0"}},
		{Pattern: "gone", Values: map[string]string{"retries": "0", "keep-failed": "0"}},
		{Pattern: "late", Values: map[string]string{"job-ttl": "1ms"}},
	}}})
	a := api{t, r}
	for _, c := range []struct{ queue, error, want string }{
		{"kept", "no disk", "no disk"}, {"gone", "\xff", "�"}, {"kept", "", "failed"}, {"late", "", "expired"},
	} {
		answer := make(chan codec.Submitted, 1)
		go func() { answer <- a.submit(`{"queue":"` + c.queue + `","wait":"1m"}`) }()
		if c.queue != "late" {
			w := r.greet(periodic.Worker)
			w.send(request(1, periodic.CanDo, str8(c.queue)))
			w.send(request(2, periodic.GrabJob))
			handle, _ := assigned(t, w.next())
			w.send(request(3, periodic.WorkFail, handle, []byte(c.error)))
		}
		if s := <-answer; s.State != "failed" || s.Error != c.want {
			t.Errorf("%s: %+v, want the error %q", c.queue, s, c.want)
		}
	}
}

// job asks for one job. It returns the status too.
func (a api) job(query string) (d codec.JobDetails, code int) {
	a.t.Helper()
	code = a.do(http.MethodGet, "/job?"+query, "", nil, &d)
	return d, code
}

// TestAPIJob: a job is found by its id and by its name, and shows the first of its bytes, its attempts and why it
// waits.
func TestAPIJob(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Admin: AdminOptions{Rules: []PolicyRule{
		{Pattern: "f", Values: map[string]string{"retries": "1", "backoff": "1h", "keep-done": "9", "keep-results": "9"}},
		{Pattern: "p", Values: map[string]string{"paused": "hand-out", "paused-by": "ana", "paused-why": "deploy"}},
	}}})
	a := api{t, r}
	f := func(query string, want codec.JobDetails) codec.JobDetails {
		t.Helper()
		d, code := a.job(query)
		var why []string
		for _, w := range d.Why {
			why = append(why, w.Reason+": "+w.Text)
		}
		got := fmt.Sprintf("%d %s %s %q %q %d %v %d", code, d.Name+string(d.NameBytes), d.State, str(d.Workload), d.WorkloadBytes, d.WorkloadSize, d.WorkloadCut, len(d.Attempts))
		if w := fmt.Sprintf("200 %s %s %q %q %d %v %d", want.Name, want.State, str(want.Workload), want.WorkloadBytes, want.WorkloadSize, want.WorkloadCut, len(want.Attempts)); got != w {
			t.Errorf("%s: got %s, want %s", query, got, w)
		}
		if got := strings.Join(why, "; "); got != want.Error {
			t.Errorf("%s: %q, want %q", query, got, want.Error)
		}
		if again, code := a.job("id=" + d.ID); code != 200 || again.Name != d.Name || again.ID != d.ID {
			t.Errorf("%s: by its id it is %+v", query, again)
		}
		return d
	}
	text := func(s string) *string { return &s }
	long := strings.Repeat("ä", 4000)
	a.submit(`{"queue":"q","name":"long","workload":"x` + long + `"}`)
	a.submit(`{"queue":"q","name_b64":"/w==","workload_b64":"/wA="}`)
	a.submit(`{"queue":"p","name":"paused","workload_json":` + strings.Repeat("[", 3000) + strings.Repeat("]", 3000) + `}`)
	f("queue=q&name=long", codec.JobDetails{ListedJob: codec.ListedJob{Name: "long", State: "ready", Error: "no-worker: no worker serves q"}, Workload: text("x" + long[:4094]), WorkloadSize: 8001, WorkloadCut: true})
	f("queue=q&name=%FF", codec.JobDetails{ListedJob: codec.ListedJob{Name: "\xff", State: "ready", Error: "no-worker: no worker serves q; behind: 1 job of its kind comes first"}, WorkloadBytes: []byte("\xff\x00"), WorkloadSize: 2})
	d := f("queue=p&name=paused&protocol=periodic", codec.JobDetails{ListedJob: codec.ListedJob{Name: "paused", State: "ready", Error: "paused: queue paused by ana: deploy; no-worker: no worker serves p"}, Workload: text(strings.Repeat("[", 3000) + strings.Repeat("]", 1096)), WorkloadSize: 6000, WorkloadCut: true})
	if d.Protocol != "periodic" || d.Attempts == nil {
		t.Errorf("%+v", d)
	}
	w := r.greet(periodic.Worker)
	w.send(request(1, periodic.CanDo, str8("f")))
	work := func(name string, cmd periodic.Command, data string) {
		w.send(request(2, periodic.GrabJob))
		handle, j := assigned(t, w.next())
		if string(j.Name) != name {
			t.Fatalf("%q is handed out", j.Name)
		}
		w.send(request(3, cmd, handle, []byte(data)))
	}
	a.submit(`{"queue":"f","name":"fails"}`)
	work("fails", periodic.WorkFail, "it hurts")
	a.submit(`{"queue":"f","name":"done","workload":"w"}`)
	work("done", periodic.WorkDone, "<script>\xff")
	r.until("the job is done", func() bool { return a.queue("f").Done == 1 })
	d, _ = a.job("queue=f&name=fails")
	if d.State != "delayed" || d.Error != "it hurts" || len(d.Attempts) != 1 || d.Attempts[0].Text != "it hurts" || d.Why[0].Reason != "delayed" || len(d.Why[0].Text) < 20 {
		t.Errorf("the job that failed: %+v", d)
	}
	d, _ = a.job("queue=f&name=done")
	if string(d.ResultBytes) != "<script>\xff" || d.ResultSize != 9 || d.ResultCut || d.Result != nil || d.Why[0].Reason != "done" || !strings.Contains(d.Why[0].Text, "done by worker periodic") {
		t.Errorf("the done job: %+v", d)
	}
	for part, want := range map[string]string{"workload": "w", "result": "<script>\xff"} {
		a.bytes("/job/"+part+"?id="+d.ID, want)
	}
	a.bytes("/job/workload?queue=q&name=long", "x"+long)
}

func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// bytes asks for bytes, which no browser shows as a page.
func (a api) bytes(path, want string) {
	a.t.Helper()
	answer, err := http.Get("http://" + a.r.http + "/api/v1" + path)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	h := answer.Header
	if string(got) != want || err != nil || answer.ContentLength != int64(len(want)) {
		a.t.Errorf("%s: %d bytes of %d, %v", path, len(got), answer.ContentLength, err)
	}
	if h.Get("Content-Type") != "application/octet-stream" || h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
		a.t.Errorf("%s: %v", path, h)
	}
}

// TestAPIJobRefuses: a job that is not there, or not named as it must be, has an error.
func TestAPIJobRefuses(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	a.submit(`{"queue":"f","name":"a"}`)
	id := func() string { d, _ := a.job("queue=f&name=a"); return d.ID }()
	f := func(path string, status int, want string) {
		t.Helper()
		var e codec.Error
		if code := a.do(http.MethodGet, path, "", nil, &e); code != status || !strings.Contains(e.Error, want) {
			t.Errorf("%.80s: %d %s, want %d %s", path, code, e.Error, status, want)
		}
	}
	for _, path := range []string{"/job?", "/job/workload?", "/job/result?"} {
		f(path, 400, "by its id, or by queue and name")
		f(path+"id="+id+"&name=a", 400, "by its id, or by queue and name")
		f(path+"queue=f", 400, "by its id, or by queue and name")
		f(path+"name=a", 400, "by its id, or by queue and name")
		f(path+"id=a", 400, "three numbers")
		f(path+"id=", 400, "three numbers")
		f(path+"id=65535.4294967295.1844674407370955161", 404, "no such job")
		f(path+"queue=f&name=b", 404, "no such job")
		f(path+"queue=g&name=a", 404, "no such job")
		f(path+"queue=f&name=a&protocol=gloom", 404, "no such job")
		f(path+"queue=f&name=a&protocol=odd", 400, "is no protocol")
		f(path+"queue=f&name=%f", 400, "cannot be read")
	}
	f("/job/result?id="+id, 404, "has no result yet")
	f("/jobs?time=0.5", 400, "from 1ms to 200ms")
	f("/jobs?time=0.0001", 400, "from 1ms to 200ms")
	if code := a.do(http.MethodGet, "/jobs?time=0.05", "", nil, nil); code != http.StatusOK {
		t.Errorf("a time in seconds: %d", code)
	}
	for _, path := range []string{"/queues", "/cron", "/policies"} {
		f(path+"?queue=%f", 400, "cannot be read")
	}
}

// TestAPILargeWorkload: a workload of the largest size is searched and read whole, and what replaces it is not mixed
// in.
func TestAPILargeWorkload(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	large := strings.Repeat("x", 40<<20) + "needle"
	a.submit(`{"queue":"f","name":"large","workload":"` + large + `"}`)
	a.submit(`{"queue":"f","name":"small","workload":"needle"}`)
	var got []string
	for after, more := "", true; more; more = after != "" {
		page, p := a.jobs("needle", after, 1)
		got, after = append(got, page...), p.Next
	}
	if fmt.Sprint(got) != "[large ready small ready]" {
		t.Errorf("%q", got)
	}
	a.bytes("/job/workload?queue=f&name=large", large)
	answer, err := http.Get("http://" + r.http + "/api/v1/job/workload?queue=f&name=large")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	a.submit(`{"queue":"f","name":"large","workload":"` + strings.ToUpper(large) + `"}`)
	if data, err := io.ReadAll(answer.Body); err == nil || strings.Contains(string(data), "X") {
		t.Errorf("%d bytes of a job that was replaced, %v", len(data), err)
	}
}

// TestAPIJobOfTwoProtocols: a name that jobs of two protocols have is not enough. The workload of a Gloom job is its
// body.
func TestAPIJobOfTwoProtocols(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Gloom: GloomOptions{Masters: []string{"tcp://127.0.0.1:0"}, Slaves: []string{"off"}}})
	a := api{t, r}
	a.submit(`{"queue":"f","name":"1","workload":"text"}`)
	submit := `{"action":"submit","id":1,"type":"f","body":{"n":1.50}}`
	c := r.dialGloom(true)
	c.send(gloomFrame(submit))
	if got, want := c.nextGloom("m", submit), `m < {"ok":true,"id":1}`; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	for _, path := range []string{"/job", "/job/workload"} {
		var e codec.Error
		if code := a.do(http.MethodGet, path+"?queue=f&name=1", "", nil, &e); code != http.StatusConflict || !strings.Contains(e.Error, "protocol") {
			t.Errorf("%s: %d %s", path, code, e.Error)
		}
	}
	for protocol, want := range map[string]string{"periodic": "text", "gloom": `{"n":1.50}`} {
		query := "queue=f&name=1&protocol=" + protocol
		if d, _ := a.job(query); d.Protocol != protocol || str(d.Workload) != want || d.WorkloadSize != len(want) || d.Size != len(want) {
			t.Errorf("%s: %+v", protocol, d)
		}
		a.bytes("/job/workload?"+query, want)
		if got, _ := a.jobs("protocol:"+protocol, "", 9); fmt.Sprint(got) != "[1 ready]" {
			t.Errorf("%s: %q", protocol, got)
		}
	}
}
