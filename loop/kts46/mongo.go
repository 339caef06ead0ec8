package kts46

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/kts46/store"
	"treadle/loop/protocol"
)

// With a MongoDB, the site's projects, jobs and progress are in that database, where the original workers and web
// interface read and write them. The registry has the jobs that were run; the queues and the holders of tasks are in
// Treadle as usual. A call that needs both first asks MongoDB, on the goroutine of its connection, and then takes a
// turn with the answer. No turn waits for MongoDB.

// mongoSite is a site's MongoDB.
type mongoSite struct {
	p        *Protocol
	store    *store.Store
	ctx      context.Context // ends with the server
	end      context.CancelFunc
	changing sync.Mutex // serialises changes of projects and definitions
	failures atomic.Uint64

	mu        sync.Mutex
	away      time.Time // moment at which a failure was last logged; zero: MongoDB works
	connected bool      // MongoDB has answered a call
}

// logEvery is the time between log lines about a failing MongoDB.
const logEvery = 10 * time.Second

// mongoError reports that MongoDB failed a call.
type mongoError struct{ err error }

func (e *mongoError) Error() string {
	return "the call needs MongoDB, which has failed; repeat it when the server of --kts46-mongodb works: " + e.err.Error()
}

func (e *mongoError) Unwrap() error { return e.err }

// newSite opens the MongoDB of a validated URI. It returns nil for an empty one.
func newSite(p *Protocol, uri string) (*mongoSite, error) {
	if uri == "" {
		return nil, nil
	}
	s, err := store.Open(uri)
	if err != nil {
		return nil, &protocol.OptionError{Setting: settingMongoDB, Err: err}
	}
	site := &mongoSite{p: p, store: s}
	site.ctx, site.end = context.WithCancel(context.Background())
	return site, nil
}

// close ends all calls that wait for MongoDB.
func (s *mongoSite) close() {
	if s != nil {
		s.end()
		s.store.Close()
	}
}

// connect waits for the first answer of MongoDB and logs it. It stops the server when MongoDB can never be used with
// these settings.
func (s *mongoSite) connect() {
	ticker := time.NewTicker(logEvery / 2)
	defer ticker.Stop()
	for {
		projects, err := s.store.Projects(s.ctx)
		if why := s.permanentError(err); why != nil {
			s.p.host.Fail(why)
			return
		}
		if s.outcome("", "", err) == nil {
			s.p.host.Log().Info("kts46 projects are in MongoDB", "projects", len(projects))
			return
		}
		select {
		case <-s.p.done:
			return
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// permanentError returns a *protocol.OptionError for an error that waiting does not solve, or nil. It returns nil after
// MongoDB has answered a call: a running server outlives a changed password.
func (s *mongoSite) permanentError(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := store.PermanentError(err)
	if why == nil || s.connected || s.ctx.Err() != nil {
		return nil
	}
	return &protocol.OptionError{Setting: settingMongoDB, Err: why}
}

// outcome records the result of a call about a project or job. It translates the store's errors to those of the
// registry.
func (s *mongoSite) outcome(project, job string, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, store.ErrNoProject):
		err = &missingError{project: project}
	case errors.Is(err, store.ErrNoJob):
		err = &missingError{project: project, job: job}
	case errors.Is(err, store.ErrTaken):
		err = &takenError{project, job}
	case errors.Is(err, store.ErrMany):
		err = errJobs
	case errors.As(err, new(*store.DataError)):
	case s.ctx.Err() != nil:
		return errStopping
	default:
		s.failed(err)
		return &mongoError{err}
	}
	s.mu.Lock()
	back := !s.away.IsZero()
	s.away, s.connected = time.Time{}, true
	s.mu.Unlock()
	if back {
		s.p.host.Log().Info("kts46: MongoDB works again")
	}
	return err
}

// failed counts a failure of MongoDB and logs it, at most once per logEvery.
func (s *mongoSite) failed(err error) {
	s.failures.Add(1)
	s.mu.Lock()
	now := time.Now()
	say := now.Sub(s.away) >= logEvery
	if say {
		s.away = now
	}
	s.mu.Unlock()
	if say {
		s.p.host.Log().Warn("kts46: MongoDB has failed; calls that need it are refused until it works again", "error", err.Error())
	}
}

// job reads a job. If MongoDB does not have it, the registry drops it.
func (s *mongoSite) job(project, name string) (*store.Job, error) {
	d, err := s.store.Job(s.ctx, project, name)
	if err = s.outcome(project, name, err); errors.As(err, new(*missingError)) {
		return nil, errors.Join(err, s.p.update(func() error { return s.p.missing(project, name) }))
	}
	return d, err
}

// missing removes the tasks of a job that MongoDB does not have. A job that came from MongoDB is removed too; another
// keeps its definition.
func (p *Protocol) missing(project, name string) error {
	found := p.projects[project]
	if found == nil || found.jobs[name] == nil {
		return nil
	}
	if j := found.jobs[name]; j.progress.Mirrored {
		p.discard(j)
	} else {
		p.abort(j)
	}
	return nil
}

// numbersOf returns the numbers of a job in MongoDB.
func numbersOf(d *store.Job) (batchParams, error) {
	n, err := newBatchParams(d.Duration, d.Step, d.Batch)
	n.total = d.Total
	return n, err
}

// mirror copies a job from MongoDB to the registry.
func (p *Protocol) mirror(project string, d *store.Job) (*job, error) {
	numbers, err := numbersOf(d)
	if err != nil {
		return nil, fmt.Errorf("the job %s in the database %s: %w", d.Name, project, err)
	}
	known := p.projects[project]
	if known == nil {
		if err := p.createProject(project); err != nil {
			return nil, err
		}
		known = p.projects[project]
	}
	j := known.jobs[d.Name]
	if j == nil {
		if err := checkName("job", d.Name); err != nil {
			return nil, err
		}
		if err := p.checkRoom(); err != nil {
			return nil, err
		}
		j = &job{project: known, name: d.Name}
		known.jobs[d.Name] = j
		p.entries++
	}
	if j.batchParams != numbers {
		p.setDefinition(j, numbers, numbers.definition())
	}
	if !j.progress.Mirrored {
		j.progress.Mirrored = true
		p.saveProgress(j)
	}
	return j, nil
}

// setDefinition journals a new definition of a job.
func (p *Protocol) setDefinition(j *job, numbers batchParams, definition []byte) {
	j.batchParams = numbers
	p.saveDefinition(j, definition)
}

// definition is the journal's stand-in for a definition that only MongoDB has.
func (n *batchParams) definition() []byte {
	return fmt.Appendf(nil, "simulationParameters: {duration: %v, stepDuration: %v, batchLength: %d}\n", n.duration, n.step, n.batch)
}

// missingKinds returns the kinds of statistics that a job in MongoDB lacks.
func missingKinds(d *store.Job) (left kindSet) {
	for k, done := range map[kind]bool{statistics: d.Basic, basicStatistics: d.Basic, idleTimes: d.Idle, throughput: d.Throughput} {
		if !done {
			left |= 1 << k
		}
	}
	return left
}

// runMirrored runs a job with the state d of MongoDB: it does not repeat what workers have recorded there.
func (p *Protocol) runMirrored(j *job, d *store.Job, left kindSet) error {
	if j.progress.Running {
		return errDuplicate
	}
	left &= missingKinds(d)
	if left&v2End != 0 && d.Full {
		left = 0
	}
	j.progress.Done, j.progress.Left = d.Done, 0
	j.progress.Finished = d.Done >= d.Total && left == 0
	if j.progress.Version == 0 {
		j.progress.Version = d.Version
	}
	return p.run(j, left)
}

// updateProgress takes over the state of MongoDB after a worker has reported a batch.
func (j *job) updateProgress(d *store.Job) {
	j.progress.Done = d.Done
	if d.Done >= j.total {
		j.progress.Left &= missingKinds(d)
		if j.progress.Left == 0 {
			j.progress.Running, j.progress.Finished = false, true
		}
	}
}

// finishMirrored finishes a batch of a job with the state d of MongoDB. A report does not say how much of the batch was
// done. If MongoDB shows no new step, the batch is queued again, last.
func (p *Protocol) finishMirrored(t *task, d *store.Job) error {
	j, err := p.mirror(t.job.project.name, d)
	if err != nil {
		return err
	}
	if d.Done == j.progress.Done && d.Done < j.total {
		p.host.LogLimited(slog.LevelWarn, "a kts46 batch is reported finished of which MongoDB shows no step, it is queued again",
			"project", j.project.name, "job", j.name, "worker", t.holder.id, "done", d.Done)
		p.requeue(t, false)
		return nil
	}
	return p.finishBy(t, func() { j.updateProgress(d) })
}

// batchJob names the job of a batch.
type batchJob struct{ project, job string }

// batchOf returns the job of a held task. It returns false unless the task is a batch.
func batchOf(t *task) (b batchJob, batch bool) {
	if !batchKinds.has(t.kind) {
		return b, false
	}
	return batchJob{t.job.project.name, t.job.name}, true
}

// finishReported finishes the held task that find returns. For a batch it asks MongoDB for the job's progress between
// two turns.
func (p *Protocol) finishReported(version int, find func() (*task, error)) error {
	var b batchJob
	var batch bool
	err := p.update(func() error {
		t, err := find()
		if err == nil {
			b, batch = batchOf(t)
		}
		return err
	})
	var d *store.Job
	if err == nil && batch {
		d, err = p.site.job(b.project, b.job)
	}
	if err != nil {
		return err
	}
	return p.update(func() error {
		t, err := find() // the task may have another holder by now
		if err != nil {
			return err
		}
		p.bindVersion(t, version)
		if now, batch := batchOf(t); !batch {
			return p.finish(t)
		} else if now != b {
			return errNoTask
		}
		return p.finishMirrored(t, d)
	})
}
