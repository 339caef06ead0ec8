package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"treadle/codec/periodic"
	"treadle/loop"
	"treadle/loop/client"
)

// operators is a server with an HTTP API, and a client of it.
type operators struct {
	*session
	admin  *client.Admin
	slaves string
}

func newOperators(t *testing.T, rules ...loop.PolicyRule) *operators {
	t.Helper()
	dir := t.TempDir()
	socket, slaves := filepath.Join(dir, "admin"), "unix://"+filepath.Join(dir, "slaves")
	address := server(t, loop.Options{
		Admin: loop.AdminOptions{Listen: []string{"unix://" + socket}, Rules: rules},
		Gloom: loop.GloomOptions{Masters: []string{"unix://" + filepath.Join(dir, "m")}, Slaves: []string{slaves}},
	})
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the socket has %v, %v", info.Mode(), err)
	}
	o := &operators{open(t, address, periodic.CRC), client.NewAdmin(socket), slaves}
	o.admin.By = "ada"
	t.Cleanup(o.admin.Close)
	return o
}

// set changes the policy of queues: key=value, or key alone to take it out.
func (o *operators) set(pattern string, values ...string) error {
	change := make(map[string]*string)
	for _, v := range values {
		key, value, found := strings.Cut(v, "=")
		if change[key] = &value; !found {
			change[key] = nil
		}
	}
	_, err := o.admin.SetPolicy(o.ctx, pattern, change)
	return err
}

// failed waits for n failed jobs of a queue and returns them as text, with their ids.
func (o *operators) failed(queue string, n int) (all, ids []string) {
	o.t.Helper()
	for {
		p, err := o.admin.Jobs(o.ctx, `state:failed queue:"`+queue+`"`, "", 1000)
		o.ok(err)
		if len(p.Jobs) < n && o.ctx.Err() == nil {
			continue
		}
		for i := range p.Jobs {
			j, err := o.admin.JobByID(o.ctx, p.Jobs[i].ID)
			o.ok(err)
			text := j.Name + ":"
			for _, a := range j.Attempts {
				text += fmt.Sprintf(" %s (%s by %s)", a.Outcome, a.Text, strings.Fields(a.Worker + " nobody")[0])
			}
			all, ids = append(all, text), append(ids, j.ID)
		}
		return all, ids
	}
}

// every changes all jobs that a filter means and returns how many.
func (o *operators) every(verb, filter string) int {
	o.t.Helper()
	id, err := o.admin.StartChange(o.ctx, &client.JobsChange{Verb: verb, Filter: filter})
	o.ok(err)
	for {
		op, err := o.admin.Operation(o.ctx, id)
		if o.ok(err); op.State != "running" {
			return op.Changed
		}
	}
}

// TestPolicyRules: rules of the file and of the run time are explained, refused and taken back.
func TestPolicyRules(t *testing.T) {
	o := newOperators(t, loop.PolicyRule{Pattern: "q", Values: map[string]string{"max-jobs": "1", "retries": "5"}})
	refused := func(want string, values ...string) {
		t.Helper()
		if err := o.set("q", values...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", values, err, want)
		}
	}
	refused(`queue "q", retries: "-1"`, "retries=-1")
	refused("the keys are retries,", "color=red")
	refused(`queue "q", retires: there is no such key; the keys are retries,`, "retires")
	o.ok(o.set("q", "retries=2", "concurrency=1"))
	o.ok(o.set("q", "concurrency"))
	o.ok(o.set("q", "paused=hand-out", "paused-by=ada", "paused-why=moving"))
	o.ok(o.set("q", "paused"))
	table, err := o.admin.Policy(o.ctx, "q")
	o.ok(err)
	if got := fmt.Sprint(table.Values); got != "[{retries 2 run time q []} {max-jobs 1 file q []}]" {
		t.Errorf("the policy is %s", got)
	}
	o.ok(o.client.Submit(o.ctx, &client.Job{Func: "q", Name: "a"}))
	err = o.client.Submit(o.ctx, &client.Job{Func: "q", Name: "b"})
	var why *client.RefusedError
	if err = o.client.Explain(o.ctx, err); !errors.As(err, &why) || why.Reason != periodic.ReasonMaxJobs {
		t.Errorf("a job beyond max-jobs: %v", err)
	}
	all, err := o.admin.Policies(o.ctx)
	o.ok(err)
	if len(all.Rules) != 2 || len(all.Keys) < 10 {
		t.Errorf("the rules are %v, and there are %d keys", all.Rules, len(all.Keys))
	}
}

// TestAdminRefuses: a request that makes no sense is answered with what is wrong, and by other ports with what they
// are.
func TestAdminRefuses(t *testing.T) {
	o := newOperators(t)
	if _, err := o.admin.ChangeJobs(o.ctx, &client.JobsChange{Verb: "remove", Queue: "q"}); err == nil || !strings.Contains(err.Error(), "has a queue and a name") {
		t.Errorf("a job without a name: %v", err)
	}
	if _, err := o.admin.Jobs(o.ctx, "queue:q", "nonsense", 1); err == nil || !strings.Contains(err.Error(), "after must be the next") {
		t.Errorf("a cursor of nonsense: %v", err)
	}
	if _, err := o.admin.Jobs(o.ctx, "queue:q", "", 1e6); err == nil || !strings.Contains(err.Error(), "limit is a number") {
		t.Errorf("a page of a million: %v", err)
	}
	wrong := client.NewAdmin(o.slaves)
	defer wrong.Close()
	ctx, cancel := context.WithCancel(o.ctx)
	defer cancel()
	if _, err := wrong.Policies(ctx); err == nil || !strings.Contains(err.Error(), "does not speak HTTP") {
		t.Errorf("the port of Gloom: %v", err)
	}
}

// TestManyFailed: pages go on where the one before ended, and all of a queue are retried and removed by one request.
func TestManyFailed(t *testing.T) {
	o := newOperators(t)
	o.ok(o.set("*", "retries=0"))
	o.ok(o.worker.CanDo(o.ctx, "f"))
	const n = 250
	for i := range n {
		o.ok(o.client.Submit(o.ctx, &client.Job{Func: "f", Name: fmt.Sprint(i)}))
	}
	for range n {
		a, err := o.worker.Grab(o.ctx)
		o.ok(err)
		o.ok(o.worker.Fail(o.ctx, a))
	}
	o.failed("f", n)
	seen := make(map[string]bool)
	for after := ""; ; {
		p, err := o.admin.Jobs(o.ctx, "state:failed queue:f", after, 7)
		o.ok(err)
		for _, j := range p.Jobs {
			seen[j.ID] = true
		}
		if after = p.Next; after == "" {
			break
		}
	}
	if len(seen) != n {
		t.Errorf("the pages have %d jobs", len(seen))
	}
	if got := o.every("retry", "state:failed queue:f"); got != n {
		t.Errorf("%d are retried", got)
	}
	for range n {
		a, err := o.worker.Grab(o.ctx)
		o.ok(err)
		o.ok(o.worker.Fail(o.ctx, a))
	}
	o.failed("f", n)
	if got := o.every("remove", "state:failed queue:f"); got != n {
		t.Errorf("%d are removed", got)
	}
}

// TestFailedOfBytes: failed jobs of a queue whose name is not UTF-8 are counted by the status, shown and retried.
func TestFailedOfBytes(t *testing.T) {
	const queue = "\xffq"
	o := newOperators(t)
	o.ok(o.set("*", "retries=0"))
	o.ok(o.worker.CanDo(o.ctx, queue))
	o.ok(o.client.Submit(o.ctx, &client.Job{Func: queue, Name: "j", Workload: []byte("hi")}))
	o.ok(o.worker.Fail(o.ctx, o.grab("j", "hi")))
	o.failed(queue, 1)
	rows, err := o.client.Details(o.ctx)
	o.ok(err)
	if len(rows) != 1 || rows[0].Jobs != 0 || rows[0].Failed == nil || *rows[0].Failed != 1 {
		t.Errorf("the status is %+v", rows)
	}
	d, err := o.admin.ChangeJobs(o.ctx, &client.JobsChange{Verb: "retry", Queue: queue, Name: "j"})
	o.ok(err)
	if d.Changed != 1 {
		t.Errorf("the retry says %+v", d)
	}
	o.ok(o.worker.Done(o.ctx, o.grab("j", "hi"), nil))
}

// TestLoadOverPolicy: a load goes on behind a job that the policy of its queue refuses, and says so at its end.
func TestLoadOverPolicy(t *testing.T) {
	o := newOperators(t)
	o.ok(o.set("q", "max-jobs=1"))
	dump := binary.BigEndian.AppendUint64(nil, 4)
	for _, j := range []periodic.Job{{Func: []byte("q"), Name: []byte("a")}, {Func: []byte("q"), Name: []byte("b")}, {Func: []byte("q"), Name: []byte("c")}, {Func: []byte("r"), Name: []byte("d")}} {
		dump = periodic.AppendJob(dump, &j)
	}
	err := o.client.Load(o.ctx, bytes.NewReader(dump), int64(len(dump)), nil)
	var why *client.RefusedError
	if err = o.client.Explain(o.ctx, err); !errors.As(err, &why) || why.Reason != periodic.ReasonMaxJobs {
		t.Errorf("the load ends with %v", err)
	}
	if n, known, err := o.client.Loaded(o.ctx); n != 2 || !known || err != nil {
		t.Errorf("%d jobs are in, %v, %v", n, known, err)
	}
	o.ok(o.client.Remove(o.ctx, "r", "d"))
	if nothing, err := o.client.RemovedNothing(o.ctx); nothing || err != nil {
		t.Errorf("the last job is not in: %v", err)
	}
}
