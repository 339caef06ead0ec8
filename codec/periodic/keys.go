package periodic

// Keys that CONFIG_GET of a Treadle server answers beside the settings of the protocol. Other servers answer 0 to
// unknown keys, which means "no" or "not known" for each of these. CONFIG_SET changes none of them.
const (
	// KeyTreadle is answered with 1 by a server that knows these keys.
	KeyTreadle = "treadle"
	// KeyRefusing is the Reason for which new jobs are refused at present; 0: they are accepted.
	KeyRefusing = "refusing"
	// KeyMaxFrame is the largest request in bytes.
	KeyMaxFrame = "max-frame"
	// KeyRefused is the Reason of this connection's last UNKNOWN.
	KeyRefused = "treadle.refused"
	// KeyRemoved is 1 when this connection's last REMOVE_JOB or DROP_FUNC removed something.
	KeyRemoved = "treadle.removed"
	// KeyFailed and KeyGone are the message ids of this connection's last RUN_JOB whose job failed, and whose job was
	// removed. The replies to these look like a worker's result.
	KeyFailed = "treadle.failed"
	KeyGone   = "treadle.gone"
	// KeyLoaded is how many jobs this connection's last LOAD submitted.
	KeyLoaded = "treadle.loaded"
	// KeyStatus is answered with a text, not a number. It is STATUS with two more columns before the last: delayed
	// jobs, and jobs that wait for others. Other servers answer with a number of four bytes.
	KeyStatus = "treadle.status"
	// KeyFailedStatus is answered as KeyStatus, with one more column before the last, for failed jobs.
	KeyFailedStatus = "treadle.status.failed"
	// KeyLeftTasks, KeyLeftJobs, KeyLeftProjects and KeyLeftSettings are what this connection's last DUMP has left out:
	// tasks of dwork and kts46, jobs of Gloom and Disbatch, projects of kts46 and changed settings.
	KeyLeftTasks    = "treadle.left.tasks"
	KeyLeftJobs     = "treadle.left.jobs"
	KeyLeftProjects = "treadle.left.projects"
	KeyLeftSettings = "treadle.left.settings"
)

// Reason says why a request was answered UNKNOWN.
type Reason uint8

// The reasons. The numbers are on the wire and keep their meaning; 0 is an unknown reason, or no reason.
const (
	ReasonDisk      Reason = iota + 1 // the journal's disk has less free space than --min-free
	ReasonRoom                        // the disk has no room for a LOAD of this size
	ReasonFunctions                   // too many functions
	ReasonWaiters                     // too many sessions wait for the job
	ReasonMemory                      // jobs or outstanding requests take too much memory
	ReasonReports                     // too many DUMPs and long STATUSes are under way
	ReasonLocks                       // too many named locks
	ReasonWorker                      // the worker serves too many functions or asks for too many jobs
	ReasonSize                        // a job of a LOAD is larger than --max-frame
	ReasonSetting                     // a setting of the server forbids the request
	ReasonMalformed                   // the arguments are truncated or malformed
	ReasonRole                        // the server does not know the command, or this peer may not send it
	ReasonPolicy                      // the policy of the queue refuses the job, and the server does not say by which of the reasons below
	ReasonMaxMemory                   // the server holds as much as --max-memory
	ReasonPaused                      // the queue is paused for submits
	ReasonPayload                     // the workload is larger than the queue's max-payload
	ReasonMaxJobs                     // the queue has max-jobs pending jobs
	ReasonMaxBytes                    // the queue would have more than max-bytes
	Reasons                           // one more than the last
)

var reasonLabels = [Reasons]string{
	"none", "disk", "room", "functions", "waiters", "memory", "reports", "locks", "worker", "size", "setting", "malformed", "role", "policy", "max-memory",
	"paused", "max-payload", "max-jobs", "max-bytes",
}

// String returns a word for logs and metrics, "none" for a number that is no reason.
func (r Reason) String() string {
	if r >= Reasons {
		r = 0
	}
	return reasonLabels[r]
}
