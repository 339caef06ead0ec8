package main

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// fair: between two turns of a key each other key that has had a job ready all the time has one. The queue has one
// worker, which does one job after the other.
func (j *polJudge) fair() {
	runs := j.queues["fair"]
	for i, first := range runs {
		var between strings.Builder
		for _, next := range runs[i+1:] {
			if next.round != first.round {
				break
			}
			if next.name[0] != first.name[0] {
				between.WriteByte(next.name[0])
				continue
			}
			for k := range j.submits {
				s := &j.submits[k]
				if s.queue == "fair" && s.name[0] != first.name[0] && j.waits(s, j.since(first), next.got) && !strings.ContainsRune(between.String(), rune(s.name[0])) {
					j.fault("the key of %s has two turns, %s and %s", s, first, next)
				}
			}
			break
		}
	}
}

// waits reports whether a job was certainly ready from before a time to after another one.
func (j *polJudge) waits(s *polSubmit, from, to int64) bool {
	job := j.jobs[polKey(s.name, s.workload)]
	return s.answered != 0 && !s.refused && s.answered <= from && (len(job.runs) > 0 && j.since(job.runs[0]) >= to)
}

// unique: within unique-for of a job that is done its name is not handed out again, and a RUN_JOB has the kept result.
func (j *polJudge) unique() {
	byName := make(map[string][]*polRun)
	for _, r := range j.queues["once"] {
		byName[r.name] = append(byName[r.name], r)
	}
	for i := range j.submits {
		s := &j.submits[i]
		if s.queue != "once" || s.answered == 0 {
			continue
		}
		known := false
		for _, r := range byName[s.name] {
			known = known || (r.how == linDone || r.sent) && r.text == s.result && r.end < s.answered
			inside := r.how == linDone && r.said != 0 && r.said <= s.call && s.answered-r.pinged < polUnique-polSlack && (r.round == s.round || j.durable(r))
			if !inside {
				continue
			}
			if again := j.jobs[polKey(s.name, s.workload)].runs; len(again) > 0 {
				j.fault("%s comes within unique-for of %s and is handed out: %s", s, r, again[0])
			}
			if s.awaited && s.result != r.text {
				j.fault("%s comes within unique-for of %s and has the result %s", s, r, s.result)
			}
		}
		if s.awaited && !known {
			j.fault("%s has the result %s, which no worker has sent", s, s.result)
		}
	}
}

// results: every result that is kept is the one that was sent, and that of every job that is done is kept. With
// keep-done the job is kept.
func (j *polJudge) results() {
	sent, kept := make(map[string]*polRun), make(map[string]bool)
	for _, r := range j.queues["once"] {
		sent[r.name+"="+r.text] = r
	}
	for _, d := range j.ends.done["once"] {
		result := d.Name + "="
		if d.Result != nil {
			result += *d.Result
		}
		if r := sent[result]; r == nil || r.how != linDone || kept[result] {
			j.fault("the result %s is kept, and was not sent or is kept twice", result)
		}
		kept[result] = true
	}
	for _, d := range j.ends.done["old"] {
		if d.State == "done" {
			kept[d.Name] = true
		}
	}
	for _, r := range j.queues["old"] {
		if r.how == linDone && j.durable(r) && !kept[r.name] {
			j.fault("it is not kept: %s", r)
		}
	}
	for result, r := range sent {
		if r.how == linDone && j.durable(r) && !kept[result] {
			j.fault("the result %s is not kept: %s", result, r)
		}
	}
}

// cronTimes: each time of an entry has one job, and the entry counts it once. A start that comes more than a minute
// after the kill, on a slow machine, makes up for many times with one job.
func (j *polJudge) cronTimes() {
	for _, c := range j.ends.cron {
		if c.Counts["late"]+c.Counts["missed"] > 0 {
			continue
		}
		seen := make(map[string]bool)
		for _, key := range slices.Sorted(maps.Keys(j.jobs)) {
			if name, _, _ := strings.Cut(key, "/"); strings.HasPrefix(name, c.Name+"@") && len(j.jobs[key].runs) > 0 {
				seen[strings.TrimPrefix(name, c.Name+"@")] = true
			}
		}
		if n := c.Counts["ran"]; n != uint64(len(seen)) || len(c.Counts) != 1 {
			j.fault("the cron entry %s counts %v, and had jobs at %v", c.Name, c.Counts, slices.Sorted(maps.Keys(seen)))
		}
		times := j.cron[c.Name]
		for at := times[0].Truncate(polEvery).Add(polEvery); at.Before(times[1]); at = at.Add(polEvery) {
			if text := at.UTC().Format(time.RFC3339); !seen[text] {
				j.fault("the cron entry %s has no job at %s", c.Name, text)
			}
		}
	}
}
