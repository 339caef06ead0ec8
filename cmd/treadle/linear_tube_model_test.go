package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The requests of beanstalkd's and Faktory's clients beside those of all workers.
const (
	linDelete linKind = "delete"
	linBury   linKind = "bury"
	linTouch  linKind = "touch"
	linKick   linKind = "kick"
)

// The protocol that a job came in by: its version modulo linProtocols.
const (
	linOfBeanstalk = iota
	linOfFaktory
	linOfPeriodic
	linProtocols
)

// linRetry returns the retry of a Faktory job. None here reaches the end of the last one.
func linRetry(version int) int { return []int{-1, 0, 25}[version/linProtocols%3] }

// linTubeJob is a job of the tube.
type linTubeJob struct {
	version  int
	state    string // ready, running, delayed or failed, as listings have it
	priority int64
	id       int  // of a put that was answered; 0: it stands anywhere among those of its priority
	holder   int  // 0: nobody; negative: a reservation, which outlives its connection
	leaving  bool // the server has still to notice that the holder has gone
}

// The holders of jobs whose reservations come from an earlier server, and of those that linTube.asks took.
const (
	linRestored = math.MinInt
	linAsked    = math.MaxInt
)

func (j *linTubeJob) ofFaktory() bool { return j.version%linProtocols == linOfFaktory }

// maybeReady reports whether a job's holder has gone, so that the job is ready as soon as the server has noticed. It
// has then failed if it is one of Faktory.
func (j *linTubeJob) maybeReady() bool { return j.leaving && !j.ofFaktory() }

func (j *linTubeJob) wasPut() bool { return j.version%linProtocols == linOfBeanstalk }

// linTube is the state of a queue with jobs and workers of beanstalkd, Faktory and Periodic, and workers of Gloom. PUSH
// and what clients of beanstalkd change is answered after the sync; FETCH, ACK and FAIL are not.
type linTube struct {
	jobs  []linTubeJob // by version
	asks  int          // connections that were killed over a request for a job: they may have got one
	fetch int          // a worker of Faktory that was; 0: none
	disk  linStore     // as String says it
	lives bool         // connections also end while the server goes on, and takes back what they have
}

func (s linTube) equal(o linTube) bool {
	return slices.Equal(s.jobs, o.jobs) && s.asks == o.asks && s.fetch == o.fetch && slices.Equal(s.disk, o.disk)
}

// String returns the jobs in the form in which readTube reads them from a server that has just started.
func (s linTube) String() (text string) {
	for _, j := range s.jobs {
		if j.state == "running" && j.holder > 0 || j.state == "delayed" && j.ofFaktory() { // it may be due at the start
			j.state = "ready"
		}
		text += fmt.Sprintf("%d %s %d;", j.version, j.state, j.priority)
	}
	return text
}

// linTubeKept is how many jobs a start leaves in the tube: with many a history has too many explanations.
const linTubeKept = 6

// linTubeStart returns the state of jobs in the form of String when readTube has made it so: it removes what only its
// workers could report, and makes those that failed or are delayed ready.
func linTubeStart(read string) linTube {
	var s linTube
	for text := range strings.SplitSeq(strings.TrimSuffix(read, ";"), ";") {
		var j linTubeJob
		_, err := fmt.Sscan(text, &j.version, &j.state, &j.priority)
		switch {
		case err != nil, j.state == "running" && !j.ofFaktory(), len(s.jobs) == linTubeKept:
			continue
		case j.state == "running":
			j.holder = linRestored
		default:
			j.state = "ready"
		}
		s = s.with(j)
	}
	s.disk = linStore{s.String()}
	return s
}

func (s *linTube) find(version int) (at int, found bool) {
	return slices.BinarySearchFunc(s.jobs, version, func(j linTubeJob, v int) int { return cmp.Compare(j.version, v) })
}

// with returns the state with a job that is new or has changed.
func (s linTube) with(j linTubeJob) linTube {
	at, found := s.find(j.version)
	if s.jobs = slices.Clone(s.jobs); found {
		s.jobs[at] = j
	} else {
		s.jobs = slices.Insert(s.jobs, at, j)
	}
	return s
}

// to returns the state with a job that enters another state, and that nobody holds.
func (s linTube) to(j linTubeJob, state string) linTube {
	j.state, j.holder, j.leaving = state, 0, false
	return s.with(j)
}

// upTo returns the state in which the i-th job is the next to be handed out, or there is none when i is -1, because the
// connections that ask have got those ahead of it. ok is false when they are too few.
func (s linTube) upTo(i int) (_ linTube, ok bool) {
	var j linTubeJob
	if i >= 0 {
		j = s.jobs[i]
	}
	for k, o := range s.jobs {
		ahead := o.priority > j.priority || o.priority == j.priority && o.id > 0 && o.id < j.id
		if o.state != "ready" || i >= 0 && !ahead {
			continue
		}
		if s.asks == 0 {
			return s, false
		}
		s.asks--
		s = s.give(k, linAsked)
	}
	return s, i < 0 || j.state == "ready" || j.maybeReady()
}

// give hands the i-th job to a worker.
func (s linTube) give(i, worker int) linTube {
	j := s.jobs[i]
	j.state, j.holder, j.leaving = "running", worker, worker == linAsked && s.lives
	return s.with(j).saved(false)
}

// fail ends a run of the i-th job by a failure.
func (s linTube) fail(i int) linTube {
	j := s.jobs[i]
	switch retry := linRetry(j.version); {
	case !j.ofFaktory():
		s = s.to(j, "ready")
	case retry == 0:
		s.jobs = without(s.jobs, i)
	case retry < 0:
		s = s.to(j, "failed")
	default:
		s = s.to(j, "delayed")
	}
	return s.saved(false)
}

// saved notes a state that will be on disk, or is.
func (s linTube) saved(synced bool) linTube {
	s.disk = s.disk.add(s.String(), synced)
	return s
}

func (s linTube) stored() linStore { return s.disk }

// drift implements linSpec, as linState's does. What connections got that were killed shows in the replies to others,
// and in how jobs of Faktory end when the server lives on.
func (s linTube) drift() []linTube {
	all := []linTube{s}
	for i, j := range s.jobs {
		if j.leaving && j.ofFaktory() {
			all = append(all, s.fail(i).drift()...)
		}
		next, ok := s.upTo(i)
		if ok && s.fetch != 0 {
			taken := next
			taken.fetch = 0
			all = append(all, taken.give(i, s.fetch).drift()...)
		}
		if ok && s.lives && next.asks > 0 && j.ofFaktory() && j.state == "ready" { // it fails, which nobody may ask for
			next.asks--
			all = append(all, next.give(i, linAsked).drift()...)
		}
	}
	return all
}

// answered returns the states if the reply is the expected one, which says that they are on disk or not.
func (s linTube) answered(o *linOp, heard, answer string, durable bool) []linTube {
	if o.known && heard != answer {
		return nil
	}
	return []linTube{s.saved(o.known && durable)}
}

// after returns the possible states after an operation; none: its reply is impossible.
func (s linTube) after(o *linOp, output string) []linTube {
	count := func(is func(j linTubeJob) bool) (n int) {
		for _, j := range s.jobs {
			if is(j) {
				n++
			}
		}
		return n
	}
	switch at, found := s.find(o.version); {
	case o.kind == linSubmit:
		j := linTubeJob{version: o.version, priority: o.priority}
		_, _ = fmt.Sscanf(output, "INSERTED %d", &j.id) // other protocols have another answer
		return s.to(j, "ready").answered(o, output, output, true)
	case o.kind == linGrab && !o.known && o.worker < 0:
		s.fetch = o.worker
	case o.kind == linGrab && !o.known:
		s.asks++
	case o.kind == linGrab && !found && o.version > 0:
		return nil
	case o.kind == linGrab:
		if !found { // there is none
			at = -1
		}
		var ok bool
		switch s, ok = s.upTo(at); {
		case !ok:
			return nil
		case found:
			s = s.give(at, o.worker)
		}
	case o.kind == linKick:
		return s.kick(o, output)
	case o.kind == linStatus:
		jobs, running := count(func(j linTubeJob) bool { return j.state != "failed" }), count(func(j linTubeJob) bool { return j.state == "running" })
		var all []linTube
		for n := running - count(func(j linTubeJob) bool { return j.maybeReady() }); n <= running+s.asks; n++ {
			all = append(all, s.answered(o, output, fmt.Sprint(jobs, " ", n), false)...)
		}
		return all
	case o.kind == linBack:
		for _, j := range s.jobs {
			switch {
			case j.holder != o.worker || !j.leaving:
			case j.ofFaktory():
				return nil
			default:
				s = s.to(j, "ready")
			}
		}
	case o.kind == linLeave:
		for _, j := range s.jobs {
			if j.holder == o.worker {
				j.leaving = true
				s = s.with(j)
			}
		}
	default:
		return s.report(o, output)
	}
	return []linTube{s}
}

// kick makes a buried job ready or, without any, a delayed one. Which it is shows later.
func (s linTube) kick(o *linOp, output string) (all []linTube) {
	for _, state := range []string{"failed", "delayed"} {
		for _, j := range s.jobs {
			if j.wasPut() && j.state == state {
				all = append(all, s.to(j, "ready").answered(o, output, "KICKED 1", true)...)
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return s.answered(o, output, "KICKED 0", true)
}

// report returns the states after a request about one job.
func (s linTube) report(o *linOp, output string) []linTube {
	at, found := s.find(o.version)
	j, rest := linTubeJob{version: o.version}, s
	if found {
		j, rest.jobs = s.jobs[at], without(s.jobs, at)
	}
	mine := found && (j.holder == o.worker || o.worker < 0 && j.holder < 0 && j.ofFaktory())
	switch {
	case o.kind == linDelete && output == "NOT_FOUND" && j.state == "ready" && s.asks > 0:
		s.asks--
		return []linTube{s.give(at, linAsked)}
	case o.kind == linDelete && (mine || found && j.wasPut() && (j.state != "running" || j.leaving && output != "NOT_FOUND")):
		return rest.answered(o, output, "DELETED", true)
	case o.kind == linFail && !mine && o.worker < 0:
		return s.answered(o, output, linRefused, false)
	case o.kind == linDone && mine:
		return rest.answered(o, output, "", false)
	case o.kind == linFail && mine:
		return s.fail(at).answered(o, output, "", false)
	case o.kind == linLater && mine:
		return s.to(j, "ready").answered(o, output, "", false)
	case o.kind == linDone, o.kind == linFail, o.kind == linLater:
		return s.answered(o, output, "", false)
	case !mine:
		return s.answered(o, output, "NOT_FOUND", false)
	case o.kind == linTouch:
		return s.answered(o, output, "TOUCHED", false)
	}
	if j.wasPut() {
		j.priority = o.priority
	}
	switch {
	case o.kind == linBury:
		return s.to(j, "failed").answered(o, output, "BURIED", true)
	case o.due > 0:
		return s.to(j, "delayed").answered(o, output, "RELEASED", true)
	}
	return s.to(j, "ready").answered(o, output, "RELEASED", true)
}
