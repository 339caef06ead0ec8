package loop

import (
	"errors"
	"sync/atomic"

	"treadle/codec/periodic"
	"treadle/sched"
)

// outcomes are of a connection's last requests; the protocol's replies do not tell them.
type outcomes struct {
	refused periodic.Reason // of its last UNKNOWN
	removed bool            // its last REMOVE_JOB or DROP_FUNC removed something
	failed  uint32          // the RUN_JOB that last ended with a failure
	gone    uint32          // or because its job was removed
	loaded  uint32          // jobs that its last LOAD has put in
}

// leftOut counts what a DUMP cannot hold. It is written beside the event loop.
type leftOut struct{ tasks, jobs, projects, settings atomic.Uint32 }

func (l *leftOut) set(tasks, jobs uint32, s *Server) {
	l.tasks.Store(tasks)
	l.jobs.Store(jobs)
	l.projects.Store(uint32(s.kts46.projectCount()))
	l.settings.Store(s.config.changed())
}

// ownKey answers a CONFIG_GET of a key that is no setting; false: it may be one.
func (p *periodicTalk) ownKey(key string) (uint32, bool) {
	server := p.s.r.server
	switch key {
	case periodic.KeyTreadle:
		return 1, true
	case periodic.KeyRefusing:
		return uint32(server.refusing()), true
	case periodic.KeyMaxFrame:
		return uint32(server.o.MaxFrame), true
	case periodic.KeyRefused:
		return uint32(p.last.refused), true
	case periodic.KeyRemoved:
		if p.last.removed {
			return 1, true
		}
		return 0, true
	case periodic.KeyFailed:
		return p.last.failed, true
	case periodic.KeyGone:
		return p.last.gone, true
	case periodic.KeyLoaded:
		return p.last.loaded, true
	}
	return p.leftOut(key)
}

// leftOut is ownKey for what the last DUMP has left out.
func (p *periodicTalk) leftOut(key string) (uint32, bool) {
	left := &leftOut{}
	if p.reports != nil {
		left = &p.reports.left
	}
	switch key {
	case periodic.KeyLeftTasks:
		return left.tasks.Load(), true
	case periodic.KeyLeftJobs:
		return left.jobs.Load(), true
	case periodic.KeyLeftProjects:
		return left.projects.Load(), true
	case periodic.KeyLeftSettings:
		return left.settings.Load(), true
	}
	return 0, false
}

// refusing is why no new job is taken in at present, whatever it is; 0: new jobs are.
func (s *Server) refusing() periodic.Reason {
	if s.full() {
		return periodic.ReasonDisk
	}
	return 0
}

// reasonOf is the word for a limit of the scheduler.
func reasonOf(err error) periodic.Reason {
	switch {
	case errors.Is(err, sched.ErrQueues):
		return periodic.ReasonFunctions
	case errors.Is(err, sched.ErrAwaits):
		return periodic.ReasonWaiters
	case errors.Is(err, sched.ErrLocks), errors.Is(err, sched.ErrJobLocks):
		return periodic.ReasonLocks
	case errors.Is(err, sched.ErrSlots), errors.Is(err, sched.ErrWatches):
		return periodic.ReasonWorker
	}
	return periodic.ReasonMemory // for more jobs, or for more of all sessions together
}
