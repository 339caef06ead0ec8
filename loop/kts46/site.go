package kts46

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/kts46/store"
	"treadle/loop/protocol"
)

// With a MongoDB the projects and jobs of the site, and how far they are, are there, where
// the original workers and web interface read and write them. The book has the jobs that
// were run: what is queued, and who holds what, is Treadle's as ever. A call that needs
// both asks MongoDB first, on the goroutine that serves its connection, and has its turn
// with the answer: no turn waits for MongoDB.

// site is a site's MongoDB.
type site struct {
	hub      *Hub
	store    *store.Store
	ctx      context.Context // ends with the server
	end      context.CancelFunc
	changing sync.Mutex // one change of projects and definitions at a time
	failures atomic.Uint64

	mu    sync.Mutex
	away  time.Time // of the last line of log that says so; zero: it answers
	heard bool      // MongoDB has answered a call
}

// sayEvery is the time between lines of log about a MongoDB that fails.
const sayEvery = 10 * time.Second

// mongoError says that a call needs MongoDB, and MongoDB has failed.
type mongoError struct{ err error }

func (e *mongoError) Error() string {
	return "the call needs MongoDB, which has failed; repeat it when the server of --kts46-mongodb works: " + e.err.Error()
}

func (e *mongoError) Unwrap() error { return e.err }

// newSite opens the MongoDB of a URI that was validated, nil without one.
func newSite(h *Hub, uri string) (*site, error) {
	if uri == "" {
		return nil, nil
	}
	s, err := store.Open(uri)
	if err != nil {
		return nil, &protocol.OptionError{Setting: "kts46-mongodb", Err: err}
	}
	site := &site{hub: h, store: s}
	site.ctx, site.end = context.WithCancel(context.Background())
	return site, nil
}

// close ends what waits for MongoDB.
func (s *site) close() {
	if s != nil {
		s.end()
		s.store.Close()
	}
}

// look waits until MongoDB answers for the first time, and says so. A MongoDB that can
// never be used ends the server.
func (s *site) look() {
	ticker := time.NewTicker(sayEvery / 2)
	defer ticker.Stop()
	for {
		projects, err := s.store.Projects(s.ctx)
		if why := s.unusable(err); why != nil {
			s.hub.host.Fail(why)
			return
		}
		if s.answered("", "", err) == nil {
			s.hub.host.Log().Info("kts46 projects are in MongoDB", "projects", len(projects))
			return
		}
		select {
		case <-s.hub.done:
			return
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// unusable returns an *protocol.OptionError for an error that no waiting ends, or nil. It returns nil
// after MongoDB has answered a call, since a running server outlives a changed password.
func (s *site) unusable(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	why := store.Unusable(err)
	if why == nil || s.heard || s.ctx.Err() != nil {
		return nil
	}
	return &protocol.OptionError{Setting: "kts46-mongodb", Err: why}
}

// answered notes how a call about a project or job went, and words its error as the book
// words its own.
func (s *site) answered(project, job string, err error) error {
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
	s.away, s.heard = time.Time{}, true
	s.mu.Unlock()
	if back {
		s.hub.host.Log().Info("kts46: MongoDB works again")
	}
	return err
}

func (s *site) failed(err error) {
	s.failures.Add(1)
	s.mu.Lock()
	now := time.Now()
	say := now.Sub(s.away) >= sayEvery
	if say {
		s.away = now
	}
	s.mu.Unlock()
	if say {
		s.hub.host.Log().Warn("kts46: MongoDB has failed; calls that need it are refused until it works again", "error", err.Error())
	}
}

// job reads a job. The book drops one that is gone.
func (s *site) job(project, name string) (*store.Job, error) {
	d, err := s.store.Job(s.ctx, project, name)
	if err = s.answered(project, name, err); errors.As(err, new(*missingError)) {
		return nil, errors.Join(err, s.hub.turn(func() error { return s.hub.vanished(project, name) }))
	}
	return d, err
}

// vanished takes the tasks of a job that MongoDB does not have, or no longer, out of their
// lines. A job that was there is dropped, and one that was not keeps its definition.
func (h *Hub) vanished(project, name string) error {
	p := h.projects[project]
	if p == nil || p.jobs[name] == nil {
		return nil
	}
	if j := p.jobs[name]; j.progress.Mirrored {
		h.discard(j)
	} else {
		h.abort(j)
	}
	return nil
}

// numbersOf are the numbers of a job in MongoDB.
func numbersOf(d *store.Job) (numbers, error) {
	n, err := newNumbers(d.Duration, d.Step, d.Batch)
	n.total = d.Total
	return n, err
}

// mirror enters a job as MongoDB has it in the book.
func (h *Hub) mirror(project string, d *store.Job) (*job, error) {
	numbers, err := numbersOf(d)
	if err != nil {
		return nil, fmt.Errorf("the job %s in the database %s: %w", d.Name, project, err)
	}
	p := h.projects[project]
	if p == nil {
		if err := h.createProject(project); err != nil {
			return nil, err
		}
		p = h.projects[project]
	}
	j := p.jobs[d.Name]
	if j == nil {
		if err := checkName("job", d.Name); err != nil {
			return nil, err
		}
		if err := h.room(); err != nil {
			return nil, err
		}
		j = &job{project: p, name: d.Name}
		p.jobs[d.Name] = j
		h.entries++
	}
	if j.numbers != numbers {
		h.enter(j, numbers, numbers.definition())
	}
	if !j.progress.Mirrored {
		j.progress.Mirrored = true
		h.saveProgress(j)
	}
	return j, nil
}

// enter journals another definition of a job.
func (h *Hub) enter(j *job, numbers numbers, definition []byte) {
	j.numbers = numbers
	h.saveDefinition(j, definition)
}

// definition is what the journal has in place of a definition that is in MongoDB.
func (n *numbers) definition() []byte {
	return fmt.Appendf(nil, "simulationParameters: {duration: %v, stepDuration: %v, batchLength: %d}\n", n.duration, n.step, n.batch)
}

// undone are the kinds of statistics that a job in MongoDB lacks.
func undone(d *store.Job) (left kindSet) {
	for k, done := range map[kind]bool{statistics: d.Basic, basicStatistics: d.Basic, idleTimes: d.Idle, throughput: d.Throughput} {
		if !done {
			left |= 1 << k
		}
	}
	return left
}

// runMirrored is run for a job that is as d says: what the workers have noted there is not
// done again.
func (h *Hub) runMirrored(j *job, d *store.Job, left kindSet) error {
	if j.progress.Running {
		return errDuplicate
	}
	left &= undone(d)
	if left&v2End != 0 && d.Full {
		left = 0
	}
	j.progress.Done, j.progress.Left = d.Done, 0
	j.progress.Finished = d.Done >= d.Total && left == 0
	if j.progress.Version == 0 {
		j.progress.Version = d.Version
	}
	return h.run(j, left)
}

// learn notes how far the workers have come when one reports a batch.
func (j *job) learn(d *store.Job) {
	j.progress.Done = d.Done
	if d.Done >= j.total {
		j.progress.Left &= undone(d)
		if j.progress.Left == 0 {
			j.progress.Running, j.progress.Finished = false, true
		}
	}
}

// finishMirrored is finish for a batch of a job that is as d says. No report says how much
// of the batch was done: a batch of which MongoDB shows nothing is queued again, last.
func (h *Hub) finishMirrored(t *task, d *store.Job) error {
	j, err := h.mirror(t.job.project.name, d)
	if err != nil {
		return err
	}
	if d.Done == j.progress.Done && d.Done < j.total {
		h.host.LogLimited(slog.LevelWarn, "a kts46 batch is reported finished of which MongoDB shows no step, it is queued again",
			"project", j.project.name, "job", j.name, "worker", t.holder.id, "done", d.Done)
		h.requeue(t, false)
		return nil
	}
	return h.finishBy(t, func() { j.learn(d) })
}

// batchJob names the job of a batch, which MongoDB is to be asked about.
type batchJob struct{ project, job string }

// batchOf is the job of a held task; false unless the task is a batch.
func batchOf(t *task) (b batchJob, is bool) {
	if !batchKinds.has(t.kind) {
		return b, false
	}
	return batchJob{t.job.project.name, t.job.name}, true
}

// reported ends the held task that find returns, in turns: between them MongoDB is asked how
// far the job is, if the task is a batch.
func (h *Hub) reported(version int, find func() (*task, error)) error {
	var b batchJob
	var is bool
	err := h.turn(func() error {
		t, err := find()
		if err == nil {
			b, is = batchOf(t)
		}
		return err
	})
	var d *store.Job
	if err == nil && is {
		d, err = h.site.job(b.project, b.job)
	}
	if err != nil {
		return err
	}
	return h.turn(func() error {
		t, err := find() // it may be another's by now
		if err != nil {
			return err
		}
		h.decide(t, version)
		if now, batch := batchOf(t); !batch {
			return h.finish(t)
		} else if now != b {
			return errNoTask
		}
		return h.finishMirrored(t, d)
	})
}

// fraction is how much of a job is done.
func fraction(done, total int64) float64 {
	if total <= 0 {
		return 1
	}
	return math.Min(float64(done)/float64(total), 1)
}
