package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	gloomcodec "treadle/codec/gloom"
	"treadle/loop/client"
)

var errRoundOver = errors.New("the round is over")

// linVersion reads a workload, of a Faktory job its arguments.
func linVersion(workload string) int {
	if _, args, found := strings.Cut(workload, `"args":[`); found {
		workload, _, _ = strings.Cut(args, "]")
	}
	n, err := strconv.Atoi(strings.Trim(workload, `"`))
	if err != nil {
		return -1 // of no peer
	}
	return n
}

// client does random operations over Periodic.
func (r *linRound) client(rng *rand.Rand, options client.Options) {
	c, err := client.Dial(r.ctx, r.site.socket("p"), options)
	if err != nil {
		r.fault(err)
		return
	}
	defer c.Close()
	for range linOpsEach {
		at, version := rng.IntN(linFunctions), r.site.number()
		f := linFunction(at)
		j := &client.Job{Func: f, Name: linName(f, rng.IntN(linNames)), Workload: fmt.Append(nil, version)}
		o := linOp{name: j.Name, version: version, due: linNow, crc: options.Framing == client.CRC}
		if n := rng.IntN(5); n == linFirst || n == linSecond {
			o.due, j.SchedAt = n, int64(n)
		}
		call := r.now()
		switch n := rng.IntN(11); {
		case n == 10 && r.killed.Load(): // the tube is judged up to then
		case n == 10:
			err = r.submitToTube(c)
		case n < 3 || n < 7 && at >= linServed:
			o.kind, err = linSubmit, c.Submit(r.ctx, j)
			r.note(f, call, o, "", err)
		case n < 5 || at >= linServed:
			o.kind, err = linRemove, c.Remove(r.ctx, f, j.Name)
			r.note(f, call, o, "", err)
		case n < 8:
			var result []byte
			result, err = c.Run(r.ctx, j)
			switch { // in the server's words
			case errors.Is(err, client.ErrFailed):
				result, err = []byte("failed"), nil
			case errors.Is(err, client.ErrRemoved) && o.crc:
				result, err = []byte("removed"), nil
			case errors.Is(err, client.ErrRemoved):
				err = nil
			}
			o.kind = linRun
			r.noteRun(f, call, o, linText(result), err)
		default:
			err = r.status(c)
		}
		if err != nil {
			return
		}
	}
}

// noteRun adds both ends of a run.
func (r *linRound) noteRun(function string, call int64, o linOp, result string, err error) {
	r.note(function, call, o, "", err)
	if err == nil {
		o.kind = linResult
		r.note(function, call, o, result, nil)
	}
}

// linText returns a result; of JSON the characters of the string.
func linText(result []byte) string { return strings.Trim(string(result), `"`) }

// status reads STATUS, which is an operation on each function.
func (r *linRound) status(c *client.Client) error {
	call := r.now()
	rows, err := c.Status(r.ctx)
	if err != nil {
		r.fault(err)
		return err
	}
	for part := range r.read {
		if part == linTubeName && r.killed.Load() {
			continue
		}
		output := "0 0"
		for _, row := range rows {
			if row.Func == part {
				output = fmt.Sprint(row.Jobs, " ", row.Running)
			}
		}
		r.note(part, call, linOp{kind: linStatus}, output, nil)
	}
	return nil
}

// master submits Gloom jobs with few different ids and waits for each. It ends after its share, or leaves without
// waiting for a job. It returns the number of jobs submitted.
func (r *linRound) master(rng *rand.Rand, left *linLeft, most int) (n int) {
	m, err := client.DialMaster(r.ctx, r.site.socket("m"))
	if err != nil {
		r.fault(err)
		return most
	}
	defer m.Close()
	me := r.site.number()
	for n < most {
		n++
		f, version := linFunction(rng.IntN(linServed)), r.site.number()
		o := linOp{kind: linRun, name: linName(f, rng.IntN(linNames)), version: version, worker: me, gloom: true, due: linNow, priority: int64(rng.IntN(3) - 1)}
		j := &client.GloomJob{ID: client.GloomText(o.name), Type: client.GloomText(f), Priority: o.priority, Body: fmt.Append(nil, version)}
		leaves := rng.IntN(6) == 0
		call := r.now()
		var body []byte
		if leaves {
			o.kind, err = linOffer, m.Submit(r.ctx, j)
		} else {
			body, err = m.Run(r.ctx, j)
		}
		var refused *client.GloomError
		failed := errors.As(err, &refused) && refused.Name == gloomcodec.JobFailed
		switch {
		case refused != nil && refused.Name == gloomcodec.IDExists:
			o.kind = linExists
			r.note(f, call, o, "", nil)
		case leaves && failed: // before it left
			r.note(f, call, o, "", nil)
		case failed:
			r.noteRun(f, call, o, "failed", nil)
		case leaves:
			r.note(f, call, o, "", err)
		default:
			r.noteRun(f, call, o, linText(body), err)
		}
		if err != nil && refused == nil {
			r.lost(linQuit, me, f)
			return most
		}
		r.back(left)
		if leaves {
			*left = r.leave(linOp{kind: linQuit, worker: me}, f, m)
			return n
		}
	}
	return n
}

// lost notes that the connection of a worker or master has ended by itself after an operation on some parts. A server
// that goes on notices that, at a time that nobody knows.
func (r *linRound) lost(kind linKind, who int, parts ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, part := range parts {
		if e := (linEnd{part: part, kind: kind, who: who}); !r.ending && !slices.Contains(r.ends, e) {
			r.ends = append(r.ends, e)
		}
	}
}

// linLeft is a peer that has closed its connection, and the functions that this matters to.
type linLeft struct {
	part string
	who  int
}

// leave closes a connection. A program that another test starts at that moment would have a copy of its descriptor
// until it runs, and the server would not see the end before that.
func (r *linRound) leave(o linOp, part string, conn interface{ Close() }) linLeft {
	call := r.now()
	syscall.ForkLock.RLock()
	conn.Close()
	syscall.ForkLock.RUnlock()
	r.note(part, call, o, "", nil)
	return linLeft{part, o.worker}
}

// back is called when the next connection is answered. One loop notices the end of the earlier connection before that;
// two loops may notice in any order.
func (r *linRound) back(left *linLeft) {
	if left.who > 0 && !r.racy {
		r.note(left.part, r.now(), linOp{kind: linBack, worker: left.who}, "", nil)
	}
	left.who = 0
}

// linHold returns how many other requests a worker makes before it finishes its job: mostly none, sometimes many.
func linHold(rng *rand.Rand) int {
	if rng.IntN(3) == 0 {
		return 40
	}
	return rng.IntN(6)
}

// steadyWorker does jobs over one connection, at two slots, until the server is killed.
func (r *linRound) steadyWorker(rng *rand.Rand, functions []string, ready func()) {
	w, err := client.DialWorker(r.ctx, r.site.socket("p"), client.Options{})
	if err == nil {
		defer w.Close()
		err = serveAll(r, w, functions)
	}
	ready()
	if err != nil {
		return
	}
	me := r.site.number()
	var slots sync.WaitGroup
	for range 2 {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
		slots.Go(func() {
			for r.job(w, me, rng, functions, nil) {
			}
		})
	}
	slots.Wait()
}

func serveAll(r *linRound, w *client.Worker, functions []string) error {
	for _, f := range functions {
		if err := w.CanDo(r.ctx, f); err != nil {
			r.fault(err)
			return err
		}
	}
	return nil
}

// worker does jobs until it leaves in the middle of one, or the server is killed: false.
func (r *linRound) worker(rng *rand.Rand, left *linLeft, o client.Options, functions []string) bool {
	w, err := client.DialWorker(r.ctx, r.site.socket("p"), o)
	if err != nil {
		r.fault(err)
		return false
	}
	defer w.Close()
	if serveAll(r, w, functions) != nil || r.killed.Load() {
		return false
	}
	r.back(left)
	me := r.site.number()
	for r.job(w, me, rng, functions, left) {
	}
	return !r.killed.Load()
}

// job does one job; false: the connection has ended. A PING after the report shows that the server has read it. A
// worker that is alone on its connection may leave, which is noted in left, and may report a second time when the job
// belongs to another worker.
func (r *linRound) job(w *client.Worker, me int, rng *rand.Rand, functions []string, left *linLeft) bool {
	call := r.now()
	a, err := w.Grab(r.ctx)
	if err != nil { // it may have been given any of them
		for _, f := range functions {
			r.note(f, call, linOp{kind: linGrab, worker: me}, "", err)
		}
		r.lost(linLeave, me, functions...)
		return false
	}
	f, output := a.Job.Func, a.Job.Name
	o := linOp{kind: linGrab, worker: me, name: a.Job.Name}
	if f != linDwork {
		o.version = linVersion(string(a.Job.Workload))
		output = fmt.Sprintf("%s %s %d", a.Job.Name, a.Job.Workload, a.Job.Count)
	}
	r.note(f, call, o, output, nil)
	for range linHold(rng) {
		_ = w.Ping(r.ctx) // an error comes again
	}
	call = r.now()
	say := func(kind linKind, send func() error) bool {
		o.kind = kind
		if err = send(); err == nil {
			err = w.Ping(r.ctx)
		}
		if r.note(f, call, o, "", err); err != nil {
			r.lost(linLeave, me, f)
		}
		return err == nil
	}
	done := func() error {
		o.result = fmt.Sprint("r", r.site.number())
		return w.Done(r.ctx, a, []byte(o.result))
	}
	switch n := rng.IntN(12); {
	case n < 6:
		return say(linDone, done)
	case n == 6 && left != nil:
		o.kind = linLeave
		*left = r.leave(o, f, w)
		return false
	case n < 9:
		return say(linLater, func() error { return w.Later(r.ctx, a, 0, linStep) })
	case n < 11 || left == nil:
		return say(linFail, func() error { return w.Fail(r.ctx, a) })
	}
	if !say(linFail, func() error { return w.Fail(r.ctx, a) }) {
		return false
	}
	call = r.now()
	return say(linDone, done)
}

// slave does Gloom and Periodic jobs and tasks until it leaves in the middle of one, or the server is killed: false.
// Its response to a job asks for the next.
func (r *linRound) slave(rng *rand.Rand, left *linLeft, types []string) bool {
	s, err := client.DialSlave(r.ctx, r.site.socket("s"))
	if err != nil {
		r.fault(err)
		return false
	}
	defer s.Close()
	me, f := r.site.number(), types[rng.IntN(len(types))]
	asked := r.now()
	if err = s.Join(r.ctx, client.GloomText(f)); err == nil {
		r.back(left)
	}
	if r.killed.Load() { // the next leader's jobs are not for the peers of this one
		r.note(f, asked, linOp{kind: linGrab, worker: me, slave: true}, "", errRoundOver)
		r.mu.Lock()
		r.ends = append(r.ends, linEnd{f, linLeave, me, true})
		r.mu.Unlock()
		return false
	}
	for {
		var j *client.GloomJob
		if err == nil {
			j, err = s.Next(r.ctx)
		}
		if err != nil {
			r.note(f, asked, linOp{kind: linGrab, worker: me, slave: true}, "", err)
			r.lost(linLeave, me, types...)
			return false
		}
		output := client.GloomCharacters(j.ID)
		o := linOp{kind: linGrab, worker: me, slave: true, name: output}
		if f != linDwork {
			o.version = linVersion(string(j.Body))
			output = fmt.Sprintf("%s %s", output, j.Body)
		}
		if got := client.GloomCharacters(j.Type); got != f {
			r.fault(fmt.Errorf("a slave of %s was given %s of %s", f, output, got))
		}
		r.note(f, asked, o, output, nil)
		for range linHold(rng) {
			_ = s.Join(r.ctx, client.GloomText(f)) // which changes nothing; an error comes again
		}
		if rng.IntN(4) == 0 {
			o.kind = linLeave
			*left = r.leave(o, f, s)
			return !r.killed.Load()
		}
		asked = r.now()
		next := types[rng.IntN(len(types))]
		if next != f {
			_ = s.Join(r.ctx, client.GloomText(next)) // counts from the next job on; an error comes again
		}
		o.kind, o.result = linDone, fmt.Sprint("r", r.site.number())
		err = s.Respond(r.ctx, client.GloomText(o.result))
		r.note(f, asked, o, "", err)
		f = next
	}
}

// hub makes and does tasks over dwork, mostly at its own location.
func (r *linRound) hub(rng *rand.Rand, home string) {
	h, err := client.DialHub(r.ctx, r.site.socket("d"))
	if err != nil {
		r.fault(err)
		return
	}
	defer h.Close()
	last := ""
	for range linOpsEach {
		o := linOp{location: home, name: linTaskName(rng.IntN(linGraphSize))}
		if rng.IntN(8) == 0 {
			o.location = linLocation(rng.IntN(linLocations))
		}
		if last != "" && rng.IntN(4) > 0 { // what it has, more often than not
			o.name = last
		}
		call := r.now()
		answer, err := r.ask(h, &o, rng)
		switch {
		case errors.Is(err, client.ErrNoTask):
			answer, err = linMissing, nil
		case errors.Is(err, client.ErrAllDone):
			answer, err = linOver, nil
		case errors.Is(err, client.ErrHubRefused):
			answer, err = linRefused, nil
		}
		refused := r.killed.Load() && (o.kind == linSteal && answer == linMissing || o.kind != linSteal && answer == linOver)
		if !refused { // by a leader that stops, which ends no worker
			r.note(linDwork, call, o, answer, err)
		}
		if err != nil {
			return
		}
		if names := strings.Fields(answer); o.kind == linSteal && answer != linMissing && answer != linOver {
			last = names[rng.IntN(len(names))]
		}
	}
}

// ask makes one random request.
func (r *linRound) ask(h *client.HubClient, o *linOp, rng *rand.Rand) (answer string, err error) {
	task := func() client.DworkTask {
		t := client.DworkTask{Name: linTaskName(rng.IntN(linGraphSize)), Origin: "o"}
		for range max(rng.IntN(5)-2, 0) {
			t.After = append(t.After, linTaskName(rng.IntN(linGraphSize)))
		}
		return t
	}
	switch n := rng.IntN(20); {
	case n < 6:
		o.kind, o.tasks = linCreate, []client.DworkTask{task(), task()}[:1+rng.IntN(2)]
		return linOK, h.Create(r.ctx, o.tasks...)
	case n < 11:
		o.kind, o.count = linSteal, 1+rng.IntN(3)
		got, err := h.Steal(r.ctx, o.location, int32(o.count))
		for _, t := range got {
			answer += t.Name + " "
		}
		return answer, err
	case n < 14:
		o.kind, o.tasks = linComplete, []client.DworkTask{{Name: o.name}}
		_, err = h.Complete(r.ctx, o.location, o.tasks...)
		return linOK, err
	case n < 16:
		o.kind, o.tasks = linTransfer, []client.DworkTask{{Name: o.name, After: task().After}}
		return linOK, h.Transfer(r.ctx, o.location, o.tasks...)
	case n == 16:
		o.kind = linExit
		return linOK, h.Exit(r.ctx, o.location)
	case n == 17:
		o.kind = linBacklog
		text, ready, err := h.Status(r.ctx)
		var active int
		if err == nil {
			_, err = fmt.Sscanf(text, "dhub: %d active", &active)
		}
		return fmt.Sprint(active, " ", ready), err
	}
	o.kind = linLookup
	info, err := h.Lookup(r.ctx, o.name)
	if at, _, found := strings.Cut(info.Location, ":"); found && (at == "periodic" || at == "gloom") {
		info.Location = "#"
	}
	return linTaskText(o.name, info.After, info.Location), err
}
