package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"treadle/codec/periodic"
	"treadle/loop/client"
)

// filled is a server that is filled up to its --max-memory, with clients of each protocol.
type filled struct {
	*attack
	ctx    context.Context
	plain  *client.Client
	crc    *client.Client
	worker *client.Worker
	master *client.Master
	hub    *client.HubClient
	kts    *client.Kts46
}

const (
	filledLimit   = 64 << 20
	filledPayload = 32 << 10
	filledTries   = 12 // at dripPause: several looks at the memory
	// filledMost is the most that the server may ever take: Go's soft limit at this --max-memory, and the program.
	filledMost = filledLimit + 64<<20 + 64<<20
)

// dialAll connects the clients.
func (f *filled) dialAll() {
	f.t.Helper()
	f.plain = worked(client.Dial(f.ctx, "unix://"+f.socket, client.Options{Framing: periodic.Plain}))(f.t)
	f.crc = worked(client.Dial(f.ctx, "unix://"+f.socket, client.Options{Framing: periodic.CRC}))(f.t)
	f.worker = worked(client.DialWorker(f.ctx, f.socket, client.Options{}))(f.t)
	f.master = worked(client.DialMaster(f.ctx, f.ports["gloom-masters"]))(f.t)
	f.hub = worked(client.DialHub(f.ctx, f.ports["dwork"]))(f.t)
	f.kts = client.NewKts46(f.ports["kts46"])
}

// closeAll disconnects them.
func (f *filled) closeAll() {
	f.plain.Close()
	f.crc.Close()
	f.worker.Close()
	f.master.Close()
	f.hub.Close()
	f.kts.Close()
}

// fill submits until the server has made sure with collections that it is full. It returns the number of jobs that were
// taken, and the refusal.
func (f *filled) fill(protocol string, submit func(i int) error) (taken int, err error) {
	f.t.Helper()
	for refused := 0; refused < filledTries; {
		if err = submit(taken); err == nil {
			taken++
			refused = 0
			continue
		}
		refused++
		time.Sleep(dripPause)
	}
	if taken < 100 || taken > 2*filledLimit/filledPayload {
		f.t.Errorf("%s: %d jobs of %d bytes are taken, then %v", protocol, taken, filledPayload, err)
	}
	return taken, err
}

// says checks the text of a refusal.
func (f *filled) says(protocol string, err error, want string) {
	f.t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		f.t.Errorf("%s answers %v, want %q", protocol, err, want)
	}
}

// refused checks that each protocol refuses new jobs in its words, and that nothing else is refused.
func (f *filled) refused() {
	f.t.Helper()
	const periodicWords = "it takes no new jobs, because it holds as much as its --max-memory allows"
	job := &client.Job{Func: "other", Name: "n"}
	for framing, c := range map[string]*client.Client{"2018": f.plain, "crc": f.crc} {
		f.says(framing, c.Explain(f.ctx, c.Submit(f.ctx, job)), periodicWords)
		_, err := c.Run(f.ctx, job)
		f.says(framing, c.Explain(f.ctx, err), periodicWords)
		if n, err := c.ConfigGet(f.ctx, "refusing"); err != nil || n != uint32(periodic.ReasonMaxMemory) {
			f.t.Errorf("refusing is %d, %v", n, err)
		}
		must(f.t, c.Remove(f.ctx, "large", "0"))
		must(f.t, c.ConfigSet(f.ctx, "timeout", 500))
	}
	dump := "\x00\x00\x00\x00\x00\x00\x00\x01\x01f\x01n\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	err := f.plain.Load(f.ctx, strings.NewReader(dump), int64(len(dump)), nil)
	f.says("load", f.plain.Explain(f.ctx, err), periodicWords)
	master := worked(client.DialMaster(f.ctx, f.ports["gloom-masters"]))(f.t)
	defer master.Close()
	_, err = master.Run(f.ctx, &client.GloomJob{ID: client.GloomText("x"), Type: client.GloomText("other"), Body: []byte("1")})
	f.says("gloom", err, "job failed")
	f.says("dwork", f.hub.Create(f.ctx, client.DworkTask{Name: "other"}), "refused")
	f.says("kts46", f.kts.CreateProject(f.ctx, "other"), "the server holds as much as --max-memory allows")
	f.says("kts46", f.kts.RunJob(f.ctx, "p", "j"), "the server holds as much as --max-memory allows")
	f.reads("/readyz", "degraded: refusing new jobs: the server holds")
	f.reads("/metrics", `treadle_refusing{reason="max-memory"} 1`)
}

// reads waits until a page of the server has a text.
func (f *filled) reads(page, want string) {
	f.t.Helper()
	text := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(dripPause) {
		if text = f.page(page); strings.Contains(text, want) {
			return
		}
	}
	f.t.Fatalf("%s does not say %q: %s", page, want, text)
}

// page returns a page of the server.
func (f *filled) page(path string) string {
	f.t.Helper()
	answer := worked(http.Get("http://" + f.ports["http"] + path))(f.t)
	defer answer.Body.Close()
	return string(worked(io.ReadAll(answer.Body))(f.t))
}

// accepted waits until new jobs are taken again, by every protocol.
func (f *filled) accepted() {
	f.t.Helper()
	f.reads("/metrics", `treadle_refusing{reason="max-memory"} 0`)
	for _, c := range []*client.Client{f.plain, f.crc} {
		must(f.t, c.Submit(f.ctx, &client.Job{Func: "after", Name: "n"}))
		must(f.t, c.Remove(f.ctx, "after", "n"))
	}
	must(f.t, f.hub.Create(f.ctx, client.DworkTask{Name: "after"}))
	if n := f.tasks(); n != 1 {
		f.t.Errorf("%d tasks, want 1", n)
	}
}

// tasks does all tasks of dwork and counts them.
func (f *filled) tasks() (n int) {
	f.t.Helper()
	for {
		all, err := f.hub.Steal(f.ctx, "w", 100)
		if errors.Is(err, client.ErrNoTask) || err == nil && len(all) == 0 {
			return n
		}
		must(f.t, err)
		worked(f.hub.Complete(f.ctx, "w", all...))(f.t)
		n += len(all)
	}
}

// does does n jobs of a function as a Periodic worker: every tenth fails first, and is done in its second run.
func (f *filled) does(function string, n int) {
	f.t.Helper()
	must(f.t, f.worker.CanDo(f.ctx, function))
	for done := 0; done < n; {
		a := worked(f.worker.Grab(f.ctx))(f.t)
		if done%10 == 9 {
			must(f.t, f.worker.Fail(f.ctx, a))
			a = worked(f.worker.Grab(f.ctx))(f.t)
		}
		must(f.t, f.worker.Done(f.ctx, a, nil))
		done++
	}
	must(f.t, f.worker.CantDo(f.ctx, function))
}

// others fills and drains the server by the other protocols.
func (f *filled) others(body string) {
	f.t.Helper()
	taken, err := f.fill("dwork", func(i int) error {
		return f.hub.Create(f.ctx, client.DworkTask{Name: fmt.Sprint("t", i), Origin: body})
	})
	f.says("dwork", err, "refused")
	f.refused()
	if n := f.tasks(); n != taken {
		f.t.Errorf("%d tasks are done, %d were taken", n, taken)
	}
	f.accepted()
	taken, err = f.fill("gloom", func(i int) error {
		err := f.master.Submit(f.ctx, &client.GloomJob{ID: client.GloomText(fmt.Sprint("g", i)), Type: client.GloomText("gloom"), Body: []byte(`"` + body + `"`)})
		if err != nil { // an answer is left on its way
			f.t.Cleanup(f.master.Close) // its jobs go with it
			f.master = worked(client.DialMaster(f.ctx, f.ports["gloom-masters"]))(f.t)
		}
		return err
	})
	f.says("gloom", err, "job failed")
	f.refused()
	f.does("gloom", taken)
	f.accepted()
	_, _ = f.fill("crc", func(i int) error {
		return f.crc.Submit(f.ctx, &client.Job{Func: "large", Name: fmt.Sprint(i), Workload: []byte(body)})
	})
	f.refused()
	must(f.t, f.crc.Drop(f.ctx, "large"))
	f.accepted()
}

// restart stops the server and starts another one.
func (f *filled) restart(args ...string) {
	f.t.Helper()
	f.closeAll()
	f.server.signal(syscall.SIGTERM)
	f.server.exit(0)
	f.on(start(f.t, false, args...))
	f.dialAll()
}

const ktsDefinition = "simulationParameters: {duration: 10, stepDuration: 1, batchLength: 4}"

// TestMaxMemory fills a server up to its --max-memory, by several protocols one after the other. Each refuses new jobs
// then; what drains the server goes on, and when it has, new jobs are taken. The server never takes much more memory.
func TestMaxMemory(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	dir := t.TempDir()
	f := &filled{attack: &attack{t: t, ports: map[string]string{}, socket: filepath.Join(dir, "s")}, ctx: patient(t)}
	args := f.serves("--data", filepath.Join(dir, "data"), "--sync", "never", "--dwork-idle", "notfound", "--max-memory")
	f.on(start(t, false, append(args, "off")...))
	f.dialAll()
	body := strings.Repeat("x", filledPayload)
	must(t, f.kts.CreateProject(f.ctx, "p"))
	must(t, f.kts.AddJob(f.ctx, "p", "j", ktsDefinition))
	submit := func(c *client.Client) func(i int) error {
		return func(i int) error {
			return c.Submit(f.ctx, &client.Job{Func: "large", Name: fmt.Sprint(i), Workload: []byte(body)})
		}
	}
	// The journal gets more than the next server may hold: that starts, refuses, and is drained.
	const stored = 3 * filledLimit / 2 / filledPayload
	for i := range stored {
		must(t, submit(f.crc)(i))
	}
	f.restart(append(args, "96MiB")...) // the journal takes some 50 MiB while it works
	f.refused()
	f.does("large", stored-1) // one was removed
	f.accepted()

	f.restart(append(slices.Replace(args, slices.Index(args, "--data")+1, slices.Index(args, "--data")+2, "none"), "64MiB")...)
	must(t, f.kts.CreateProject(f.ctx, "p"))
	must(t, f.kts.AddJob(f.ctx, "p", "j", ktsDefinition))
	large, _ := f.fill("2018", submit(f.plain))
	f.refused()
	f.does("large", large-1)
	f.accepted()
	if !testing.Short() {
		f.others(body)
	}
	if memory := f.peak(); memory > filledMost {
		t.Errorf("the server took %d MiB, more than %d", memory>>20, filledMost>>20)
	} else {
		t.Logf("%d MiB", memory>>20)
	}
	f.closeAll()
	f.server.signal(syscall.SIGTERM)
	f.server.exit(0)
}
