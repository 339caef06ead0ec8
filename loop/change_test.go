package loop

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os/user"
	"slices"
	"strings"
	"testing"

	codec "treadle/codec/admin"
	"treadle/loop/client"
)

// ask posts a JSON body, decodes the answer unless into is nil, and returns the status.
func (a api) ask(path, body string, into any) int {
	a.t.Helper()
	return a.do(http.MethodPost, path, "application/json", strings.NewReader(body), into)
}

// refuses posts a body that is refused with a status and a text.
func (a api) refuses(path, body string, status int, text string) {
	a.t.Helper()
	var e codec.Error
	if code := a.ask(path, body, &e); code != status || !strings.Contains(e.Error, text) {
		a.t.Errorf("%s %.100s: %d %q, want %d %q", path, body, code, e.Error, status, text)
	}
}

// ids returns the ids of the jobs that a filter means, by name.
func (a api) ids(filter string) map[string]string {
	a.t.Helper()
	var page codec.Jobs
	if code := a.do(http.MethodGet, "/jobs?limit=1000&filter="+url.QueryEscape(filter), "", nil, &page); code != http.StatusOK {
		a.t.Fatalf("%s: %d", filter, code)
	}
	all := make(map[string]string)
	for _, j := range page.Jobs {
		all[j.Name] = j.ID
	}
	return all
}

// many submits n jobs to a queue, delayed for an hour.
func (a api) many(queue string, n int) {
	a.t.Helper()
	var b strings.Builder
	for k := range n {
		fmt.Fprintf(&b, `{"queue":%q,"name":"%d","delay":"1h"}`+"\n", queue, k)
	}
	var done codec.SubmittedLines
	if code := a.do(http.MethodPost, "/jobs", ndjson, strings.NewReader(b.String()), &done); code != http.StatusOK || done.Submitted != n {
		a.t.Fatalf("%d: %+v", code, done)
	}
}

// ended starts an operation and returns it when it has ended.
func (a api) ended(path, body string) (op codec.Operation) {
	a.t.Helper()
	var started codec.OperationStarted
	if code := a.ask(path, body, &started); code != http.StatusOK {
		a.t.Fatalf("%s: %d", body, code)
	}
	a.r.until("the operation has ended", func() bool {
		var all codec.Operations
		a.do(http.MethodGet, "/operations?id="+started.Operation, "", nil, &all)
		op = all.Operations[0]
		return op.State != codec.OperationRunning
	})
	return op
}

// TestAPIChangeByID: jobs are changed by their ids, and those that stay as they were are named with the reason.
func TestAPIChangeByID(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	a.many("f", 4)
	a.submit(`{"queue":"f","name":"ready"}`)
	a.submit(`{"queue":"g","name":"2"}`)
	ids := a.ids("queue:f")
	change := func(verb, more string, names ...string) (c codec.JobsChanged) {
		t.Helper()
		var all []string
		for _, name := range names {
			all = append(all, ids[name])
		}
		text, _ := json.Marshal(all)
		if code := a.ask("/jobs/change", `{"verb":"`+verb+`","ids":`+string(text)+more+`}`, &c); code != http.StatusOK {
			t.Fatalf("%s: %d", verb, code)
		}
		return c
	}
	if c := change("run", "", "0", "1", "ready"); c.Changed != 2 || len(c.Left) != 1 || c.Left[0].ID != ids["ready"] || c.Left[0].Status != 409 {
		t.Errorf("run: %+v", c)
	}
	if c := change("remove", "", "0"); c.Changed != 1 {
		t.Errorf("remove: %+v", c)
	}
	if c := change("remove", "", "0"); c.Changed != 0 || len(c.Left) != 1 || c.Left[0].Status != 404 {
		t.Errorf("remove again: %+v", c)
	}
	if c := change("priority", `,"priority":-3`, "1", "3"); c.Changed != 2 || len(a.ids("queue:f priority:-3")) != 2 {
		t.Errorf("priority: %+v", c)
	}
	if c := change("due", `,"delay":"2h"`, "1"); c.Changed != 1 || len(a.ids("queue:f state:delayed")) != 3 {
		t.Errorf("due: %+v", c)
	}
	if c := change("due", `,"at":5`, "1"); c.Changed != 1 || len(a.ids("queue:f state:ready")) != 2 {
		t.Errorf("due in the past: %+v", c)
	}
	if c := change("move", `,"to":"g"`, "2", "3", "ready"); c.Changed != 2 || len(c.Left) != 1 || c.Left[0].ID != ids["2"] || len(a.ids("queue:g")) != 3 {
		t.Errorf("move: %+v", c)
	}
	if c := change("move", `,"to_b64":"/w=="`, "1"); c.Changed != 1 || a.queue("%FF").Ready != 1 {
		t.Errorf("move to a queue that is not UTF-8: %+v", c)
	}
	if c := change("retry", "", "2"); c.Changed != 0 || c.Left[0].Status != 409 {
		t.Errorf("retry: %+v", c)
	}
	for body, want := range map[string]int{`{"verb":"priority","priority":7,"queue":"g","name":"3"}`: 0, `{"verb":"remove","queue_b64":"/w==","name":"1","protocol":"periodic"}`: 0, `{"verb":"retry","queue":"g","name":"ready"}`: 409} {
		var c codec.JobsChanged
		if code := a.ask("/jobs/change", body, &c); code != http.StatusOK || want == 0 && c.Changed != 1 || want != 0 && (len(c.Left) != 1 || c.Left[0].Status != want) {
			t.Errorf("%s: %d %+v", body, code, c)
		}
	}
	if len(a.ids("queue:g priority:7")) != 1 || a.queue("%FF").Ready != 0 {
		t.Error("the jobs that were named are not changed")
	}
}

// TestAPIChangeRefused: bad requests change nothing, and their errors say what is wrong.
func TestAPIChangeRefused(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	a.many("f", 1)
	id := a.ids("queue:f")["0"]
	var forged codec.JobsChanged
	if code := a.ask("/jobs/change", `{"verb":"remove","ids":["65535.4294967295.18446744073709551615","0.0.0"]}`, &forged); code != 200 || len(forged.Left) != 2 {
		t.Errorf("forged ids: %d %+v", code, forged)
	}
	for body, text := range map[string]string{
		`{"verb":"explode","ids":["` + id + `"]}`:                                   "verb is retry",
		`{"ids":["` + id + `"]}`:                                                    "verb is retry",
		`{"verb":"remove"}`:                                                         "queue:* means all jobs",
		`{"verb":"remove","filter":" "}`:                                            "queue:* means all jobs",
		`{"verb":"remove","filter":"queue:f","ids":["` + id + `"]}`:                 "or all of a filter",
		`{"verb":"remove","ids":["5.17"]}`:                                          "5.17.100",
		`{"verb":"remove","ids":["99999999999.1.1"]}`:                               "5.17.100",
		`{"verb":"remove","ids":["` + id + `"],"dry_run":true}`:                     "dry_run",
		`{"verb":"remove","ids":["` + id + `"],"priority":1}`:                       "takes no",
		`{"verb":"priority","ids":["` + id + `"]}`:                                  "needs priority",
		`{"verb":"due","ids":["` + id + `"]}`:                                       "needs at or delay",
		`{"verb":"due","at":1,"delay":1,"ids":["` + id + `"]}`:                      "not both",
		`{"verb":"due","delay":"1h","to":"g","ids":["` + id + `"]}`:                 "takes no more",
		`{"verb":"move","ids":["` + id + `"]}`:                                      "needs to",
		`{"verb":"move","to":"` + strings.Repeat("x", 256) + `","ids":["1.1.1"]}`:   "at most 255 bytes",
		`{"verb":"move","to":"f","filter":"queue:f"}`:                               "the queue that they are to move to",
		`{"verb":"remove","queue":"f"}`:                                             "a queue and a name",
		`{"verb":"remove","name":"0"}`:                                              "a queue and a name",
		`{"verb":"remove","queue":"f","name":"0","ids":["` + id + `"]}`:             "or all of a filter",
		`{"verb":"remove","queue":"f","queue_b64":"Zg==","name":"0"}`:               "give one",
		`{"verb":"remove","queue":"f","name":"0","protocol":"smtp"}`:                "protocol",
		`{"verb":"remove","queue":"f","name":"0","dry_run":true}`:                   "dry_run",
		`{"verb":"remove","filter":"state:lost"}`:                                   "no state",
		`{"verb":"remove","filter":"queue:\ud800"}`:                                 "not UTF-8",
		`{"verb":"remove","ids":["1.1.1"` + strings.Repeat(`,"1.1.1"`, 1000) + `]}`: "at most 1000 jobs",
		`{"verb":"remove","ids":["1.1.1"],"force":true}`:                            "unknown field",
	} {
		a.refuses("/jobs/change", body, http.StatusBadRequest, text)
	}
	a.refuses("/jobs/change", `{"verb":"remove","queue":"f","name":"none"}`, http.StatusNotFound, "no such job")
	for path, body := range map[string]string{"pause": `{}`, "resume": `{"queue":""}`, "drain": `{"queue":"f*"}`, "empty": `{"queue":"f*"}`} {
		a.refuses("/queues/"+path, body, http.StatusBadRequest, "name")
	}
	a.refuses("/queues/pause", `{"queue":"f","what":"all"}`, http.StatusBadRequest, "hand-out")
	a.refuses("/queues/drain", `{"queue":"none"}`, http.StatusNotFound, "no queue")
	a.refuses("/operations/cancel", `{"operation":"9"}`, http.StatusNotFound, "no operation")
	if q := a.queue("f"); q.Delayed != 1 || q.Paused != "" {
		t.Errorf("%+v", q)
	}
	var audit codec.Audit
	a.do(http.MethodGet, "/audit", "", nil, &audit)
	if len(audit.Records) != 0 {
		t.Errorf("%+v", audit.Records)
	}
}

// TestAPIOperation: a change of all jobs that a filter means counts what it has done. A dry run only counts.
func TestAPIOperation(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Data: t.TempDir()})
	a := api{t, r}
	const n = 3000
	a.many("f", n)
	a.many("g", 5)
	var dry codec.JobsMatched
	if code := a.ask("/jobs/change", `{"verb":"run","filter":"queue:f name:1*","dry_run":true}`, &dry); code != 200 || dry.Matched != 1111 || dry.More || dry.Looked != n {
		t.Errorf("a dry run: %d %+v", code, dry)
	}
	if q := a.queue("f"); q.Delayed != n {
		t.Errorf("a dry run has changed %+v", q)
	}
	for _, c := range []struct {
		body string
		want string
	}{
		{`{"verb":"run","filter":"queue:f name:1*"}`, "run 1111 1111 0"},
		{`{"verb":"priority","priority":4,"filter":"queue:f"}`, "priority 3000 3000 0"},
		{`{"verb":"due","delay":"2h","filter":"queue:f name:1*"}`, "due 1111 1111 0"},
		{`{"verb":"move","to":"g","filter":"queue:f name:?"}`, "move 10 5 5"},
		{`{"verb":"retry","filter":"queue:f"}`, "retry 0 0 0"}, // none has failed
		{`{"verb":"retry","filter":"queue:f state:delayed"}`, "retry 2995 0 2995"},
		{`{"verb":"remove","filter":"queue:* priority:4"}`, "remove 3000 3000 0"},
	} {
		op := a.ended("/jobs/change", c.body)
		if got := fmt.Sprint(op.Verb, " ", op.Matched, " ", op.Changed, " ", op.Left); got != c.want || op.State != codec.OperationDone || len(op.Errors) != min(op.Left, 10) {
			t.Errorf("%s: %s, want %s: %+v", c.body, got, c.want, op)
		}
		a.refuses("/operations/cancel", `{"operation":"`+op.Operation+`"}`, http.StatusConflict, "has ended")
	}
	if f, g := a.queue("f"), a.queue("g"); f.Delayed+f.Ready != 0 || g.Delayed != 5 {
		t.Errorf("%+v %+v", f, g)
	}
	r.stop()
	r.wait()
	r = startServer(t, Options{HTTP: "127.0.0.1:0", Data: r.o.Data})
	a.r = r
	if g := a.queue("g"); g.Delayed != 5 || len(a.ids("queue:*")) != 5 {
		t.Errorf("after a restart: %+v", g)
	}
}

// TestAPIOperationCancelled: a cancelled operation ends after a batch, also when the server stops. What it has changed
// stays changed.
func TestAPIOperationCancelled(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	a.many("f", 100_000)
	var started codec.OperationStarted
	a.ask("/jobs/change", `{"verb":"remove","filter":"queue:f"}`, &started)
	var op codec.Operation
	if code := a.ask("/operations/cancel", `{"operation":"`+started.Operation+`"}`, &op); code != http.StatusOK {
		t.Fatal(code) // 100,000 jobs take longer than a request
	}
	r.until("the operation has ended", func() bool {
		var all codec.Operations
		a.do(http.MethodGet, "/operations", "", nil, &all)
		op = all.Operations[0]
		return op.State == codec.OperationCancelled
	})
	if q := a.queue("f"); q.Delayed == 0 || q.Delayed+op.Changed != 100_000 || op.Ended == 0 {
		t.Errorf("%+v %+v", q, op)
	}
	a.ask("/jobs/change", `{"verb":"remove","filter":"queue:f"}`, &started)
	r.stop() // goleak: its goroutine has ended
}

// TestAPIQueueVerbs: queues are paused, resumed, drained and emptied.
func TestAPIQueueVerbs(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Admin: AdminOptions{Rules: []PolicyRule{{Pattern: "h*", Values: map[string]string{"paused": "both"}}}}})
	a := api{t, r}
	a.many("f", 3)
	var rule codec.Rule
	if code := a.ask("/queues/pause", `{"queue":"f","by":"ana","why":"deploy"}`, &rule); code != 200 || rule.Values["paused"] != "hand-out" {
		t.Errorf("%d %+v", code, rule)
	}
	if q := a.queue("f"); q.Paused != "hand-out" || q.PausedBy != "ana" || q.PausedWhy != "deploy" {
		t.Errorf("%+v", q)
	}
	var drained codec.Queues
	if code := a.ask("/queues/drain", `{"queue":"f"}`, &drained); code != 200 || drained.Queues[0].Paused != "submits" || drained.Queues[0].Delayed != 3 || drained.Queues[0].PausedBy != "" {
		t.Errorf("%d %+v", code, drained)
	}
	var refused codec.Error
	if code := a.ask("/jobs", `{"queue":"f"}`, &refused); code != http.StatusTooManyRequests || !strings.HasSuffix(refused.Error, "it is paused for submits") {
		t.Errorf("a draining queue: %d %s", code, refused.Error)
	}
	a.ask("/queues/pause", `{"queue":"f","by":"ana","what":"submits","why":"deploy"}`, nil)
	if a.ask("/jobs", `{"queue":"f"}`, &refused); !strings.HasSuffix(refused.Error, "it is paused for submits by ana: deploy") {
		t.Errorf("a paused queue: %s", refused.Error)
	}
	for _, want := range []bool{true, false} {
		rule = codec.Rule{}
		if a.ask("/queues/resume", `{"queue":"f"}`, &rule); a.queue("f").Paused != "" || rule.Changed != want {
			t.Errorf("%+v, changed %v, want %v", a.queue("f"), rule.Changed, want)
		}
		rule = codec.Rule{}
		if code := a.ask("/queues/resume", `{"queue":"hot"}`, &rule); code != 200 || rule.Values["paused"] != "no" || rule.Changed != want { // the file pauses it
			t.Errorf("%d %+v, want changed %v", code, rule, want)
		}
	}
	a.refuses("/queues/empty", `{"queue":"nosuch","dry_run":true}`, http.StatusNotFound, "no queue")
	a.refuses("/queues/empty", `{"queue":"nosuch"}`, http.StatusNotFound, "no queue")
	a.submit(`{"queue":"hot"}`)
	var dry codec.JobsMatched
	if code := a.ask("/queues/empty", `{"queue":"f","dry_run":true}`, &dry); code != 200 || dry.Matched != 3 {
		t.Errorf("%d %+v", code, dry)
	}
	odd := `say "hi" \ state:ready`
	a.submit(fmt.Sprintf(`{"queue":%q}`, odd))
	if op := a.ended("/queues/empty", fmt.Sprintf(`{"queue":%q}`, odd)); op.Changed != 1 || op.Left != 0 {
		t.Errorf("%+v", op)
	}
	if op := a.ended("/queues/empty", `{"queue":"f"}`); op.Changed != 3 || len(a.ids("queue:*")) != 1 {
		t.Errorf("%+v", op)
	}
}

// TestOddQueueChanges: a queue whose name is not UTF-8 is paused, drained and emptied, also after a restart, and each
// answer has the bytes of its name.
func TestOddQueueChanges(t *testing.T) {
	t.Parallel()
	options := Options{HTTP: "127.0.0.1:0", Data: t.TempDir()}
	r := startServer(t, options)
	a := api{t, r}
	const odd, body = "\xff\xfe", `{"queue_b64":"//4="}`
	a.submit(`{"queue_b64":"//4=","name":"one"}`)
	var rule codec.Rule
	if code := a.ask("/queues/pause", body, &rule); code != 200 || string(rule.PatternBytes) != odd || rule.Pattern != "" || !rule.Changed {
		t.Errorf("a pause: %d %+v", code, rule)
	}
	r.stop()
	r.wait()
	a.r = startServer(t, options)
	if q := a.queue("%FF%FE"); q.Paused != "hand-out" || string(q.QueueBytes) != odd {
		t.Errorf("after a restart: %+v", q)
	}
	var policy, rules codec.Table
	a.do(http.MethodGet, "/policies?queue=%FF%FE", "", nil, &policy)
	if policy.Queue != "" || string(policy.QueueBytes) != odd || len(policy.Values) != 1 || string(policy.Values[0].PatternBytes) != odd || policy.Values[0].Pattern != "" {
		t.Errorf("the policy: %+v", policy)
	}
	if a.do(http.MethodGet, "/policies", "", nil, &rules); len(rules.Rules) != 1 || string(rules.Rules[0].PatternBytes) != odd || rules.Rules[0].Pattern != "" {
		t.Errorf("the rules: %+v", rules.Rules)
	}
	rule = codec.Rule{}
	if code := a.ask("/queues/resume", body, &rule); code != 200 || string(rule.PatternBytes) != odd || !rule.Changed || a.queue("%FF%FE").Paused != "" {
		t.Errorf("a resume: %d %+v", code, rule)
	}
	var drained codec.Queues
	if code := a.ask("/queues/drain", body, &drained); code != 200 || string(drained.Queues[0].QueueBytes) != odd || drained.Queues[0].Paused != "submits" {
		t.Errorf("a drain: %d %+v", code, drained)
	}
	if op := a.ended("/queues/empty", body); op.Changed != 1 || a.queue("%FF%FE").Ready != 0 {
		t.Errorf("it is emptied: %+v", op)
	}
	for _, path := range []string{"pause", "resume", "drain", "empty"} {
		a.refuses("/queues/"+path, `{"queue":"a","queue_b64":"//4="}`, http.StatusBadRequest, "give one")
		a.refuses("/queues/"+path, `{"queue_b64":""}`, http.StatusBadRequest, "name a queue")
	}
}

// TestAudit: each change through the API leaves a record, which survives a restart, and no other request does. A record
// of the socket names the user that the system knows, beside the one that the request names.
func TestAudit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	options := Options{HTTP: "127.0.0.1:0", Data: dir, Admin: AdminOptions{Listen: []string{"unix://" + dir + "/sock"}}}
	r := startServer(t, options)
	a := api{t, r}
	a.many("f", 4)
	ids := a.ids("queue:f")
	a.ask("/jobs/change", fmt.Sprintf(`{"verb":"run","ids":[%q,%q,%q,%q],"by":"ana","why":"late"}`, ids["0"], ids["1"], ids["2"], ids["3"]), nil)
	a.do(http.MethodPatch, "/policies", "application/json", strings.NewReader(`{"pattern":"f","values":{"retries":"3","rate":null}}`), nil)
	a.do(http.MethodPatch, "/policies", "application/json", strings.NewReader(`{"pattern":"f","values":{"retries":"x"}}`), nil)
	for range 2 { // no change, and no record
		a.do(http.MethodPatch, "/policies", "application/json", strings.NewReader(`{"pattern":"f","values":{"retries":"3","rate":null}}`), nil)
		a.ask("/queues/resume", `{"queue":"f"}`, nil)
		a.ask("/queues/resume", `{"queue":"nosuch"}`, nil)
	}
	a.ask("/queues/empty", `{"queue":"f","dry_run":true}`, nil)
	a.ask("/cron", `{"name":"nightly","schedule":"30 2 * * *","zone":"Europe/Berlin","queue":"f","workload":"secret"}`, nil)
	a.ask("/cron/pause", `{"entry":"nightly","by":"ana"}`, nil)
	a.ended("/jobs/change", `{"verb":"remove","filter":"queue:f","by":"bo"}`)
	socket := client.NewAdmin(options.Admin.Listen[0])
	defer socket.Close()
	socket.By = "robot"
	if _, err := socket.PauseQueue(t.Context(), "f", "both", "deploy"); err != nil {
		t.Fatal(err)
	}
	if d, err := socket.ChangeJobs(t.Context(), &client.JobsChange{Verb: "retry", IDs: []string{"0.0.99"}}); err != nil || d.Changed != 0 {
		t.Fatal(d, err)
	}
	if _, err := socket.CountQueue(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	a.submit(`{"queue":"g","name":"one"}`)
	for _, change := range []string{`"verb":"priority","priority":42`, `"verb":"due","delay":"3h"`, `"verb":"due","at":"2030-01-31T09:00:00Z"`} {
		a.ask("/jobs/change", `{"queue":"g","name":"one",`+change+`}`, nil)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1 ana/ POST /api/v1/jobs/change run " + strings.Join([]string{ids["0"], ids["1"], ids["2"]}, " ") + " and 1 more 4 late",
		"2 / PATCH /api/v1/policies f without rate retries=3 0 ",
		`3 / POST /api/v1/cron f nightly "30 2 * * *" Europe/Berlin 0 `,
		"4 ana/ POST /api/v1/cron/pause nightly 0 ",
		"5 bo/ POST /api/v1/jobs/change remove queue:f 0 ",
		"6 bo/ operation 1 remove queue:f: done 4 ",
		"7 robot/" + me.Username + " POST /api/v1/queues/pause both f 0 deploy",
		"8 / POST /api/v1/jobs/change priority 42 g one 1 ",
		"9 / POST /api/v1/jobs/change due in 3h0m0s g one 1 ",
		"10 / POST /api/v1/jobs/change due 2030-01-31T09:00:00Z g one 1 ",
	}
	read := func() (got []string) {
		t.Helper()
		for after := ""; ; {
			var page codec.Audit
			if code := a.do(http.MethodGet, "/audit?limit=2&after="+after, "", nil, &page); code != http.StatusOK {
				t.Fatal(code)
			}
			for _, x := range page.Records {
				got = append(got, fmt.Sprint(x.Number, " ", x.By, "/", x.User, " ", x.Request, " ", x.Target, " ", x.Count, " ", x.Why))
				if x.At == 0 || (x.From == "socket") != (x.Number == 7) || (x.UID != nil) != (x.Number == 7) || (x.Agent == "treadle") != (x.Number == 7) {
					t.Errorf("%+v", x)
				}
			}
			if after = page.Next; after == "" {
				slices.Reverse(got)
				return got
			}
		}
	}
	if got := read(); !slices.Equal(got, want) {
		t.Errorf("got\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, after := range []string{"x", "-1", "1.5"} {
		if code := a.do(http.MethodGet, "/audit?after="+after, "", nil, nil); code != http.StatusBadRequest {
			t.Errorf("after %s: %d", after, code)
		}
	}
	r.stop()
	r.wait()
	a.r = startServer(t, options)
	if got := read(); !slices.Equal(got, want) {
		t.Errorf("after a restart got\n%s", strings.Join(got, "\n"))
	}
}
