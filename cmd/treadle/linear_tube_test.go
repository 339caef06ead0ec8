package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"treadle/loop/client"
)

// linTubeName is the queue whose jobs clients of beanstalkd, Faktory and Periodic submit.
const linTubeName = "tube"

// linTTR is a time to run, and a delay, that does not end in a test.
const linTTR = 4000

// newTubeJob returns the version of a new job of a protocol.
func (s *linSite) newTubeJob(from int) int { return s.number()*linProtocols + from }

// readTube reads the jobs of the tube, changes them as linTubeStart says, and returns those that are reserved then. A
// request of the history before, which a node has held back while its leader was away, may still be carried out
// meanwhile: then it reads them again.
func (s *linSite) readTube(ctx context.Context, t *testing.T) (read string, reserved chan int) {
	for range linReads {
		if read, reserved, ok := s.tryReadTube(ctx, t); ok {
			return read, reserved
		}
	}
	t.Fatal("the jobs of the tube change, and nobody uses it")
	return "", nil
}

// linReads is how often a tube is read that changes meanwhile.
const linReads = 3

// tryReadTube is one attempt of readTube.
func (s *linSite) tryReadTube(ctx context.Context, t *testing.T) (read string, reserved chan int, ok bool) {
	a := client.NewAdmin(s.socket("a"))
	defer a.Close()
	var tube linTube
	ids := make(map[int]string)
	s.answered(ctx, t, func() error {
		page, err := a.Jobs(ctx, "queue:"+linTubeName, "", 1000)
		if err != nil {
			return err
		}
		if page.Next != "" {
			t.Fatal("there are more jobs than a page has")
		}
		tube = linTube{}
		for _, job := range page.Jobs {
			d, failed := a.JobByID(ctx, job.ID)
			if failed != nil {
				return failed
			}
			j := linTubeJob{version: linVersion(*d.Workload), state: d.State, priority: d.Priority}
			if j.state == "running" {
				j.holder = linRestored
			}
			ids[j.version], tube = d.ID, tube.with(j)
		}
		return nil
	})
	read = tube.String()
	start := linTubeStart(read)
	reserved = make(chan int, len(ids))
	defer close(reserved)
	for _, j := range tube.jobs {
		verb := "run"
		switch at, kept := start.find(j.version); {
		case !kept:
			verb = "remove"
		case j.state == "running":
			reserved <- j.version
			continue
		case j.state == start.jobs[at].state:
			continue
		}
		again, gone := false, false
		s.answered(ctx, t, func() error {
			done, err := a.ChangeJobs(ctx, &client.JobsChange{Verb: verb, IDs: []string{ids[j.version]}})
			if err == nil && done.Changed != 1 && !again {
				gone = true
				t.Log(verb, j, done)
			}
			again = true
			return err
		})
		if gone {
			return "", nil, false
		}
	}
	return read, reserved, true
}

// linTuber is a connection of beanstalkd's protocol, with the job that it asks about.
type linTuber struct {
	*client.Beanstalk
	me      int
	id      string
	version int
	holds   bool
	empty   bool // its last reserve found no job
}

// tubes makes its share of requests of beanstalkd's protocol. It leaves now and then, also with a job.
func (r *linRound) tubes(rng *rand.Rand) {
	var left linLeft
	for n := linOpsEach; n > 0; {
		b, err := client.DialBeanstalk(r.ctx, r.site.socket("b"))
		if err != nil {
			r.fault(err)
			return
		}
		c := linTuber{Beanstalk: b, me: r.site.number()}
		for _, line := range []string{"use tube", "watch tube", "ignore default"} {
			_, err = c.Ask(r.ctx, nil, "%s", line) // an error comes again
		}
		if r.killed.Load() {
			b.Close()
			return
		}
		if err == nil {
			r.back(&left)
		}
		for ; n > 0 && err == nil && rng.IntN(16) > 0; n-- {
			err = r.tube(rng, &c)
		}
		if err != nil {
			c.Close()
			r.lost(linLeave, c.me, linTubeName)
			return
		}
		left = r.leave(linOp{kind: linLeave, worker: c.me}, linTubeName, c)
	}
}

// tube makes one request of beanstalkd's protocol.
func (r *linRound) tube(rng *rand.Rand, c *linTuber) error {
	verbs := []linKind{linGrab, linGrab, linGrab, linKick, linSubmit, linDelete, linTouch}
	switch {
	case c.empty:
		verbs = []linKind{linSubmit}
	case c.holds && c.version%linProtocols == linOfPeriodic: // nobody would kick it
		verbs = []linKind{linDelete, linRelease}
	case c.holds:
		verbs = []linKind{linDelete, linDelete, linRelease, linRelease, linBury, linBury, linTouch}
	case c.id == "":
		verbs = verbs[:5]
	}
	o := linOp{kind: verbs[rng.IntN(len(verbs))], worker: c.me, version: c.version, priority: int64(rng.IntN(3) - 1)}
	line, body, pri := fmt.Sprint(o.kind, " ", c.id), []byte(nil), 1024-o.priority
	switch o.kind {
	case linSubmit:
		o.version = r.site.newTubeJob(linOfBeanstalk)
		body = fmt.Append(nil, o.version)
		line = fmt.Sprintf("put %d 0 %d %d", pri, linTTR, len(body))
	case linGrab:
		o.version, line = 0, "reserve-with-timeout 0"
	case linKick:
		line = "kick 1"
	case linRelease:
		if c.version%linProtocols == linOfBeanstalk {
			o.due = rng.IntN(2)
		}
		line += fmt.Sprintf(" %d %d", pri, o.due*linTTR)
	case linBury:
		line += fmt.Sprint(" ", pri)
	}
	call := r.now()
	reply, err := c.Ask(r.ctx, body, "%s", line)
	switch {
	case err == nil && reply.Is("RESERVED"):
		o.version, c.holds = linVersion(string(reply.Data)), true
	case o.kind != linTouch:
		c.holds = false
	}
	if err == nil && (c.holds || reply.Is("INSERTED")) && len(reply.Words) > 1 {
		c.id, c.version = reply.Words[1], o.version
	}
	c.empty = o.kind == linGrab && !c.holds
	if r.killed.Load() && err == nil && (c.empty || reply.Is("DRAINING")) {
		return nil // of a server that stops, which takes no job and has none for anybody
	}
	r.note(linTubeName, call, o, strings.Join(reply.Words, " "), err)
	return err
}

// linFetched is a job that was fetched.
type linFetched struct {
	worker, version int
	jid             string
}

// faktory pushes, fetches and reports jobs, some twice, on whatever connection.
func (r *linRound) faktory(rng *rand.Rand) {
	var f *client.Faktory
	var err error
	ask := func(o linOp, word, text string) (reply string) {
		if err != nil {
			return ""
		}
		call, output := r.now(), ""
		var got []byte
		got, err = f.Ask(r.ctx, word, []byte(text))
		switch reply = string(got); {
		case o.kind == linFail && err != nil && !errors.As(err, new(*client.PeerError)):
			output, err = linRefused, nil
		case o.kind == linGrab && reply != "":
			o.version = linVersion(reply)
		case o.kind == linGrab && err == nil && r.killed.Load():
			return "" // in the same way
		}
		r.note(linTubeName, call, o, output, err)
		return reply
	}
	jidOf := func(version int) string { return fmt.Sprintf("job-%08d", version) }
	var fetched []linFetched
	for n := 0; n < linOpsEach/3 && err == nil; n++ {
		if n == 0 || rng.IntN(4) == 0 {
			if f != nil {
				f.Close()
			}
			if f, err = client.DialFaktory(r.ctx, r.site.socket("f"), client.FaktoryTarget, ""); err != nil {
				r.fault(err)
				return
			}
			if r.killed.Load() {
				break
			}
		}
		version, priority := r.site.newTubeJob(linOfFaktory), rng.IntN(3)-1
		ask(linOp{kind: linSubmit, version: version, priority: int64(priority)}, "PUSH", fmt.Sprintf(`{"jid":%q,"jobtype":"T","queue":%q,"args":[%d],"priority":%d,"retry":%d}`,
			jidOf(version), linTubeName, version, 5+priority, linRetry(version)))
		me := -r.site.number()
		if got := ask(linOp{kind: linGrab, worker: me}, "FETCH", linTubeName); got != "" {
			_, jid, _ := strings.Cut(got, `"jid":"`)
			jid, _, _ = strings.Cut(jid, `"`)
			fetched = append(fetched, linFetched{me, linVersion(got), jid})
		}
		if old := <-r.reserved; old > 0 {
			fetched = append(fetched, linFetched{me, old, jidOf(old)})
		}
		for len(fetched) > rng.IntN(4) {
			x := fetched[0]
			o, word := linOp{kind: linDone, worker: x.worker, version: x.version}, "ACK"
			if rng.IntN(2) == 0 {
				o.kind, word = linFail, "FAIL"
			}
			if ask(o, word, fmt.Sprintf(`{"jid":%q}`, x.jid)); rng.IntN(4) > 0 {
				fetched = fetched[1:]
			}
		}
	}
	f.Close()
}

// submitToTube submits a Periodic job.
func (r *linRound) submitToTube(c *client.Client) error {
	o := linOp{kind: linSubmit, version: r.site.newTubeJob(linOfPeriodic)}
	call := r.now()
	err := c.Submit(r.ctx, &client.Job{Func: linTubeName, Name: fmt.Sprint("p", o.version), Workload: fmt.Append(nil, o.version)})
	r.note(linTubeName, call, o, "", err)
	return err
}
