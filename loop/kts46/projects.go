package kts46

import (
	"cmp"
	"slices"
	"strings"

	"treadle/loop/protocol"
)

// Projects returns the first projects behind a name, in order, at most n.
func (r *registry) Projects(after string, n int) (all []protocol.Project, err error) {
	err = r.update(func() error {
		for name, p := range r.projects {
			if name > after {
				all = append(all, p.sum())
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b protocol.Project) int { return cmp.Compare(a.Name, b.Name) })
	return all[:min(n, len(all))], err
}

// sum adds up the jobs of the project.
func (p *project) sum() protocol.Project {
	s := protocol.Project{Name: p.name, Jobs: len(p.jobs)}
	for _, j := range p.jobs {
		s.Done, s.Total = s.Done+j.steps(), s.Total+j.total
		if j.progress.Finished {
			s.Finished++
		}
		for _, t := range j.tasks {
			if t != nil && t.holder != nil {
				s.Held++
			}
		}
	}
	return s
}

// ProjectJobs returns the first jobs of a project behind a name, in order, at most n. ok is false when there is no such
// project.
func (r *registry) ProjectJobs(project, after string, n int) (all []protocol.ProjectJob, ok bool, err error) {
	err = r.update(func() error {
		p := r.projects[project]
		if ok = p != nil; !ok {
			return nil
		}
		for name, j := range p.jobs {
			if name > after {
				all = append(all, protocol.ProjectJob{Name: name, Done: j.steps(), Total: j.total, Finished: j.progress.Finished, Workers: j.holders()})
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b protocol.ProjectJob) int { return cmp.Compare(a.Name, b.Name) })
	return all[:min(n, len(all))], ok, err
}

// holders returns the workers that have tasks of the job.
func (j *job) holders() (workers []string) {
	for _, t := range j.tasks {
		if t != nil && t.holder != nil {
			workers = append(workers, strings.ToValidUTF8(t.holder.id, "\ufffd"))
		}
	}
	return workers
}
