package sched

import (
	"bytes"
	"cmp"
	"strings"
)

// JobState is the state of a job as operators see it.
type JobState uint8

// The states.
const (
	JobReady JobState = iota
	JobDelayed
	JobRunning
	JobLocked  // it waits for a named lock
	JobWaiting // a task waits for other tasks
	JobFailed
	JobDone
	JobExpired // its job-ttl has passed
	// JobStates is the number of states.
	JobStates
)

var jobStateNames = [JobStates]string{"ready", "delayed", "running", "locked", "waiting", "failed", "done", "expired"}

// String returns the state as people read it.
func (s JobState) String() string { return jobStateNames[s] }

// Ended reports whether a job in this state is kept after its end.
func (s JobState) Ended() bool { return s == JobFailed || s == JobDone || s == JobExpired }

// StateSet is a set of states, as bits by their numbers. The zero StateSet has all states.
type StateSet uint16

// StatesOf returns the set of the given states. Without a state it returns the set of all.
func StatesOf(states ...JobState) (set StateSet) {
	for _, s := range states {
		set |= 1 << s
	}
	return set
}

func (s StateSet) intersects(o StateSet) bool { return s == 0 || o == 0 || s&o != 0 }

// Range is from From to To, both included.
type Range struct{ From, To int64 }

func (r *Range) has(n int64) bool { return r == nil || r.From <= n && n <= r.To }

// Match says which jobs a Listing has. A job must meet all fields. The zero Match has all jobs.
type Match struct {
	Ref           *JobRef  // only the job that View finds by it; nil: any
	Queues, Names []string // patterns as of a PolicyRule; the name must match all of them
	Workers       []string // each in the name of a worker that holds or held the job
	Texts         []string // each in the workload, a text or Attempt.Cause of the history, or the kept result
	States        StateSet
	Spaces        uint16 // a set of spaces, as bits by their numbers; 0: any
	Priority      *Range // nil: any
	// Age is the time in milliseconds since a job came to its state; nil: any. It is counted
	//
	//	ready            since it was due
	//	locked           since it began to wait
	//	running          since it was handed out
	//	failed or done   since its end
	//
	// Jobs in other states have no age and match no range. A task has an age only while it runs.
	Age *Range
}

// listPatterns are the patterns of a Match.
type listPatterns struct{ queues, names []listPattern }

type listPattern struct {
	text  string
	exact bool
}

func newListPatterns(m *Match) (p listPatterns) {
	for _, of := range [...]struct {
		from []string
		to   *[]listPattern
	}{{m.Queues, &p.queues}, {m.Names, &p.names}} {
		for _, text := range of.from {
			*of.to = append(*of.to, listPattern{text, !strings.ContainsAny(text, "*?")})
		}
	}
	return p
}

// maxPatternWork bounds the product of the lengths of a pattern and a name, so that comparing them takes about a
// millisecond at most. A longer name matches the pattern * alone.
const maxPatternWork = 1 << 20

// matchesAll reports whether a name matches all patterns.
func matchesAll[T string | []byte](sh *shard, patterns []listPattern, name T) bool {
	for _, p := range patterns {
		work := len(p.text) * len(name)
		switch {
		case p.exact:
			if p.text != string(name) {
				return false
			}
		case p.text == "*":
		case work > maxPatternWork:
			return false
		default:
			sh.countSteps(work >> costShift)
			if !matchesGlob(p.text, name) {
				return false
			}
		}
	}
	return true
}

// matches reports whether the listing has a job. over is false when a part of its text is not searched yet.
func (w *lister) matches(job uint32, r *record) (matches, over bool) {
	m := &w.match
	switch {
	case !possibleStates(r).intersects(m.States),
		m.Spaces != 0 && m.Spaces>>r.space&1 == 0,
		!m.Priority.has(r.priority),
		m.Age != nil && !w.ageFits(job, r),
		!matchesAll(w.sh, w.globs.queues, w.q.name),
		len(m.Names) > 0 && !matchesAll(w.sh, w.globs.names, w.sh.nameView(job)),
		m.States != 0 && !StatesOf(w.sh.jobStateOf(job, r)).intersects(m.States),
		len(m.Workers) > 0 && !w.workersFit(job, r):
		return false, true
	case len(m.Texts) == 0:
		return true, true
	}
	return w.searchTexts(job, r)
}

// possibleStates returns the states that a job may have, without a look at its history.
func possibleStates(r *record) StateSet {
	switch r.state {
	case delayed:
		return StatesOf(JobDelayed)
	case reserved, broadcasting:
		return StatesOf(JobRunning)
	case parked:
		return StatesOf(JobLocked)
	case waiting:
		return StatesOf(JobWaiting)
	case failed:
		return StatesOf(JobFailed)
	case finished:
		return StatesOf(JobDone, JobExpired)
	}
	return StatesOf(JobReady)
}

// jobStateOf returns the state of a job as operators see it.
func (sh *shard) jobStateOf(job uint32, r *record) JobState {
	set := possibleStates(r)
	if r.state == finished {
		set = StatesOf(JobDone)
		if r.use() == keptDone && endsExpired(sh.history(job, r)) {
			set = StatesOf(JobExpired)
		}
	}
	state := JobReady
	for set != StatesOf(state) {
		state++
	}
	return state
}

func (w *lister) ageFits(job uint32, r *record) bool {
	since := w.sh.sinceOf(w.now, job, r)
	if r.state == ready && r.due >= firstDue {
		since = r.dueWall()
	}
	return since != 0 && w.match.Age.has(w.now.Wall-since)
}

// workersFit reports whether each part of Match.Workers is in the name of a worker that holds the job or held it.
func (w *lister) workersFit(job uint32, r *record) bool {
	all := w.sh.attemptsOf(job, r)
	holder := ""
	if r.state == reserved {
		holder = w.sh.workerOf(r)
	}
	for _, part := range w.match.Workers {
		found := strings.Contains(holder, part)
		for i := range all {
			found = found || strings.Contains(all[i].Worker, part)
		}
		if !found {
			return false
		}
	}
	return true
}

// attemptsOf returns the entries of a job's history. Most jobs have none, and nothing is allocated for them.
func (sh *shard) attemptsOf(job uint32, r *record) (all []Attempt) {
	if h := sh.history(job, r); h != nil {
		_, all = ParseHistory(h)
	}
	return all
}

// maxSearched is how many bytes of a job are searched under one hold of a shard's lock.
const maxSearched = 256 << 10

// textSearch is where the search of a job's texts continues. It is zero between two jobs.
type textSearch struct {
	ref      JobRef
	versions [2]uint64 // versions of the workload and the result, see arena.version
	text     int       // number of the text
	part     int       // 0: the workload, 1: the result
	at       int       // in the part
}

// searchTexts reports whether a job has all texts. It searches a part of a large job; over is false when another part
// is left.
func (w *lister) searchTexts(job uint32, r *record) (found, over bool) {
	sh, t := w.sh, &w.text
	_, workload := unpack(sh.arena.view(r.bytes, int(r.size)))
	parts := [2][]byte{workload, sh.result(job)}
	begin := textSearch{ref: sh.ref(job, r), versions: [2]uint64{sh.arena.version(r.bytes), 0}}
	if result, ok := sh.results[job]; ok {
		begin.versions[1] = sh.arena.version(result.bytes)
	}
	if t.ref != begin.ref || t.versions != begin.versions {
		*t = begin
	}
	history := sh.attemptsOf(job, r)
	budget := maxSearched
	for found = true; found && t.text < len(w.match.Texts); t.text, t.part, t.at = t.text+1, 0, 0 {
		text := []byte(w.match.Texts[t.text])
		found = false
		for i := range history {
			found = found || strings.Contains(cmp.Or(history[i].Text, history[i].Cause()), w.match.Texts[t.text])
		}
		for ; !found && t.part < len(parts); t.part, t.at = t.part+1, 0 {
			part := parts[t.part][t.at:]
			piece := part[:min(len(part), maxSearched)]
			if budget < len(piece) {
				return false, false
			}
			budget -= len(piece)
			sh.countSteps(len(piece) >> costShift)
			if found = bytes.Contains(piece, text); !found && len(piece) < len(part) {
				t.at += len(piece) - len(text) + 1
				return false, false
			}
		}
	}
	*t = textSearch{}
	return found, true
}
