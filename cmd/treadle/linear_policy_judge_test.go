package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// polJob is a job with all that was seen of it. Jobs of the queue once are told apart by their workloads, all others by
// their names.
type polJob struct {
	submit *polSubmit // nil: a job of a cron entry
	runs   []*polRun  // in the order in which they arrived
}

// polJudge has a history in the order of its events, and the faults that the rules find in it.
type polJudge struct {
	*polSite
	jobs   map[string]*polJob
	queues map[string][]*polRun // in the order in which they arrived
	limits []polForce           // of the concurrency that changes
	faults []string
}

func polKey(name, workload string) string { return name + "/" + workload }

// judge returns the faults of a history, by these rules. Each follows from what is certain: a job was handed out
// between the latest of its worker's request, its submission and the end of its run before, and its arrival; its worker
// had it until it reported or left, or the server was killed; a worker under a lease has it until it reports or the
// lease expires, over a kill too; a change of a policy holds from its answer to the next change's request.
func (s *polSite) judge() []string {
	j := &polJudge{polSite: s, jobs: make(map[string]*polJob), queues: make(map[string][]*polRun), faults: s.faults}
	for i := range s.submits {
		sub := &s.submits[i]
		j.jobs[polKey(sub.name, sub.workload)] = &polJob{submit: sub}
	}
	slices.SortFunc(s.runs, func(a, b polRun) int { return cmp.Compare(a.got, b.got) })
	for i := range s.runs {
		run := &s.runs[i]
		key := polKey(run.name, run.workload)
		if j.jobs[key] == nil {
			if run.queue != "cron" {
				j.fault("%s was never submitted", run)
			}
			j.jobs[key] = &polJob{}
		}
		j.jobs[key].runs = append(j.jobs[key].runs, run)
		j.queues[run.queue] = append(j.queues[run.queue], run)
	}
	for _, key := range slices.Sorted(maps.Keys(j.jobs)) {
		job := j.jobs[key]
		j.once(job)
		j.retried(job)
		j.delayed(job)
		j.expires(job)
	}
	j.lost()
	j.limits = j.inForce("limit", "concurrency")
	for queue := range j.queues {
		j.limited(queue)
	}
	j.fair()
	j.rated()
	j.paused()
	j.unique()
	j.results()
	j.cronTimes()
	return j.faults
}

func (j *polJudge) fault(format string, args ...any) {
	j.faults = append(j.faults, fmt.Sprintf(format, args...))
}

// String describes a run in a message.
func (r *polRun) String() string {
	return fmt.Sprintf("%s %s %s (round %d, asked %d, got %d, %s %d, said %d, %s)", r.queue, r.name, r.workload, r.round, r.asked, r.got, r.how, r.end, r.said, r.text)
}

// String describes a submission in a message.
func (s *polSubmit) String() string {
	return fmt.Sprintf("%s %s %s (round %d, submitted %d, answered %d, refused %v)", s.queue, s.name, s.workload, s.round, s.call, s.answered, s.refused)
}

// durable reports whether the report of a run is on disk: a change of a policy, which is answered when all before is,
// came after it.
func (j *polJudge) durable(r *polRun) bool {
	return r.acknowledged || r.said != 0 && slices.ContainsFunc(j.sets, func(s polSet) bool { return s.round == r.round && s.call >= r.said && s.answered != 0 && !s.read })
}

// lasts reports whether the server that gave out the run to knows the end of a run before it. Workers that leave have
// no answer; a later run of the same server proves that it noticed.
func (j *polJudge) lasts(r, to *polRun) bool {
	return r.ends == to.round || r.ends < to.round && j.durable(r)
}

// since returns the latest moment for which it is certain that a run was handed out after it.
func (j *polJudge) since(r *polRun) int64 {
	job := j.jobs[polKey(r.name, r.workload)]
	at := max(r.asked, j.starts[r.round])
	if job.submit != nil {
		at = max(at, job.submit.call)
	}
	for _, before := range job.runs {
		if before.got < r.got {
			at = max(at, before.end)
		}
	}
	return at
}

// once: a job has one worker at a time, and none after it was done.
func (j *polJudge) once(job *polJob) {
	for i, r := range job.runs {
		if job.submit != nil && job.submit.refused {
			j.fault("%s was refused and is handed out: %s", job.submit, r)
		}
		for _, next := range job.runs[i+1:] {
			if next.got < r.end {
				j.fault("%s is handed out again while it runs: %s", r, next)
			}
			if r.how == linDone && r.said != 0 && j.lasts(r, next) {
				j.fault("%s was done and is handed out again: %s", r, next)
			}
		}
	}
}

// retried: a job that its worker reports as failed is not handed out before its back-off, nor after its last retry; it
// is given up after that alone. The server may notice that a worker left with the time of a moment before.
func (j *polJudge) retried(job *polJob) {
	failed := func(r *polRun) bool { return r.how == linFail || r.how == linLeave || r.how == linExpired }
	for i, r := range job.runs {
		p, limited := polRetries[r.queue]
		if !limited || !failed(r) || i+1 == len(job.runs) || !j.lasts(r, job.runs[i+1]) {
			continue
		}
		next, tries := job.runs[i+1], 0
		for _, before := range job.runs[:i+1] {
			if failed(before) && j.lasts(before, next) {
				tries++
			}
		}
		wait := p.first
		for range tries - 1 {
			wait *= int64(p.factor)
		}
		switch {
		case next.queue != r.queue:
		case tries > p.retries:
			j.fault("%s has failed %d times and is handed out again: %s", r, tries, next)
		case r.how == linFail && r.said != 0 && r.delay == 0 && next.got < r.pinged+wait-polSlack:
			j.fault("%s has failed %d times and is handed out again too early: %s", r, tries, next)
		}
	}
	failures := 0
	for _, r := range job.runs {
		switch p := polRetries["dead"]; {
		case failed(r):
			failures++
		case r.queue == "grave" && failures <= p.retries:
			j.fault("%s is a dead letter after %d failures", r, failures)
		}
	}
}

// delayed: a job is not handed out before its time, nor before the delay that its worker wants.
func (j *polJudge) delayed(job *polJob) {
	for i, r := range job.runs {
		if s := job.submit; s != nil && r.got < s.notBefore-polSlack {
			j.fault("%s is handed out before %d: %s", s, s.notBefore, r)
		}
		for _, next := range job.runs[i+1:] {
			if r.how == linFail && r.acknowledged && j.lasts(r, next) && next.got < r.pinged+r.delay-polSlack {
				j.fault("%s put the job off by %d: %s", r, r.delay, next)
			}
		}
	}
}

// expires: no job is handed out when its job-ttl is over.
func (j *polJudge) expires(job *polJob) {
	if job.submit == nil || job.submit.queue != "old" || job.submit.answered == 0 || len(job.runs) == 0 {
		return
	}
	// A due time is a whole second. One that has run before, and was not done, is as old as it was then.
	first := job.runs[0]
	if late := j.since(first) - job.submit.answered; late > polTTL+int64(time.Second)+polDelay {
		j.fault("%s is handed out %v after it was answered: %s", job.submit, time.Duration(late), first)
	}
}

// lost: every job whose submission was answered is done, or kept as failed or expired.
func (j *polJudge) lost() {
	kept := make(map[string]bool)
	for queue, jobs := range j.ends.failed {
		for _, f := range jobs {
			kept[f.Name] = true
			failures := 0
			for _, a := range f.Attempts {
				if a.Outcome == "failed" || a.Outcome == "worker left" || a.Outcome == "timed out" {
					failures++
				}
			}
			if p := polRetries[queue]; failures != p.retries+1 {
				j.fault("%s of %s was given up after %d failures: %v", f.Name, queue, failures, f.Attempts)
			}
		}
	}
	submitted := make(map[string]*polSubmit)
	for i := range j.submits {
		submitted[j.submits[i].name] = &j.submits[i]
	}
	for _, d := range j.ends.done["old"] {
		if d.State != "expired" {
			continue
		}
		kept[d.Name] = true
		if s := submitted[d.Name]; s != nil && j.began.UnixMilli()+(s.pinged+polTTL-polSlack)/int64(time.Millisecond) > d.Since {
			j.fault("%s has expired before its time, at %d", s, d.Since)
		}
	}
	for key, job := range j.jobs {
		s := job.submit
		done := len(job.runs) > 0 && job.runs[len(job.runs)-1].how == linDone ||
			slices.ContainsFunc(job.runs, func(r *polRun) bool { return r.how == linDone && r.acknowledged })
		switch {
		case s == nil:
			if !done {
				j.fault("the job %s of a cron entry is not done: %v", key, job.runs)
			}
		case done && kept[s.name] && j.durable(job.runs[len(job.runs)-1]):
			j.fault("%s is done and kept as another end: %v", s, job.runs)
		case s.answered != 0 && !s.refused && !done && !kept[s.name] && s.queue != "once":
			j.fault("%s is lost: %v", s, job.runs)
		}
	}
}

// limited: no more jobs of a queue, or of a key, run at a time than the concurrency allowed when the last of them was
// handed out.
func (j *polJudge) limited(queue string) {
	runs := j.queues[queue]
	for i, last := range runs {
		together := []*polRun{last}
		for k := i - 1; k >= 0 && (runs[k].round == last.round || last.got-runs[k].got < polHeld); k-- {
			if runs[k].end > last.got {
				together = append(together, runs[k])
			}
		}
		for _, first := range together {
			from, count, keyed := j.since(first), int64(0), 0
			for _, r := range together {
				if j.since(r) < from {
					continue
				}
				if count++; r.name[0] == last.name[0] {
					keyed++
				}
			}
			if queue == "limit" && count > j.most(from, last.got) {
				j.fault("%d jobs of %s run at a time: %v", count, queue, together)
			}
			if queue == "keys" && keyed > 1 && first.name[0] == last.name[0] {
				j.fault("%d jobs of a key run at a time: %v", keyed, together)
			}
		}
	}
}

// most returns the largest concurrency that the queue limit may have had in a time.
func (j *polJudge) most(from, to int64) (most int64) {
	for _, in := range j.limits {
		if in.possibleFrom <= to && in.possibleTo >= from {
			n, err := strconv.ParseInt(in.value, 10, 64)
			if err != nil {
				j.fault("the concurrency %q: %v", in.value, err)
			}
			most = max(most, n)
		}
	}
	return most
}

// polForce is a value of a policy, and when it certainly and possibly held.
type polForce struct {
	round                    int
	value                    string
	from, to                 int64
	possibleFrom, possibleTo int64
}

// inForce returns the values of a policy. One operator makes all changes, one after the other.
func (j *polJudge) inForce(queue, key string) (all []polForce) {
	const always = int64(1) << 62
	for _, s := range j.sets {
		if s.queue != queue || s.key != key {
			continue
		}
		if n := len(all); n > 0 && all[n-1].round == s.round {
			all[n-1].to = s.call
			if s.answered != 0 {
				all[n-1].possibleTo = s.answered
			}
		}
		f := polForce{s.round, s.value, always, always, s.call, always}
		if s.answered != 0 {
			f.from = s.answered
		}
		if s.read { // it held when the server started
			f.possibleFrom = j.kills[s.round-1]
		}
		if f.to = always; j.kills[s.round] != 0 {
			f.to, f.possibleTo = j.kills[s.round], j.kills[s.round]
		}
		all = append(all, f)
	}
	return all
}

// paused: from the answer to a pause of the hand-out to the request that ends it no job is handed out. The same holds
// for submissions and a pause of these, and only those are refused.
func (j *polJudge) paused() {
	force := j.inForce("pause", "paused")
	for i := range force {
		f := &force[i]
		handOut, submits := f.value == "hand-out" || f.value == "both", f.value == "submits" || f.value == "both"
		for _, r := range j.queues["pause"] {
			if handOut && r.round == f.round && j.since(r) >= f.from && r.got <= f.to {
				j.fault("in a pause from %d to %d there is %s", f.from, f.to, r)
			}
		}
		for k := range j.submits {
			if s := &j.submits[k]; s.queue == "pause" && s.round == f.round && s.answered != 0 && s.call >= f.from && s.answered <= f.to && s.refused != submits {
				j.fault("while the pause from %d to %d is %q there is %s", f.from, f.to, f.value, s)
			}
		}
	}
	for k := range j.submits {
		if s := &j.submits[k]; s.refused && s.queue != "pause" {
			j.fault("refused: %s", s)
		}
	}
}

// rated: no more jobs start in a time than the rate and its burst allow. A start of the server begins a new rate.
func (j *polJudge) rated() {
	runs := j.queues["rate"]
	for i := range runs {
		from := j.since(runs[i])
		for k := i; k < len(runs) && runs[k].round == runs[i].round && runs[k].got <= j.rateEnd(runs[i].round); k++ {
			from = min(from, j.since(runs[k]))
			if most := polBurst + float64(polRate)*time.Duration(runs[k].got-from+polDelay).Seconds(); float64(k-i+1) > most {
				j.fault("%d jobs start from %d to %d: %v", k-i+1, from, runs[k].got, runs[i:k+1])
				return
			}
		}
	}
}

// rateEnd returns when the rate of a round was changed, or the server killed.
func (j *polJudge) rateEnd(round int) int64 {
	for _, s := range j.sets {
		if s.round == round && s.key == "rate" && !s.read && !strings.HasPrefix(s.value, strconv.Itoa(polRate)+"/") {
			return s.call
		}
	}
	return j.kills[round]
}
