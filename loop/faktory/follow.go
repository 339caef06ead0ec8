package faktory

import (
	"bytes"

	codec "treadle/codec/faktory"
	"treadle/sched"
)

// traits is Rules.Traits: the server is told of jobs that are unique or tracked.
func traits(workload []byte) sched.Traits {
	c := codec.StoredCustom(workload)
	return sched.Traits{Expires: c.ExpiresAt != 0, Hooked: c.Tracked || c.UniqueFor != 0}
}

// expiry is Rules.Expiry.
func expiry(workload []byte) int64 { return codec.StoredCustom(workload).ExpiresAt }

// JobChanged implements protocol.JobHook.
func (p *Protocol) JobChanged(j *sched.Job, e sched.Effect) {
	p.unique.update(j, e)
	if codec.StoredCustom(j.Workload).Tracked {
		p.tracks.update(jidOf(j.Name), e, p.host.Now())
	}
}

// JobRestored implements protocol.JobHook: a job of the journal takes its lock again.
func (p *Protocol) JobRestored(j *sched.Job, started bool) {
	c := codec.StoredCustom(j.Workload)
	if c.UniqueFor == 0 || c.UntilStart && started {
		return
	}
	var job codec.Job
	if codec.ParseJob(j.Workload, nil, &job) != nil {
		return // none that was pushed
	}
	base := pushedAt(j.Workload)
	if base == 0 { // it was scheduled; j.SchedAt may be that of a retry
		base = job.At
	}
	if l := lockOf(&job, []byte(j.Queue), j.Name, base); l.expiry > p.host.Now().Wall {
		_ = p.unique.take(l, p.host.Now().Wall) // another job may hold it after the first one's time had passed
	}
}

// jidOf returns the jid of a job's name.
func jidOf(name []byte) string {
	jid, _, _ := bytes.Cut(name, []byte{0})
	return string(jid)
}
