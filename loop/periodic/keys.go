package periodic

import (
	"sync/atomic"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
)

// reasonOf is the codec's number of why the scheduler refuses.
func reasonOf(err error) codec.Reason { return codec.Reason(protocol.ReasonOf(err)) }

// outcomes are of a connection's last requests; the protocol's replies do not tell them.
type outcomes struct {
	refused codec.Reason // of its last UNKNOWN
	removed bool         // its last REMOVE_JOB or DROP_FUNC removed something
	failed  uint32       // the RUN_JOB that last ended with a failure
	gone    uint32       // or because its job was removed
	loaded  uint32       // jobs that its last LOAD has put in
}

// leftOut counts what a DUMP cannot hold. It is written beside the event loop.
type leftOut struct{ tasks, jobs, projects, settings atomic.Uint32 }

func (l *leftOut) set(tasks, jobs, projects, settings uint32) {
	l.tasks.Store(tasks)
	l.jobs.Store(jobs)
	l.projects.Store(projects)
	l.settings.Store(settings)
}

// ownKey answers a CONFIG_GET of a key that is no setting; false: it may be one.
func (c *conversation) ownKey(key string) (uint32, bool) {
	switch key {
	case codec.KeyTreadle:
		return 1, true
	case codec.KeyRefusing:
		if c.p.host.Full() {
			return uint32(codec.ReasonDisk), true
		}
		return 0, true
	case codec.KeyMaxFrame:
		return uint32(c.p.o.MaxFrame), true
	case codec.KeyRefused:
		return uint32(c.last.refused), true
	case codec.KeyRemoved:
		if c.last.removed {
			return 1, true
		}
		return 0, true
	case codec.KeyFailed:
		return c.last.failed, true
	case codec.KeyGone:
		return c.last.gone, true
	case codec.KeyLoaded:
		return c.last.loaded, true
	}
	return c.leftOut(key)
}

// leftOut is ownKey for what the last DUMP has left out.
func (c *conversation) leftOut(key string) (uint32, bool) {
	left := &c.left
	switch key {
	case codec.KeyLeftTasks:
		return left.tasks.Load(), true
	case codec.KeyLeftJobs:
		return left.jobs.Load(), true
	case codec.KeyLeftProjects:
		return left.projects.Load(), true
	case codec.KeyLeftSettings:
		return left.settings.Load(), true
	}
	return 0, false
}
