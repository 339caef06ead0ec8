package periodic

import (
	"errors"
	"slices"
	"sync/atomic"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// serverReasons has the server's reason for each of the codec's; 0: the reason is Periodic's alone.
var serverReasons = [codec.Reasons]protocol.Reason{
	codec.ReasonDisk:      protocol.ReasonDisk,
	codec.ReasonRoom:      protocol.ReasonRoom,
	codec.ReasonFunctions: protocol.ReasonFunctions,
	codec.ReasonWaiters:   protocol.ReasonWaiters,
	codec.ReasonMemory:    protocol.ReasonMemory,
	codec.ReasonReports:   protocol.ReasonReports,
	codec.ReasonLocks:     protocol.ReasonLocks,
	codec.ReasonWorker:    protocol.ReasonWorker,
	codec.ReasonSize:      protocol.ReasonSize,
	codec.ReasonSetting:   protocol.ReasonSetting,
	codec.ReasonPolicy:    protocol.ReasonPolicy,
	codec.ReasonMaxMemory: protocol.ReasonMaxMemory,
	codec.ReasonPaused:    protocol.ReasonPolicy,
	codec.ReasonPayload:   protocol.ReasonPolicy,
	codec.ReasonMaxJobs:   protocol.ReasonPolicy,
	codec.ReasonMaxBytes:  protocol.ReasonPolicy,
}

// reasonOf returns the codec's reason of a scheduler error.
func reasonOf(err error) codec.Reason {
	switch {
	case errors.Is(err, sched.ErrPaused):
		return codec.ReasonPaused
	case errors.Is(err, sched.ErrPayload):
		return codec.ReasonPayload
	case errors.Is(err, sched.ErrMaxJobs):
		return codec.ReasonMaxJobs
	case errors.Is(err, sched.ErrMaxBytes):
		return codec.ReasonMaxBytes
	}
	return codec.Reason(slices.Index(serverReasons[:], protocol.ReasonOf(err)))
}

// outcomes holds results of a connection's last requests that the protocol's replies omit.
type outcomes struct {
	refused    codec.Reason // of the last UNKNOWN
	removed    bool         // the last REMOVE_JOB or DROP_FUNC removed something
	failed     uint32       // the last RUN_JOB that ended with a failure
	jobRemoved uint32       // the last RUN_JOB that ended because its job was removed
	loaded     uint32       // jobs that the last LOAD submitted
}

// omittedCounts counts the things that a DUMP omits. It is written off the event loop.
type omittedCounts struct{ tasks, jobs, projects, settings atomic.Uint32 }

func (l *omittedCounts) set(tasks, jobs, projects, settings uint32) {
	l.tasks.Store(tasks)
	l.jobs.Store(jobs)
	l.projects.Store(projects)
	l.settings.Store(settings)
}

// infoKey returns the value of a CONFIG key that is not a setting. It returns false for other keys.
func (c *conversation) infoKey(key string) (uint32, bool) {
	switch key {
	case codec.KeyTreadle:
		return 1, true
	case codec.KeyRefusing:
		if err := c.p.host.CheckCapacity(); err != nil {
			return uint32(reasonOf(err)), true
		}
		return 0, true
	case codec.KeyMaxFrame:
		return uint32(c.p.limits.MaxFrame), true
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
		return c.last.jobRemoved, true
	case codec.KeyLoaded:
		return c.last.loaded, true
	}
	return c.omittedKey(key)
}

// omittedKey is infoKey for the keys about the last DUMP.
func (c *conversation) omittedKey(key string) (uint32, bool) {
	left := &c.omitted
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
