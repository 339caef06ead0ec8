package kts46

import (
	"errors"
	"fmt"

	codec "treadle/codec/kts46"
	"treadle/loop/kts46/store"
)

// siteXMLMethods replace methods of version 1 when there is a MongoDB. They run outside turns and take turns
// themselves.
var siteXMLMethods = map[string]func(h *Protocol, args []any, texts []string) (any, error){
	"runJob":           (*Protocol).siteRunJob,
	"reportStatus":     (*Protocol).siteReportStatus,
	"createProject":    (*Protocol).siteCreateProject,
	"projectExists":    (*Protocol).siteProjectExists,
	"deleteProject":    (*Protocol).siteDeleteProject,
	addJobMethod:       (*Protocol).siteAddJob,
	"jobExists":        (*Protocol).siteJobExists,
	"deleteJob":        (*Protocol).siteDeleteJob,
	"getNewJobId":      (*Protocol).siteNewJobID,
	"getJobStatus":     (*Protocol).siteJobStatus,
	"getJobsList":      (*Protocol).siteJobsList,
	"getProjectStatus": (*Protocol).siteProjectStatus,
	"getServerStatus":  (*Protocol).siteServerStatus,
	"getJobStatistics": (*Protocol).siteJobStatistics,
}

// siteJSONMethods replace methods of version 2.
var siteJSONMethods = map[string]func(*Protocol, *codec.Request) (any, error){
	"addTask":      (*Protocol).siteAddTask,
	"taskFinished": (*Protocol).siteTaskFinished,
}

// siteRunJob is runJob with the site's MongoDB: it reads the definition there and starts the job in the book.
func (h *Protocol) siteRunJob(_ []any, s []string) (any, error) {
	d, err := h.site.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	return nil, h.turn(func() error {
		j, err := h.mirror(s[0], d)
		if err != nil {
			return err
		}
		if err := h.runMirrored(j, d, v1End); err != errDone && err != errDuplicate {
			return err
		}
		return nil
	})
}

// siteAddTask is addTask with the site's MongoDB: it reads the definition there and queues the task in the book.
func (h *Protocol) siteAddTask(r *codec.Request) (result any, err error) {
	project, name, err := jobNames(r)
	if err != nil {
		return nil, err
	}
	d, err := h.site.job(project, name)
	if errors.As(err, new(*missingError)) {
		return nil, errNoJob
	}
	if err != nil {
		return nil, err
	}
	err = h.turn(func() (err error) {
		j, err := h.mirror(project, d)
		if err == nil {
			result, err = started(j, h.runMirrored(j, d, v2End))
		}
		return err
	})
	return result, err
}

func (h *Protocol) siteReportStatus(args []any, s []string) (answer any, err error) {
	if args[1] != "finished" {
		err = h.turn(func() (err error) {
			answer, err = h.xmlReportStatus(args, s)
			return err
		})
		return answer, err
	}
	return nil, h.finishReported(1, func() (*task, error) { return h.reporting(args, s) })
}

func (h *Protocol) siteTaskFinished(r *codec.Request) (any, error) {
	if err := h.finishReported(2, func() (*task, error) { return h.heldParam(r, true) }); err != nil {
		if errors.As(err, new(*missingError)) {
			err = errNoJob
		}
		return nil, err
	}
	return success, nil
}

// siteCreateProject is createProject with the site's MongoDB: it writes the project there first.
func (h *Protocol) siteCreateProject(_ []any, s []string) (any, error) {
	if err := store.CheckProjectName(s[0]); err != nil {
		return nil, err
	}
	h.site.changing.Lock()
	defer h.site.changing.Unlock()
	if err := h.turn(h.checkRoom); err != nil {
		return nil, err
	}
	if err := h.site.outcome(s[0], "", h.site.store.CreateProject(h.site.ctx, s[0])); err != nil {
		return nil, err
	}
	return nil, h.turn(func() error {
		if h.projects[s[0]] != nil {
			return nil
		}
		return h.createProject(s[0])
	})
}

func (h *Protocol) siteProjectExists(_ []any, s []string) (any, error) {
	found, err := h.site.store.HasProject(h.site.ctx, s[0])
	return found, h.site.outcome(s[0], "", err)
}

func (h *Protocol) siteJobExists(_ []any, s []string) (any, error) {
	found, err := h.site.store.HasJob(h.site.ctx, s[0], s[1])
	return found, h.site.outcome(s[0], s[1], err)
}

// siteDeleteProject ends the tasks of a project before it deletes it from MongoDB. A project that only the book has
// is deleted there.
func (h *Protocol) siteDeleteProject(_ []any, s []string) (any, error) {
	h.site.changing.Lock()
	defer h.site.changing.Unlock()
	found, err := h.site.store.HasProject(h.site.ctx, s[0])
	if err := h.site.outcome(s[0], "", err); err != nil {
		return nil, err
	}
	err = h.turn(func() error {
		p := h.projects[s[0]]
		if p == nil && !found {
			return &missingError{project: s[0], toDelete: true}
		}
		if p != nil {
			for _, j := range p.jobs {
				h.abort(j)
			}
		}
		return nil
	})
	if err == nil && found {
		err = h.site.outcome(s[0], "", h.site.store.DeleteProject(h.site.ctx, s[0]))
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

// siteAddJob is addJob with the site's MongoDB: it writes the definition there first, and then adds the job to the
// book. The book's own job of that name, which MongoDB does not have, is discarded.
func (h *Protocol) siteAddJob(args []any, s []string) (any, error) {
	d := args[2].(*parsedDefinition)
	h.site.changing.Lock()
	defer h.site.changing.Unlock()
	found, err := h.site.store.HasJob(h.site.ctx, s[0], s[1])
	switch err = h.site.outcome(s[0], s[1], err); {
	case err != nil:
		return nil, err
	case found:
		return nil, &takenError{s[0], s[1]}
	case d.err != nil:
		return nil, d.err
	}
	if err := checkName("job", s[1]); err != nil {
		return nil, err
	}
	if err := h.turn(h.checkRoom); err != nil {
		return nil, err
	}
	if err := h.site.outcome(s[0], s[1], h.site.store.AddJob(h.site.ctx, s[0], s[1], d.stored)); err != nil {
		return nil, err
	}
	return nil, h.turn(func() error {
		if p := h.projects[s[0]]; p == nil {
			if err := h.createProject(s[0]); err != nil {
				return err
			}
		} else if j := p.jobs[s[1]]; j != nil { // MongoDB did not have it
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

// siteDeleteJob ends the tasks of a job before it deletes it from MongoDB. A job that only the book has is deleted
// there.
func (h *Protocol) siteDeleteJob(_ []any, s []string) (any, error) {
	h.site.changing.Lock()
	defer h.site.changing.Unlock()
	found, err := h.site.store.HasJob(h.site.ctx, s[0], s[1])
	if errors.Is(err, store.ErrNoProject) {
		err = nil
	}
	if err := h.site.outcome(s[0], s[1], err); err != nil {
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
		err = h.site.outcome(s[0], s[1], h.site.store.DeleteJob(h.site.ctx, s[0], s[1]))
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

// siteNewJobID is getNewJobId with the site's MongoDB: it checks the project there, and takes the number in the book.
func (h *Protocol) siteNewJobID(_ []any, s []string) (id any, err error) {
	found, err := h.site.store.HasProject(h.site.ctx, s[0])
	if err = h.site.outcome(s[0], "", err); err != nil {
		return nil, err
	}
	if !found {
		return nil, &missingError{project: s[0]}
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

func (h *Protocol) siteJobStatus(_ []any, s []string) (any, error) {
	d, err := h.site.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	return jobStatus(s[0], s[1], d.Done, d.Total), nil
}

func (h *Protocol) siteJobsList(_ []any, s []string) (any, error) {
	names, err := h.site.store.JobNames(h.site.ctx, s[0], maxEntries)
	all := []any{}
	for _, name := range names {
		all = append(all, name)
	}
	return all, h.site.outcome(s[0], "", err)
}

// list returns a project with its jobs in MongoDB, up to a number of jobs.
func (s *site) list(project string, most int) (l projectState, err error) {
	progresses, err := s.store.Progresses(s.ctx, project, most)
	l = projectState{name: project, jobs: make([]jobState, 0, len(progresses))}
	for _, p := range progresses {
		j := jobState{name: p.Name, done: p.Done, total: p.Total, finished: p.Full}
		for k, done := range map[kind]bool{basicStatistics: p.Basic, idleTimes: p.Idle, throughput: p.Throughput} {
			if done {
				j.flags |= 1 << k
			}
		}
		l.jobs = append(l.jobs, j)
	}
	return l, s.outcome(project, "", err)
}

func (h *Protocol) siteProjectStatus(_ []any, s []string) (any, error) {
	l, err := h.site.list(s[0], maxEntries)
	return l.appendStatus([]any{}), err
}

// siteServerStatus is getServerStatus with the site's MongoDB: the jobs are those of MongoDB, their states those of the
// book. It lists at most maxEntries projects and jobs.
func (h *Protocol) siteServerStatus([]any, []string) (any, error) {
	projects, err := h.site.store.Projects(h.site.ctx)
	if err = h.site.outcome("", "", err); err != nil {
		return nil, err
	}
	all := []any{}
	for _, project := range projects {
		l, err := h.site.list(project, maxEntries-len(all))
		if errors.As(err, new(*missingError)) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = l.appendStatus(all)
	}
	return all, nil
}

func (h *Protocol) siteJobStatistics(args []any, s []string) (any, error) {
	all, err := h.site.store.Statistics(h.site.ctx, s[0], s[1], args[2] == true)
	if err = h.site.outcome(s[0], s[1], err); errors.As(err, new(*missingError)) {
		return codec.Struct{}, nil
	}
	return all, err
}

// jobStatus returns the progress of a job in the form of getJobStatus.
func jobStatus(project, name string, done, total int64) string {
	return fmt.Sprintf("%s.%s: %.4g (%d/%d).", project, name, fraction(done, total), done, total)
}
