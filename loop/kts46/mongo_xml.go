package kts46

import (
	"errors"

	codec "treadle/codec/kts46"
	"treadle/loop/kts46/store"
)

// mongoRunJob is runJob with the site's MongoDB: it reads the definition there and starts the job in the registry.
func (p *Protocol) mongoRunJob(_ []any, s []string) (any, error) {
	d, err := p.site.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	return nil, p.update(func() error {
		j, err := p.mirror(s[0], d)
		if err != nil {
			return err
		}
		if err := p.runMirrored(j, d, v1End); err != errDone && err != errDuplicate {
			return err
		}
		return nil
	})
}

func (p *Protocol) mongoReportStatus(args []any, s []string) (any, error) {
	if args[1] != "finished" {
		return p.updateWithAnswer(func() (any, error) { return p.xmlReportStatus(args, s) })
	}
	return nil, p.finishReported(1, func() (*task, error) { return p.reporting(args, s) })
}

// mongoCreateProject is createProject with the site's MongoDB: it writes the project there first.
func (p *Protocol) mongoCreateProject(_ []any, s []string) (any, error) {
	if err := store.CheckProjectName(s[0]); err != nil {
		return nil, err
	}
	p.site.changing.Lock()
	defer p.site.changing.Unlock()
	if err := p.update(p.checkRoom); err != nil {
		return nil, err
	}
	if err := p.site.outcome(s[0], "", p.site.store.CreateProject(p.site.ctx, s[0])); err != nil {
		return nil, err
	}
	return nil, p.update(func() error {
		if p.projects[s[0]] != nil {
			return nil
		}
		return p.createProject(s[0])
	})
}

func (p *Protocol) mongoProjectExists(_ []any, s []string) (any, error) {
	found, err := p.site.store.HasProject(p.site.ctx, s[0])
	return found, p.site.outcome(s[0], "", err)
}

// mongoDeleteProject ends the tasks of a project before it deletes it from MongoDB. A project that only the registry
// has is deleted there.
func (p *Protocol) mongoDeleteProject(_ []any, s []string) (any, error) {
	p.site.changing.Lock()
	defer p.site.changing.Unlock()
	found, err := p.site.store.HasProject(p.site.ctx, s[0])
	if err := p.site.outcome(s[0], "", err); err != nil {
		return nil, err
	}
	err = p.update(func() error {
		known := p.projects[s[0]]
		if known == nil && !found {
			return &missingError{project: s[0], toDelete: true}
		}
		if known != nil {
			for _, j := range known.jobs {
				p.abort(j)
			}
		}
		return nil
	})
	if err == nil && found {
		err = p.site.outcome(s[0], "", p.site.store.DeleteProject(p.site.ctx, s[0]))
	}
	if err != nil {
		return nil, err
	}
	return nil, p.update(func() error {
		if p.projects[s[0]] == nil {
			return nil
		}
		return p.deleteProject(s[0])
	})
}

// mongoAddJob is addJob with the site's MongoDB: it writes the definition there first, and then adds the job to the
// registry. The registry's own job of that name, which MongoDB does not have, is discarded.
func (p *Protocol) mongoAddJob(args []any, s []string) (any, error) {
	d := args[2].(*parsedDefinition)
	p.site.changing.Lock()
	defer p.site.changing.Unlock()
	found, err := p.site.store.HasJob(p.site.ctx, s[0], s[1])
	switch err = p.site.outcome(s[0], s[1], err); {
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
	if err := p.update(p.checkRoom); err != nil {
		return nil, err
	}
	if err := p.site.outcome(s[0], s[1], p.site.store.AddJob(p.site.ctx, s[0], s[1], d.stored)); err != nil {
		return nil, err
	}
	return nil, p.update(func() error {
		if known := p.projects[s[0]]; known == nil {
			if err := p.createProject(s[0]); err != nil {
				return err
			}
		} else if j := known.jobs[s[1]]; j != nil { // MongoDB did not have it
			p.discard(j)
		}
		if err := p.addJob(s[0], s[1], d); err != nil {
			return err
		}
		j := p.projects[s[0]].jobs[s[1]]
		j.progress.Mirrored = true
		p.saveProgress(j)
		return nil
	})
}

func (p *Protocol) mongoJobExists(_ []any, s []string) (any, error) {
	found, err := p.site.store.HasJob(p.site.ctx, s[0], s[1])
	return found, p.site.outcome(s[0], s[1], err)
}

// mongoDeleteJob ends the tasks of a job before it deletes it from MongoDB. A job that only the registry has is deleted
// there.
func (p *Protocol) mongoDeleteJob(_ []any, s []string) (any, error) {
	p.site.changing.Lock()
	defer p.site.changing.Unlock()
	found, err := p.site.store.HasJob(p.site.ctx, s[0], s[1])
	if errors.Is(err, store.ErrNoProject) {
		err = nil
	}
	if err := p.site.outcome(s[0], s[1], err); err != nil {
		return nil, err
	}
	if !found {
		return nil, p.update(func() error { return p.deleteJob(s[0], s[1]) })
	}
	err = p.update(func() error {
		if j, err := p.job(s[0], s[1]); err == nil {
			p.abort(j)
		}
		return nil
	})
	if err == nil {
		err = p.site.outcome(s[0], s[1], p.site.store.DeleteJob(p.site.ctx, s[0], s[1]))
	}
	if err != nil {
		return nil, err
	}
	return nil, p.update(func() error {
		if j, err := p.job(s[0], s[1]); err == nil {
			p.discard(j)
		}
		return nil
	})
}

// mongoNewJobID is getNewJobId with the site's MongoDB: it checks the project there, and takes the number in the
// registry.
func (p *Protocol) mongoNewJobID(_ []any, s []string) (any, error) {
	found, err := p.site.store.HasProject(p.site.ctx, s[0])
	if err = p.site.outcome(s[0], "", err); err != nil {
		return nil, err
	}
	if !found {
		return nil, &missingError{project: s[0]}
	}
	return p.updateWithAnswer(func() (any, error) {
		if p.projects[s[0]] == nil {
			if err := p.createProject(s[0]); err != nil {
				return nil, err
			}
		}
		return p.xmlNewJobID(nil, s)
	})
}

func (p *Protocol) mongoJobStatus(_ []any, s []string) (any, error) {
	d, err := p.site.job(s[0], s[1])
	if err != nil {
		return nil, err
	}
	return jobStatus(s[0], s[1], d.Done, d.Total), nil
}

func (p *Protocol) mongoJobsList(_ []any, s []string) (any, error) {
	names, err := p.site.store.JobNames(p.site.ctx, s[0], maxEntries)
	all := []any{}
	for _, name := range names {
		all = append(all, name)
	}
	return all, p.site.outcome(s[0], "", err)
}

// list returns a project with its jobs in MongoDB, up to a number of jobs.
func (s *mongoSite) list(project string, most int) (l projectState, err error) {
	progresses, err := s.store.Progresses(s.ctx, project, most)
	l = projectState{name: project, jobs: make([]jobState, 0, len(progresses))}
	for _, p := range progresses {
		j := jobState{name: p.Name, done: p.Done, total: p.Total, finished: p.Full}
		for k, done := range map[kind]bool{basicStatistics: p.Basic, idleTimes: p.Idle, throughput: p.Throughput} {
			if done {
				j.doneStatistics |= 1 << k
			}
		}
		l.jobs = append(l.jobs, j)
	}
	return l, s.outcome(project, "", err)
}

func (p *Protocol) mongoProjectStatus(_ []any, s []string) (any, error) {
	l, err := p.site.list(s[0], maxEntries)
	return l.appendStatus([]any{}), err
}

// mongoServerStatus is getServerStatus with the site's MongoDB: the jobs are those of MongoDB, their states those of
// the registry. It lists at most maxEntries projects and jobs.
func (p *Protocol) mongoServerStatus([]any, []string) (any, error) {
	projects, err := p.site.store.Projects(p.site.ctx)
	if err = p.site.outcome("", "", err); err != nil {
		return nil, err
	}
	all := []any{}
	for _, project := range projects {
		l, err := p.site.list(project, maxEntries-len(all))
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

func (p *Protocol) mongoJobStatistics(args []any, s []string) (any, error) {
	all, err := p.site.store.Statistics(p.site.ctx, s[0], s[1], args[2] == true)
	if err = p.site.outcome(s[0], s[1], err); errors.As(err, new(*missingError)) {
		return codec.Struct{}, nil
	}
	return all, err
}
