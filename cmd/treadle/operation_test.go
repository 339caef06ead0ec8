package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"treadle/loop/client"
)

// bulkServer answers as the API does to changes of many jobs. Its operation runs until it is cancelled or let go.
type bulkServer struct {
	*httptest.Server
	mu      sync.Mutex
	matched client.JobsMatched
	op      client.Operation
	asked   []client.JobsChange
	looks   chan struct{} // gets an element with each look at the running operation
}

func newBulkServer(t *testing.T) *bulkServer {
	t.Helper()
	b := &bulkServer{looks: make(chan struct{}, 100)}
	b.Server = httptest.NewServer(http.HandlerFunc(b.answer))
	t.Cleanup(b.Close)
	return b
}

func (b *bulkServer) answer(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var answer any
	switch r.Method + " " + r.URL.Path {
	case "POST /api/v1/jobs/change":
		var c client.JobsChange
		_ = json.NewDecoder(r.Body).Decode(&c)
		if c.DryRun {
			answer = b.matched
			break
		}
		b.asked = append(b.asked, c)
		answer = map[string]string{"operation": "7"}
	case "GET /api/v1/operations":
		answer = map[string]any{"operations": []client.Operation{b.op}}
		if b.op.State == "running" {
			b.looks <- struct{}{}
		}
	case "POST /api/v1/operations/cancel":
		b.op.State = "cancelled"
		answer = struct{}{}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// become sets what the server says of its jobs and its operation.
func (b *bulkServer) become(m client.JobsMatched, o client.Operation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.matched, b.op, b.asked = m, o, nil
}

// changes returns the changes that were asked for.
func (b *bulkServer) changes() []client.JobsChange {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// TestBulk: a change of all jobs that a filter means is counted first, and is made only when that is confirmed.
func TestBulk(t *testing.T) {
	t.Parallel()
	b := newBulkServer(t)
	done := client.Operation{Operation: "7", Verb: "retry", State: "done", Matched: 12, Changed: 12}
	f := func(m client.JobsMatched, o client.Operation, code int, out, errs string, changed bool, args ...string) {
		t.Helper()
		b.become(m, o)
		gotOut, gotErrs, got := treadle(t, "", append([]string{"-H", b.URL, "job"}, args...)...)
		if got != code || gotOut != out || gotErrs != errs || (len(b.changes()) == 1) != changed {
			t.Errorf("%q: exit code %d, %q, %q, %d changes; want %d, %q, %q", args, got, gotOut, gotErrs, len(b.changes()), code, out, errs)
		}
	}
	twelve := client.JobsMatched{Matched: 12, Looked: 30, Of: 30}
	f(twelve, done, 0, "12 jobs\n", "", false, "retry", "--filter", "state:failed", "--dry-run")
	f(client.JobsMatched{Matched: 1, Looked: 10, Of: 30, More: true}, done, 0, "at least 1 job (of 30, 10 were looked at)\n", "", false, "retry", "--filter", "state:failed", "--dry-run")
	f(twelve, done, 0, `{"matched":12,"looked":30,"of":30}`+"\n", "", false, "retry", "--filter", "state:failed", "--dry-run", "--json")
	f(twelve, done, 2, "", "treadle: retry: 12 jobs: --yes does it, --dry-run only counts\n", false, "retry", "--filter", "state:failed")
	f(twelve, done, 0, "12 ready again\n", "", true, "retry", "--filter", "state:failed", "--yes")
	left := done
	left.Changed, left.Left, left.Errors = 11, 1, []client.LeftJob{{ID: "1.2.3", Status: 409, Error: "it runs"}}
	f(twelve, left, 1, "11 ready again\n", "treadle: job 1.2.3: it runs\ntreadle: jobs that stay as they are: 1\n", true, "retry", "--filter", "state:failed", "-y")
	cancelled := done
	cancelled.State, cancelled.Changed = "cancelled", 3
	f(twelve, cancelled, 1, "3 ready again\n", "treadle: the operation 7 was cancelled: other jobs stay as they are\n", true, "retry", "--filter", "state:failed", "-y")
	f(twelve, done, 2, "", "treadle: name the jobs by their ids, one by its queue and name, or all of a --filter\n", false, "retry")
	f(twelve, done, 2, "", "treadle: name the jobs by their ids, one by its queue and name, or all of a --filter\n", false, "retry", "1.2.3", "--filter", "x")
	f(twelve, done, 2, "", "treadle: --dry-run counts the jobs of a --filter\n", false, "retry", "1.2.3", "--dry-run")
	f(twelve, done, 0, "12 moved\n", "", true, "move", "other", "--filter", "queue:mail", "-y")
	f(twelve, done, 0, "12 changed\n", "", true, "priority", "--filter", "queue:mail", "-y", "--", "-5")
	if c := b.changes(); len(c) == 1 && (c[0].Priority == nil || *c[0].Priority != -5 || c[0].Verb != "priority" || c[0].By == "") {
		t.Errorf("the priority: %+v", c)
	}
	f(twelve, done, 2, "", `treadle: "soon" is not a time: write seconds (90), or units as in 500ms, 90s, 5m or 1h30m, or a moment as in 2030-01-31T09:00:00Z`+"\n", false, "due", "soon", "1.2.3")
	if _, errs, code := treadle(t, "", "-H", b.URL, "job", "remove", "--filter", "colour:red", "-y"); code != 2 || !strings.HasPrefix(errs, `treadle: --filter: "colour:red": `) {
		t.Errorf("a wrong filter: exit code %d, %q", code, errs)
	}
}

// asking starts a removal of a filter's jobs on a terminal and waits for its question.
func asking(t *testing.T, url, question string) (cmd *exec.Cmd, printed *bytes.Buffer, shown *frames, master *os.File) {
	t.Helper()
	master, terminal := openTerminal(t)
	cmd = exec.Command(binary, "-H", url, "job", "remove", "--filter", "queue:mail")
	printed = new(bytes.Buffer)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, printed, terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	shown = newFrames(master)
	for !strings.Contains(shown.held, question) {
		if !shown.read() {
			t.Fatalf("it ends with %q", shown.held)
		}
	}
	return cmd, printed, shown, master
}

// TestBulkAsks: on a terminal the command asks, and of many jobs it wants their number.
func TestBulkAsks(t *testing.T) {
	t.Parallel()
	b := newBulkServer(t)
	f := func(matched int, question, answer string, code int, out string) {
		t.Helper()
		b.become(client.JobsMatched{Matched: matched}, client.Operation{State: "done", Changed: matched})
		cmd, printed, shown, master := asking(t, b.URL, question)
		if _, err := io.WriteString(master, answer+"\n"); err != nil {
			t.Fatal(err)
		}
		shown.rest()
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code || printed.String() != out {
			t.Errorf("%d jobs and the answer %q: exit code %d, %q, %q; want %d, %q", matched, answer, got, printed.String(), shown.held, code, out)
		}
	}
	f(3, "remove: 3 jobs? y does it: ", "y", 0, "3 removed\n")
	f(3, "remove: 3 jobs? y does it: ", "", 1, "")
	f(1500, "remove: 1500 jobs? 1500 does it: ", "y", 1, "")
	f(1500, "remove: 1500 jobs? 1500 does it: ", "1500", 0, "1500 removed\n")
}

// TestBulkInterrupted: a signal ends the question, and nothing is changed.
func TestBulkInterrupted(t *testing.T) {
	t.Parallel()
	b := newBulkServer(t)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		b.become(client.JobsMatched{Matched: 3}, client.Operation{State: "done", Changed: 3})
		cmd, printed, shown, _ := asking(t, b.URL, "remove: 3 jobs? y does it: ")
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
		shown.rest()
		_ = cmd.Wait()
		late.Stop()
		if got := cmd.ProcessState.ExitCode(); got != exitInterrupted || printed.Len() > 0 || len(b.changes()) > 0 {
			t.Errorf("%v: exit code %d, %q, %q, %d changes; want %d", s, got, printed.String(), shown.held, len(b.changes()), exitInterrupted)
		}
	}
}

// TestBulkCancel: an interrupt cancels the operation, and the command says how far it came.
func TestBulkCancel(t *testing.T) {
	t.Parallel()
	b := newBulkServer(t)
	b.become(client.JobsMatched{Matched: 100}, client.Operation{Operation: "7", State: "running", Of: 100, Looked: 50, Matched: 50, Changed: 41})
	var out, errs bytes.Buffer
	cmd := exec.Command(binary, "-H", b.URL, "job", "remove", "--filter", "queue:mail", "--yes")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-b.looks
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	want := "treadle: cancelled: other jobs stay as they are\n"
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || out.String() != "41 removed\n" || errs.String() != want {
		t.Errorf("exit code %d, %q, %q", code, out.String(), errs.String())
	}
}

// TestJobStory finds jobs, shows them, changes them one by one and by a filter, and reads of it in the audit.
func TestJobStory(t *testing.T) {
	t.Parallel()
	server, o, u := operated(t)
	for n := range 5 {
		u.gets("", fmt.Sprintf("submit mail.a %d -w hello%d", n, n))
	}
	u.gets("", "submit mail.b x --later 1h")
	o.gets(`ID +QUEUE +NAME +STATE +PRIORITY +TIME +WORKER +ERROR\n(\S+ +mail.a +\d +ready +0 .*\n){5}`, "job list queue:mail.a")
	o.gets(`ID .*\n\S+ +mail.b +x +delayed +.*\n`, "job list state:delayed")
	o.gets(`ID .*\n\S+ +mail.a +3 +ready +.*\n`, "job list text:hello3 queue:mail.*")
	o.gets(`({"id":"[^"]+","queue":"mail.a",.*}\n){5}`, "job list queue:mail.a --json")
	id := regexp.MustCompile(`"id":"([^"]+)"`).FindStringSubmatch(outputOf(t, "-H", o.host, "job", "list", "name:3", "--json"))[1]
	o.gets(`id +`+id+`\nqueue +mail.a\nname +3\nprotocol +periodic\nstate +ready\n.*why +no worker .*workload +hello3\n`, "job show "+id)
	o.gets(`(?s)id +`+id+`\n.*`, "job show mail.a 3")
	o.gets(`hello3`, "job payload "+id)
	o.gets(`hello3`, "job payload mail.a 3")
	o.ends(exitNotFound, "treadle: .*\n", "job result "+id)
	o.ends(exitNotFound, "treadle: .*\n", "job show mail.a nothing")
	o.ends(exitUsage, `treadle: the filter: "colour:red": .*\n`, "job list colour:red")

	o.ends(exitNotFound, "treadle: .*\n", "job retry mail.a nothing")
	for _, args := range []string{"show mail.a", "result mail.a", "show " + id + " --protocol gloom", "remove a b c", "remove " + id + " mail.a", "run " + id + " --protocol gloom", "run"} {
		o.ends(exitUsage, "treadle: .*\n", "job "+args)
	}
	o.gets(`ID +QUEUE +NAME +STATE +PRIORITY +TIME +PROTOCOL +SIZE +TRIES +WORKER +ERROR\n`+id+` +mail.a +3 +ready +0 +\S+ \S+ +periodic +6 +0 +- +-\n`, "job list queue:mail.a name:3 -o wide")

	o.gets("1 changed\n", "job priority 7 mail.a 3 --protocol periodic")
	o.gets(`ID .*\n`+id+` +mail.a +3 +ready +7 .*`, "job list queue:mail.a --limit 50")
	o.gets("1 changed\n", "job due 1h "+id)
	o.gets("2 ready\n", "job run --filter state:delayed --yes")
	o.gets("1 moved\n", "job move mail.c "+id)
	o.gets(`ID .*\n\S+ +mail.c +3 .*\n`, "job list queue:mail.c")
	o.gets(`(?s)id +\S+\nqueue +mail.c\nname +3\n.*`, "job show "+id)
	o.gets("4 jobs\n", "job remove --filter queue:mail.a --dry-run")
	o.gets("4 removed\n", "job remove --filter queue:mail.a --yes --why done")
	o.gets("ID .*\n", "job list queue:mail.a")
	o.gets(`ID +VERB .*\n\d+ +remove +done +.* +4 +4 +0 .*queue:mail.a\n\d+ +run +done .*`, "job operations")
	o.gets(`mail.c takes no new jobs, and has 1 job left\n`, "queue drain mail.c")
	u.ends(1, "treadle: .*the queue is paused for submits: treadle queue show says by whom.*\n", "submit mail.c y")
	o.gets(`1 job\n`, "queue empty mail.c --dry-run")
	o.gets(`1 removed\n`, "queue empty mail.c --yes")
	o.gets(`mail.c takes no new jobs, and has 0 jobs left\n`, "queue drain mail.c --wait")
	o.gets(`AT +USER +BY +FROM +REQUEST +TARGET +COUNT +WHY\n.*queues/drain.*queues/empty.*jobs/change.*done\n.*`, "audit")
	o.gets(`({"number":\d+,"at":.*}\n){2}`, "audit --json --limit 2")
	o.gets(`NUMBER .*AGENT.*\n.*\n *1 .* treadle +POST /api/v1/jobs/change +priority 7 mail.a 3 +1 +-\n.*`, "audit -o wide")
	server.stop()
}
