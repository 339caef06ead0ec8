package periodic

// Keys that CONFIG_GET of a Treadle server answers beside the settings of the protocol. Another server answers 0 to a
// key that it does not know, which means "no" or "not known" for each of these. CONFIG_SET changes none of them.
const (
	// KeyTreadle is answered with 1 by a server that knows these keys.
	KeyTreadle = "treadle"
	// KeyRefusing is answered with the Reason for which new jobs are refused at present, 0 while they are taken.
	KeyRefusing = "refusing"
	// KeyMaxFrame is the largest request in bytes.
	KeyMaxFrame = "max-frame"
	// KeyRefused is the Reason of the last UNKNOWN that this connection was answered with.
	KeyRefused = "treadle.refused"
	// KeyRemoved is 1 when this connection's last REMOVE_JOB or DROP_FUNC removed something.
	KeyRemoved = "treadle.removed"
	// KeyFailed and KeyGone are the message ids of this connection's last RUN_JOB that ended because its job failed,
	// or was removed: the reply alone may be a worker's result.
	KeyFailed = "treadle.failed"
	KeyGone   = "treadle.gone"
	// KeyLoaded is how many jobs this connection's last LOAD has put in.
	KeyLoaded = "treadle.loaded"
	// KeyStatus is answered with a text, not a number: STATUS with two more columns, for delayed jobs and for those
	// that wait for others, before the last. A number of four bytes is another server's answer.
	KeyStatus = "treadle.status"
	// KeyLeftTasks, KeyLeftJobs, KeyLeftProjects and KeyLeftSettings are what this connection's last DUMP has left
	// out: tasks of dwork and kts46, jobs of Gloom and Disbatch, projects of kts46 and changed settings.
	KeyLeftTasks    = "treadle.left.tasks"
	KeyLeftJobs     = "treadle.left.jobs"
	KeyLeftProjects = "treadle.left.projects"
	KeyLeftSettings = "treadle.left.settings"
)

// Reason says why a request was answered UNKNOWN.
type Reason uint8

// The reasons. The numbers are on the wire and keep their meaning; 0 is none, or not known.
const (
	ReasonDisk      Reason = iota + 1 // the disk of the journal has less free than --min-free
	ReasonRoom                        // a LOAD is larger than what the disk may still take
	ReasonFunctions                   // there are as many functions as there may be
	ReasonWaiters                     // as many sessions wait for the job as may
	ReasonMemory                      // jobs, or what all sessions ask for together, take as much memory as they may
	ReasonReports                     // as many DUMPs and long STATUSes are under way as may
	ReasonLocks                       // there are as many named locks as there may be
	ReasonWorker                      // the worker serves as many functions, or asks for as many jobs, as it may
	ReasonSize                        // a job of a LOAD is larger than --max-frame
	ReasonSetting                     // a setting of the server forbids it
	ReasonMalformed                   // its arguments are cut, or make no sense
	ReasonRole                        // the server does not know the command, or this peer may not send it
	ReasonPolicy                      // the policy of the queue refuses the job
	Reasons                           // one more than the last
)

var reasonLabels = [Reasons]string{
	"none", "disk", "room", "functions", "waiters", "memory", "reports", "locks", "worker", "size", "setting", "malformed", "role", "policy",
}

// String returns a word for logs and metrics, "none" for a number that is no reason.
func (r Reason) String() string {
	if r >= Reasons {
		r = 0
	}
	return reasonLabels[r]
}
