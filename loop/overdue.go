package loop

import (
	"sync"
	"time"

	"treadle/loop/protocol"
	"treadle/sched"
)

// overdue has the first job that exceeded its time-out since the last log line about such jobs. Only the log shows such
// jobs, which may run for ever.
type overdue struct {
	throttle throttle

	mu             sync.Mutex // taken under a shard's lock
	jobs           int
	function, name string
	timeout        int32 // seconds; 0: the default
	holder         sched.SessionID
	worker         string // when the holder has no session
}

// add counts a job that exceeded its time-out. The scheduler calls it.
func (o *overdue) add(j *sched.Job, holder sched.SessionID, worker string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.jobs++; o.jobs == 1 {
		o.function, o.name, o.timeout, o.holder, o.worker = functionText(j.Queue), truncated(string(j.Name)), j.Timeout, holder, worker
	}
}

// logOverdue logs the jobs counted since the last line, at most once a second.
func (s *Server) logOverdue() {
	o := &s.overdue
	o.mu.Lock()
	jobs, function, name, timeout, holder, worker := o.jobs, o.function, o.name, o.timeout, o.holder, o.worker
	if jobs == 0 || !o.throttle.allow(s.now().Mono) {
		o.mu.Unlock()
		return
	}
	o.jobs = 0
	o.mu.Unlock()
	if worker != "" {
		s.log.Warn("a lease has expired and its job is handed out again; a report under it will not count: reserve with a longer lease, or extend it",
			"function", function, "job", name, "worker", worker, "others", jobs-1)
		return
	}
	if timeout <= 0 {
		timeout = int32(s.sched.Timeout() / 1000)
	}
	r := s.reactors[loopOf(holder)].Load()
	r.exec(func() {
		worker := "gone"
		if session := r.sessions.get(holder); session != nil {
			worker = session.Remote()
		}
		s.log.Warn("a job has run for longer than its time-out and is handed out again; its result will not count: give it more time with submit --timeout or config set timeout",
			"function", function, "job", name, "worker", worker, "timeout", time.Duration(timeout)*time.Second, "others", jobs-1)
	})
}

// LogLate implements protocol.Transport.
func (s *session) LogLate(report string, names func() (queue, name string)) {
	server := s.r.server
	if server.lateReports.allow(s.r.Now.Mono) {
		queue, name := names()
		server.log.Warn("a worker's report does not count, since it does not hold the job: its time-out has passed, or it was removed",
			"function", functionText(queue), "job", truncated(name), "worker", s.Remote(), "report", report)
	}
}

// maxNameShown bounds a name in the log: a Gloom name may have megabytes.
const maxNameShown = 255

func truncated(name string) string { return name[:min(len(name), maxNameShown)] }

// functionText returns a queue's function for the log.
func functionText(queue string) string {
	if name, ok := protocol.Function(queue); ok {
		queue = string(name)
	}
	return truncated(queue)
}
