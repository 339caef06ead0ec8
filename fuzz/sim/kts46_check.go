//go:build invariants

package sim

import (
	"fmt"
	"strings"
)

// kts46Shown is what the server shows of its projects, jobs and tasks.
type kts46Shown struct {
	list, tasks string
	revisions   [4]int64 // by worker; 0: the worker holds no task
}

// agrees reports whether the server shows what the model has, apart from revisions that are not known yet.
func (m *Kts46Model) agrees(v *kts46Shown) bool {
	for w, revision := range v.revisions {
		_, t, _ := m.held(w)
		if t == nil != (revision == 0) || t != nil && t.revision != 0 && t.revision != revision {
			return false
		}
	}
	return m.list() == v.list && m.tasks() == v.tasks
}

// kts46Settled compares the server with the model after a call, and notes new revisions, which are 0 in the model.
func (s *Simulator) kts46Settled(after string) {
	v := s.kts46Look()
	if !s.ledger.kts.agrees(v) {
		s.trace.Failf("after %s: got\n%s%s%v, want\n%s%s", after, v.list, v.tasks, v.revisions, s.ledger.kts.list(), s.ledger.kts.tasks())
	}
	for w, revision := range v.revisions {
		_, t, _ := s.ledger.kts.held(w)
		if t == nil || t.revision != 0 {
			continue
		}
		if revision <= s.ledger.kts.tops[w] || revision <= t.before {
			s.trace.Failf("after %s the revision of w%d's task is %d, its own were up to %d, the task's up to %d", after, w, revision, s.ledger.kts.tops[w], t.before)
		}
		t.revision, s.ledger.kts.tops[w] = revision, revision
	}
}

// kts46Crashed finds out which model the server has recovered: the one on disk, or the one that was about to be
// written. Each acknowledged change must be in it.
func (s *Simulator) kts46Crashed() {
	v, now, disk := s.kts46Look(), s.ledger.kts, s.ledger.kts46Saved.disk
	newer, older := now.agrees(v), disk.agrees(v) && disk.changes >= s.ledger.kts46Saved.acked
	switch {
	case older:
		s.ledger.kts = disk
	case !newer:
		s.trace.Failf("after the crash the server shows\n%s%s%v, had on disk\n%s%sand was about to have\n%s%sof which change %d of %d was acknowledged",
			v.list, v.tasks, v.revisions, disk.list(), disk.tasks(), now.list(), now.tasks(), s.ledger.kts46Saved.acked, now.changes)
	}
	for _, j := range s.ledger.kts.jobs {
		for k := range j.tasks {
			t := &j.tasks[k]
			if !t.there {
				continue
			}
			t.place, t.seen = t.made, s.server.Now().Mono // the line is in the order of their making
			if newer && older {
				t.place = 0 // the order in line is not known
			}
		}
	}
	s.ledger.kts.back, s.ledger.kts.front, s.ledger.kts.changes = now.made, 0, now.changes
	if newer && older {
		s.kts46IDs(disk, now)
	}
	s.ledger.kts46Saved.disk = s.ledger.kts.clone()
}

// kts46Expired notes the workers that have lost their tasks while time passed.
func (l *Ledger) kts46Expired() {
	if l.setup.kts46RestartAfter == 0 {
		return
	}
	place := l.kts.back + 1 // the same for all: which was first is by chance
	for w := range l.kts.tops {
		if j, t, _ := l.kts.held(w); t != nil && l.clock().Mono-t.seen >= l.setup.kts46RestartAfter.Milliseconds() {
			l.kts.requeue(j, t, false)
			t.place = place
			l.kts.changes++
			l.trace.Logf("w%d is silent", w)
		}
	}
}

// kts46Query asks for something, and changes nothing.
func (s *Simulator) kts46Query(project, job string) {
	switch s.rng.IntN(5) {
	case 0:
		s.kts46Ask(&kts46Call{method: "projectExists", args: []any{project}})
	case 1:
		s.kts46Ask(&kts46Call{method: "jobExists", args: []any{project, job}})
	case 2:
		s.kts46Ask(&kts46Call{method: "getJobsList", args: []any{project}})
	case 3:
		s.kts46Ask(&kts46Call{method: "getJobStatus", args: []any{project, job}})
	default:
		s.kts46Ask(&kts46Call{method: "getCurrentTasks", args: []any{}, v2: true})
	}
}

// kts46Queried notes such a call.
func (l *Ledger) kts46Queried(call *kts46Call) {
	if call.method == "getCurrentTasks" {
		var all []string
		for w := range l.kts.tops {
			if _, t, _ := l.kts.held(w); t != nil {
				all = append(all, fmt.Sprintf(`{"id":"w%d","sig":"%s"}`, w, kts46StampOf(t.revision, true).text))
			}
		}
		call.want = "[" + strings.Join(all, ",") + "]"
		return
	}
	project := fmt.Sprint(call.args[0])
	var names []string
	for _, j := range l.kts.sorted() {
		if j.project == project {
			names = append(names, j.name)
		}
	}
	_, there := l.kts.projects[project]
	switch {
	case call.method == "projectExists":
		call.want = fmt.Sprint(there)
		return
	case !there:
		call.want = kts46Refused
		return
	case call.method == "getJobsList":
		call.want = fmt.Sprint(names)
		return
	}
	j := l.kts.jobs[fmt.Sprintf("%s/%v", project, call.args[1])]
	switch {
	case call.method == "jobExists":
		call.want = fmt.Sprint(j != nil)
	case j == nil:
		call.want = kts46Refused
	default:
		part := 1.0
		if j.total > 0 {
			part = min(float64(j.done)/float64(j.total), 1)
		}
		call.want = fmt.Sprintf("%s.%s: %.4g (%d/%d).", project, j.name, part, j.done, j.total)
	}
}
