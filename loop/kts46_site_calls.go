package loop

import (
	"errors"
	"fmt"

	"treadle/codec/kts46"
	"treadle/loop/kts46/store"
)

// ktsSiteCalls are the methods of version 1 that are about MongoDB when there is one. They
// are no part of a turn, and have turns of their own.
var ktsSiteCalls = map[string]func(h *ktsHub, args []any, texts []string) (any, error){
	"runJob":           (*ktsHub).siteRunJob,
	"reportStatus":     (*ktsHub).siteReportStatus,
	"createProject":    (*ktsHub).siteCreateProject,
	"projectExists":    (*ktsHub).siteProjectExists,
	"deleteProject":    (*ktsHub).siteDeleteProject,
	ktsAddJob:          (*ktsHub).siteAddJob,
	"jobExists":        (*ktsHub).siteJobExists,
	"deleteJob":        (*ktsHub).siteDeleteJob,
	"getNewJobId":      (*ktsHub).siteNewJobID,
	"getJobStatus":     (*ktsHub).siteJobStatus,
	"getJobsList":      (*ktsHub).siteJobsList,
	"getProjectStatus": (*ktsHub).siteProjectStatus,
	"getServerStatus":  (*ktsHub).siteServerStatus,
	"getJobStatistics": (*ktsHub).siteJobStatistics,
}

// ktsSiteRequests are those of version 2.
var ktsSiteRequests = map[string]func(*ktsHub, *kts46.Request) (any, error){
	"addTask":      (*ktsHub).siteAddTask,
	"taskFinished": (*ktsHub).siteTaskFinished,
}

func (h *ktsHub) siteRunJob(_ []any, s []string) (any, error) {
	d, err := h.site.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	return nil, h.turn(func() error {
		j, err := h.mirror(s[0], d)
		if err != nil {
			return err
		}
		if err := h.runMirrored(j, d, ktsV1End); err != errKtsDone && err != errKtsDuplicate {
			return err
		}
		return nil
	})
}

func (h *ktsHub) siteAddTask(r *kts46.Request) (result any, err error) {
	project, name, err := jobNames(r)
	if err != nil {
		return nil, err
	}
	d, err := h.site.job(project, name)
	if errors.As(err, new(*ktsMissing)) {
		return nil, errKtsNoJob
	}
	if err != nil {
		return nil, err
	}
	err = h.turn(func() (err error) {
		j, err := h.mirror(project, d)
		if err == nil {
			result, err = started(j, h.runMirrored(j, d, ktsV2End))
		}
		return err
	})
	return result, err
}

func (h *ktsHub) siteReportStatus(args []any, s []string) (answer any, err error) {
	if args[1] != "finished" {
		err = h.turn(func() (err error) {
			answer, err = h.xmlReportStatus(args, s)
			return err
		})
		return answer, err
	}
	return nil, h.reported(1, func() (*ktsTask, error) { return h.reporting(args, s) })
}

func (h *ktsHub) siteTaskFinished(r *kts46.Request) (any, error) {
	if err := h.reported(2, func() (*ktsTask, error) { return h.heldParam(r, true) }); err != nil {
		if errors.As(err, new(*ktsMissing)) {
			err = errKtsNoJob
		}
		return nil, err
	}
	return ktsSuccess, nil
}

func (h *ktsHub) siteCreateProject(_ []any, s []string) (any, error) {
	if err := store.CheckProjectName(s[0]); err != nil {
		return nil, err
	}
	h.site.changing.Lock()
	defer h.site.changing.Unlock()
	if err := h.turn(h.room); err != nil {
		return nil, err
	}
	if err := h.site.answered(s[0], "", h.site.store.CreateProject(h.site.ctx, s[0])); err != nil {
		return nil, err
	}
	return nil, h.turn(func() error {
		if h.projects[s[0]] != nil {
			return nil
		}
		return h.createProject(s[0])
	})
}

func (h *ktsHub) siteProjectExists(_ []any, s []string) (any, error) {
	found, err := h.site.store.HasProject(h.site.ctx, s[0])
	return found, h.site.answered(s[0], "", err)
}

func (h *ktsHub) siteJobExists(_ []any, s []string) (any, error) {
	found, err := h.site.store.HasJob(h.site.ctx, s[0], s[1])
	return found, h.site.answered(s[0], s[1], err)
}

// siteDeleteProject ends the tasks of a project before it deletes it. One that the book
// alone has is deleted there.
func (h *ktsHub) siteDeleteProject(_ []any, s []string) (any, error) {
	h.site.changing.Lock()
	defer h.site.changing.Unlock()
	found, err := h.site.store.HasProject(h.site.ctx, s[0])
	if err := h.site.answered(s[0], "", err); err != nil {
		return nil, err
	}
	err = h.turn(func() error {
		p := h.projects[s[0]]
		if p == nil && !found {
			return &ktsMissing{project: s[0], toDelete: true}
		}
		if p != nil {
			for _, j := range p.jobs {
				h.abort(j)
			}
		}
		return nil
	})
	if err == nil && found {
		err = h.site.answered(s[0], "", h.site.store.DeleteProject(h.site.ctx, s[0]))
	}
	if err != nil {
		return nil, err
	}
	return nil, h.turn(func() error {
		if h.projects[s[0]] == nil {
			return nil
		}
		return h.deleteProject(s[0])
	})
}

func (h *ktsHub) siteAddJob(args []any, s []string) (any, error) {
	d := args[2].(*ktsDefinition)
	h.site.changing.Lock()
	defer h.site.changing.Unlock()
	found, err := h.site.store.HasJob(h.site.ctx, s[0], s[1])
	switch err = h.site.answered(s[0], s[1], err); {
	case err != nil:
		return nil, err
	case found:
		return nil, &ktsTaken{s[0], s[1]}
	case d.err != nil:
		return nil, d.err
	}
	if err := checkKtsName("job", s[1]); err != nil {
		return nil, err
	}
	if err := h.turn(h.room); err != nil {
		return nil, err
	}
	if err := h.site.answered(s[0], s[1], h.site.store.AddJob(h.site.ctx, s[0], s[1], d.stored)); err != nil {
		return nil, err
	}
	return nil, h.turn(func() error {
		if p := h.projects[s[0]]; p == nil {
			if err := h.createProject(s[0]); err != nil {
				return err
			}
		} else if j := p.jobs[s[1]]; j != nil { // that MongoDB did not have
			h.discard(j)
		}
		if err := h.addJob(s[0], s[1], d); err != nil {
			return err
		}
		j := h.projects[s[0]].jobs[s[1]]
		j.progress.Mirrored = true
		h.saveProgress(j)
		return nil
	})
}

// siteDeleteJob ends the tasks of a job before it deletes it. One that the book alone has
// is deleted there.
func (h *ktsHub) siteDeleteJob(_ []any, s []string) (any, error) {
	h.site.changing.Lock()
	defer h.site.changing.Unlock()
	found, err := h.site.store.HasJob(h.site.ctx, s[0], s[1])
	if errors.Is(err, store.ErrNoProject) {
		err = nil
	}
	if err := h.site.answered(s[0], s[1], err); err != nil {
		return nil, err
	}
	if !found {
		return nil, h.turn(func() error { return h.deleteJob(s[0], s[1]) })
	}
	err = h.turn(func() error {
		if j, err := h.job(s[0], s[1]); err == nil {
			h.abort(j)
		}
		return nil
	})
	if err == nil {
		err = h.site.answered(s[0], s[1], h.site.store.DeleteJob(h.site.ctx, s[0], s[1]))
	}
	if err != nil {
		return nil, err
	}
	return nil, h.turn(func() error {
		if j, err := h.job(s[0], s[1]); err == nil {
			h.discard(j)
		}
		return nil
	})
}

func (h *ktsHub) siteNewJobID(_ []any, s []string) (id any, err error) {
	found, err := h.site.store.HasProject(h.site.ctx, s[0])
	if err = h.site.answered(s[0], "", err); err != nil {
		return nil, err
	}
	if !found {
		return nil, &ktsMissing{project: s[0]}
	}
	err = h.turn(func() (err error) {
		if h.projects[s[0]] == nil {
			if err := h.createProject(s[0]); err != nil {
				return err
			}
		}
		id, err = h.xmlNewJobID(nil, s)
		return err
	})
	return id, err
}

func (h *ktsHub) siteJobStatus(_ []any, s []string) (any, error) {
	d, err := h.site.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	return jobStatus(s[0], s[1], d.Done, d.Total), nil
}

func (h *ktsHub) siteJobsList(_ []any, s []string) (any, error) {
	names, err := h.site.store.JobNames(h.site.ctx, s[0], maxKtsJobs)
	all := []any{}
	for _, name := range names {
		all = append(all, name)
	}
	return all, h.site.answered(s[0], "", err)
}

// listed is a project with its jobs as MongoDB has them, at most so many.
func (s *ktsSite) listed(project string, most int) (l ktsListed, err error) {
	progresses, err := s.store.Progresses(s.ctx, project, most)
	l = ktsListed{name: project, jobs: make([]ktsStanding, 0, len(progresses))}
	for _, p := range progresses {
		j := ktsStanding{name: p.Name, done: p.Done, total: p.Total, finished: p.Full}
		for k, done := range map[ktsKind]bool{ktsBasicStatistics: p.Basic, ktsIdleTimes: p.Idle, ktsThroughput: p.Throughput} {
			if done {
				j.flags |= 1 << k
			}
		}
		l.jobs = append(l.jobs, j)
	}
	return l, s.answered(project, "", err)
}

func (h *ktsHub) siteProjectStatus(_ []any, s []string) (any, error) {
	l, err := h.site.listed(s[0], maxKtsJobs)
	return l.appendStatus([]any{}), err
}

func (h *ktsHub) siteServerStatus([]any, []string) (any, error) {
	projects, err := h.site.store.Projects(h.site.ctx)
	if err = h.site.answered("", "", err); err != nil {
		return nil, err
	}
	all := []any{}
	for _, project := range projects {
		l, err := h.site.listed(project, maxKtsJobs-len(all))
		if errors.As(err, new(*ktsMissing)) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = l.appendStatus(all)
	}
	return all, nil
}

func (h *ktsHub) siteJobStatistics(args []any, s []string) (any, error) {
	all, err := h.site.store.Statistics(h.site.ctx, s[0], s[1], args[2] == true)
	if err = h.site.answered(s[0], s[1], err); errors.As(err, new(*ktsMissing)) {
		return kts46.Struct{}, nil
	}
	return all, err
}

// jobStatus is how getJobStatus words how far a job is.
func jobStatus(project, name string, done, total int64) string {
	return fmt.Sprintf("%s.%s: %.4g (%d/%d).", project, name, fraction(done, total), done, total)
}
