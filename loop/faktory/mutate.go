package faktory

import (
	"bytes"
	"slices"

	codec "treadle/codec/faktory"
	"treadle/loop/protocol"
	"treadle/sched"
)

// selection says which of Faktory's jobs a command is about. The zero selection has all.
type selection struct {
	queue   string // empty: all
	states  sched.StateSet
	retries int // of delayed jobs: 1 those that have failed, -1 the others, 0 all
	filter  *codec.Filter
}

// Bounds in bytes of a pattern, and of the beginning of a job that it is compared with: that takes time in proportion
// to both, 0.1 seconds at most.
const (
	maxPattern = 256
	maxMatched = 64 << 10
)

// flush handles a FLUSH.
func (p *Protocol) flush(_ []byte, sink protocol.Sink) []byte {
	p.change(&selection{}, &sched.JobChange{Verb: sched.RemoveJobs}, sink)
	return replyOK
}

// mutate handles a MUTATE.
func (p *Protocol) mutate(text []byte, sink protocol.Sink) []byte {
	m, err := codec.Parse[codec.Mutation](text)
	if err != nil {
		return p.errorReply("MUTATE needs a JSON object with cmd and target")
	}
	what := &selection{filter: m.Filter}
	switch m.Target {
	case "scheduled":
		what.states, what.retries = sched.StatesOf(sched.JobDelayed), -1
	case "retries":
		what.states, what.retries = sched.StatesOf(sched.JobDelayed), 1
	case "dead":
		what.states = sched.StatesOf(sched.JobFailed)
	default:
		return p.errorReply("the target of MUTATE is scheduled, retries or dead")
	}
	if f := m.Filter; f != nil && len(f.Pattern) > maxPattern {
		return p.errorReply("the regexp of MUTATE is too long")
	}
	change := &sched.JobChange{Verb: sched.RemoveJobs}
	switch m.Verb {
	case "clear":
		what.filter = nil
	case "discard":
	case "requeue":
		change.Verb = sched.RunJobs
	case "kill":
		if m.Target == "dead" {
			return replyOK
		}
		change.Verb = sched.GiveUpJobs
	default:
		return p.errorReply("the cmd of MUTATE is clear, kill, discard or requeue")
	}
	p.change(what, change, sink)
	return replyOK
}

// changeBatch bounds the jobs that are collected before they are changed, and changeBytes the bytes of their workloads.
const (
	changeBatch = 1000
	changeBytes = 4 << 20
)

// change changes the jobs of a selection, a part at a time. Jobs that come meanwhile may be among them or not.
func (p *Protocol) change(what *selection, change *sched.JobChange, sink protocol.Sink) {
	now := p.host.Now()
	m := &sched.Match{Spaces: 1 << Space, States: what.states}
	l, _ := sched.NewListing(m, protocol.Queue([]byte(what.queue)), what.queue == "", "") // it has no cursor that could be wrong
	var refs []sched.JobRef
	var found []candidate
	for done := false; !done; {
		refs, found = refs[:0], found[:0]
		size := 0
		done = p.sched.List(now, l, sched.WalkBatch, func(v *sched.JobView) (more bool) {
			if what.retries != 0 && v.State == sched.JobDelayed && (what.retries > 0) != hasFailed(v.History) {
				return true
			}
			refs = append(refs, v.Ref)
			if what.filter != nil { // compared without the lock
				found = append(found, candidate{bytes.Clone(v.Workload), bytes.Clone(v.History), v.Due, v.Count})
				size += len(v.Workload) + len(v.History)
			}
			return len(refs) < changeBatch && size < changeBytes
		})
		if what.filter != nil {
			kept := refs[:0]
			for n := range found {
				if matchesFilter(what.filter, &found[n]) {
					kept = append(kept, refs[n])
				}
			}
			refs = kept
		}
		p.sched.ChangeJobs(p.host.Now(), refs, change, sink, func(int, error) {}) // other clients have changed the jobs that stay
		sink.Wake()
		p.host.FlushLater()
	}
}

// hasFailed reports whether a history has a failure.
func hasFailed(history []byte) bool {
	_, all := sched.ParseHistory(history)
	return slices.ContainsFunc(all, func(a sched.Attempt) bool { return a.Failed() })
}

// candidate is a job that may match a filter.
type candidate struct {
	workload, history []byte
	due               int64
	count             int32
}

// matchesFilter reports whether a job matches a filter. A pattern is for what the next worker would see, with the last
// failure.
func matchesFilter(f *codec.Filter, found *candidate) bool {
	if len(f.JIDs) > 0 || f.Type != "" {
		var j codec.Job
		switch {
		case codec.ParseJob(found.workload, nil, &j) != nil:
			return false
		case len(f.JIDs) > 0:
			return slices.Contains(f.JIDs, string(j.JID))
		case string(j.Type) != f.Type:
			return false
		}
	}
	if f.Pattern == "" {
		return true
	}
	var failure []byte
	if found.history != nil {
		failure = lastFailure(&sched.Job{Due: found.due, Count: found.count}, found.history)
	}
	text := codec.AppendFetched(nil, found.workload, failure, "")
	return codec.Matches(f.Pattern, text[:min(len(text), maxMatched)])
}
