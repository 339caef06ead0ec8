package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"treadle/codec/kts46"
	"treadle/loop/client"
)

// clockTrial is a built server with a wall clock that the test sets, and peers of every protocol.
type clockTrial struct {
	*attack
	ctx   context.Context
	data  string
	clock *wallClock

	client *client.Client
	worker *client.Worker // of all functions but "kept"
	hub    *client.HubClient
	master *client.Master
	slave  *client.Slave
	kts    *scheduler

	last kts46.DateTime // that the worker "one" of kts46, version 1, was given
	sig  string         // and "two", of version 2
}

// begin starts a server with a shifted wall clock and connects the peers.
func (c *clockTrial) begin(offset time.Duration, args ...string) {
	c.t.Helper()
	p, clock := startWithClock(c.t, offset, c.serves(append([]string{"--data", c.data}, args...)...)...)
	c.on(p)
	c.clock, c.kts = clock, &scheduler{process: p, xml: c.ports["kts46"], json: c.ports["kts46-json"]}
	c.client = worked(client.Dial(c.ctx, c.socket, client.Options{}))(c.t)
	c.worker = worked(client.DialWorker(c.ctx, c.socket, client.Options{}))(c.t)
	c.hub = worked(client.DialHub(c.ctx, c.ports["dwork"]))(c.t)
	c.master = worked(client.DialMaster(c.ctx, c.ports["gloom-masters"]))(c.t)
	c.slave = worked(client.DialSlave(c.ctx, c.ports["gloom-slaves"]))(c.t)
	must(c.t, c.slave.Join(c.ctx, client.GloomText("echo")))
}

// kill kills the server and closes its peers.
func (c *clockTrial) kill() {
	c.server.signal(syscall.SIGKILL)
	_ = c.server.Wait()
	c.client.Close()
	c.worker.Close()
	c.hub.Close()
	c.master.Close()
	c.slave.Close()
}

// submit submits jobs with the names of their functions, due in a number of seconds of the server's clock; 0: at once.
func (c *clockTrial) submit(in int64, timeout int32, functions ...string) {
	c.t.Helper()
	for _, f := range functions {
		j := &client.Job{Func: f, Name: f, Timeout: timeout}
		if in > 0 {
			j.SchedAt = c.clock.now() + in
		}
		must(c.t, c.client.Submit(c.ctx, j))
	}
}

// offers makes the worker offer functions.
func (c *clockTrial) offers(functions ...string) {
	c.t.Helper()
	for _, f := range functions {
		must(c.t, c.worker.CanDo(c.ctx, f))
	}
}

// gets checks that the worker is handed exactly these jobs, in any order.
func (c *clockTrial) gets(functions ...string) map[string]*client.Assignment {
	c.t.Helper()
	all := map[string]*client.Assignment{}
	for range functions {
		a := worked(c.worker.Grab(c.ctx))(c.t)
		all[a.Job.Func] = a
	}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, slices.Sorted(slices.Values(functions))) {
		c.t.Fatalf("handed out is %q, want %q", got, functions)
	}
	return all
}

// does is gets, and reports the jobs as done.
func (c *clockTrial) does(functions ...string) {
	c.t.Helper()
	for _, a := range c.gets(functions...) {
		must(c.t, c.worker.Done(c.ctx, a, []byte("done")))
	}
}

// near checks that a time is the server's present.
func (c *clockTrial) near(what string, unix int64) {
	c.t.Helper()
	if now := c.clock.now(); unix < now-60 || unix > now+60 {
		c.t.Errorf("%s says %v, the server's clock %v", what, time.Unix(unix, 0), time.Unix(now, 0))
	}
}

// sets steps the clock and checks by the present in STATUS that the server follows. A Gloom job is done meanwhile. The
// test asks for STATUS twice: a loop reads its clock when a turn begins, and the first request may come into a turn
// that began before the step.
func (c *clockTrial) sets(by time.Duration) {
	c.t.Helper()
	c.clock.step(by)
	worked(c.client.Status(c.ctx))(c.t)
	rows := worked(c.client.Status(c.ctx))(c.t)
	i := slices.IndexFunc(rows, func(q client.Queue) bool { return q.Func == "echo" }) // which has no job
	c.near("STATUS", rows[max(i, 0)].Next)
	body := fmt.Appendf(nil, `"at %d"`, c.clock.now())
	answered := make(chan error, 1)
	go func() {
		j, err := c.slave.Next(c.ctx)
		if err == nil {
			err = c.slave.Respond(c.ctx, j.Body)
		}
		answered <- err
	}()
	got := worked(c.master.Run(c.ctx, &client.GloomJob{ID: body, Type: client.GloomText("echo"), Body: body}))(c.t)
	if string(got) != string(body) {
		c.t.Errorf("the response is %s, want %s", got, body)
	}
	must(c.t, <-answered)
}

// xml calls version 1 of kts46.
func (c *clockTrial) xml(method string, params ...any) (any, error) {
	c.t.Helper()
	answer := worked(http.Post("http://"+c.kts.xml+"/RPC2", "text/xml", strings.NewReader(string(kts46.AppendCall(nil, method, params...)))))(c.t)
	defer answer.Body.Close()
	return kts46.ReadAnswer(answer.Body)
}

// json calls version 2 of kts46 and returns the sig of the reply, if any.
func (c *clockTrial) json(method, params string) (sig string) {
	c.t.Helper()
	text := worked(c.kts.ask(`{"method":%q,"params":[%s],"id":1}`, method, params))(c.t)
	if !strings.Contains(text, `"error":null`) {
		c.t.Fatalf("%s(%s): %s", method, params, text)
	}
	_, sig, _ = strings.Cut(text, `"sig":"`)
	sig, _, _ = strings.Cut(sig, `"`)
	return sig
}

// simulates starts two simulations; a worker of each version takes one.
func (c *clockTrial) simulates() {
	c.t.Helper()
	_, err := c.xml("createProject", "p")
	must(c.t, err)
	for _, job := range []string{"a", "b"} {
		_, err := c.xml("addJob", "p", job, "simulationParameters: {duration: 9, stepDuration: 1, batchLength: 1}")
		must(c.t, err)
		_, err = c.xml("runJob", "p", job)
		must(c.t, err)
	}
	task, err := c.xml("getJob", "one")
	must(c.t, err)
	fields, _ := task.(kts46.Struct)
	c.last, _ = fields.Get("lastUpdate").(kts46.DateTime)
	c.sig = c.json("acceptTask", fmt.Sprintf(`"two",%q`, c.json("getTask", `"two",["simulation"]`)))
}

// reports makes both workers report. The server must accept the reports, refuse their earlier ones, and give each
// worker a new mark.
func (c *clockTrial) reports() {
	c.t.Helper()
	v, err := c.xml("reportStatus", "one", "working", c.last)
	must(c.t, err)
	last, _ := v.(kts46.DateTime)
	if string(last) <= string(c.last) {
		c.t.Errorf("lastUpdate is %s behind %s", last, c.last)
	}
	if _, err := c.xml("reportStatus", "one", "finished", c.last); err == nil {
		c.t.Errorf("lastUpdate %s matches, and so does %s", last, c.last)
	}
	sig := c.json("taskInProgress", fmt.Sprintf(`"two",%q`, c.sig))
	if sig <= c.sig {
		c.t.Errorf("sig is %s behind %s", sig, c.sig)
	}
	c.last, c.sig = last, sig
}

// longLease is how long workers of dwork and kts46 may be silent, by a clock that does not step.
const longLease = 16 * time.Second

// TestClockSteps sets the clock of the built server forward and back, also while the server does not run. Jobs are due
// by that clock; time-outs and leases keep their length; no job is lost, handed out twice or kept waiting, and the
// probes are served meanwhile.
func TestClockSteps(t *testing.T) {
	longFor(t)
	t.Parallel()
	c := &clockTrial{attack: newAttack(t, 0), ctx: patient(t), data: filepath.Join(t.TempDir(), "data")}
	leases := func(d time.Duration) []string {
		return []string{"--dwork-lease", d.String(), "--kts46-restart-after", d.String()}
	}
	c.begin(0, leases(longLease)...)
	c.withProbes(c.forward)
	c.withProbes(c.back)
	c.kill()
	c.begin(-time.Hour, leases(longLease)...)
	c.withProbes(c.restarted)
	c.kill()
	c.begin(time.Hour, leases(time.Second)...)
	c.withProbes(c.lapsed)
	c.server.stop()
}

// forward: the clock of a server that has begun is set forward by an hour.
func (c *clockTrial) forward() {
	c.offers("soon", "half an hour", "ninety minutes", "held", "brief")
	must(c.t, c.hub.Create(c.ctx, client.DworkTask{Name: "first"}, client.DworkTask{Name: "second"}))
	c.steals("one", "first")
	c.simulates()
	result := make(chan string, 1)
	go func() {
		got, err := c.client.Run(c.ctx, &client.Job{Func: "held", Name: "held", Timeout: 1200})
		result <- fmt.Sprintf("%s %v", got, err)
	}()
	held := c.gets("held")["held"]
	c.submit(1, 0, "soon")
	c.submit(1800, 0, "half an hour")
	c.submit(5400, 0, "ninety minutes")
	c.sets(time.Hour)
	c.does("soon", "half an hour")
	c.stands("ninety minutes", 1, 0)
	c.submit(0, int32(longLease/time.Second)/4+1, "brief")
	c.gets("brief") // and does not do it: when it comes back, silent workers have been looked for
	c.does("brief")
	c.stands("held", 1, 1)
	must(c.t, c.worker.Done(c.ctx, held, []byte("by the same")))
	if got := <-result; got != "by the same <nil>" {
		c.t.Errorf("the result is %q", got)
	}
	c.reports()
	c.steals("two", "second")
	if missing := worked(c.hub.Complete(c.ctx, "one", client.DworkTask{Name: "first"}))(c.t); len(missing) > 0 {
		c.t.Errorf("%q is not its worker's any more", missing)
	}
}

// steals checks that a location is given exactly this task.
func (c *clockTrial) steals(location, want string) {
	c.t.Helper()
	got := worked(c.hub.Steal(c.ctx, location, 1))(c.t)
	if len(got) != 1 || got[0].Name != want {
		c.t.Fatalf("stolen is %+v, want %q", got, want)
	}
	log := worked(c.hub.Lookup(c.ctx, want))(c.t).Log
	c.near("the log of "+want, log[len(log)-1].Time/1e6)
}

// back: it is set back to where it was. What is left behind is for the next server.
func (c *clockTrial) back() {
	c.submit(0, 0, "waits") // ready since a time that is to come again
	c.submit(0, 4, "brief") // on a slow machine the report of a shorter one came too late
	c.gets("brief")
	c.sets(-time.Hour)
	c.does("brief") // which comes back when it has run for four seconds
	c.offers("waits", "fails", "put off", "runs")
	c.does("waits")
	c.submit(1, 0, "soon")
	c.does("soon")
	c.submit(0, 0, "put off", "fails")
	given := c.gets("put off", "fails")
	must(c.t, errors.Join(c.worker.Later(c.ctx, given["put off"], 1, 1), c.worker.Fail(c.ctx, given["fails"])))
	c.does("put off", "fails")
	c.stands("ninety minutes", 1, 0)
	c.reports()

	c.submit(0, 0, "runs", "fails")
	given = c.gets("runs", "fails")
	must(c.t, errors.Join(c.worker.Fail(c.ctx, given["fails"]), c.worker.Ping(c.ctx)))
	c.submit(0, 0, "waits")
}

// restarted: it was set back by another hour while the server did not run.
func (c *clockTrial) restarted() {
	c.offers("waits", "fails", "runs", "soon")
	c.does("waits", "fails", "runs")
	c.submit(1, 0, "soon")
	c.does("soon")
	c.stands("ninety minutes", 1, 0)
	c.reports()
	if missing := worked(c.hub.Complete(c.ctx, "two", client.DworkTask{Name: "second"}))(c.t); len(missing) > 0 {
		c.t.Errorf("%q is not its worker's any more", missing)
	}
	must(c.t, c.hub.Create(c.ctx, client.DworkTask{Name: "third"}))
	c.steals("one", "third")
}

// lapsed: it is set back by two hours, and what silent workers hold comes back all the same;
// then forward, and the last job is due.
func (c *clockTrial) lapsed() {
	c.sets(-2 * time.Hour)
	pause := time.NewTicker(10 * time.Millisecond)
	for held := ""; !strings.Contains(held, `"result":[]`); <-pause.C {
		held = worked(c.kts.ask(`{"method":"getCurrentTasks","id":1}`))(c.t)
	}
	for err := client.ErrNoTask; errors.Is(err, client.ErrNoTask); <-pause.C {
		if _, err = c.hub.Steal(c.ctx, "other", 1); err != nil && !errors.Is(err, client.ErrNoTask) {
			c.t.Fatal(err)
		}
	}
	if _, err := c.xml("reportStatus", "one", "working", c.last); err == nil {
		c.t.Error("the report of a worker that has lost its task is believed")
	}
	c.offers("ninety minutes")
	c.sets(3 * time.Hour)
	c.does("ninety minutes")
	for name, j := range dumpOf(c.ctx, c.t, c.socket) {
		if j.function != "probe" {
			c.t.Errorf("job %q is left, though it was done", name)
		}
	}
}
