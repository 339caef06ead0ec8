package admin

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
)

// Projects are the projects of simulations.
type Projects interface {
	// Projects returns the first projects behind a name, in order, at most n.
	Projects(after string, n int) ([]protocol.Project, error)
	// ProjectJobs returns the first jobs of a project behind a name, in order, at most n. ok is false when there is no
	// such project.
	ProjectJobs(project, after string, n int) (all []protocol.ProjectJob, ok bool, err error)
}

var errNoProject = errors.New("there is no project of that name")

// getProjects answers with a page of the projects, or of the jobs of one.
func (api *API) getProjects(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(q.Get("limit"), defaultPage)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(q.Get("after"))
	if err != nil {
		return nil, badf("the cursor %.100q is none that a page has", q.Get("after"))
	}
	page, last := &codec.Projects{Projects: []codec.Project{}}, ""
	if project := q.Get("project"); project != "" {
		jobs, ok, err := api.o.Projects.ProjectJobs(project, string(after), limit+1)
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, &notFound{errNoProject}
		}
		for _, j := range jobs[:min(limit, len(jobs))] {
			page.Jobs = append(page.Jobs, codec.ProjectJob{Job: validUTF8(j.Name), Done: j.Done, Total: j.Total, Finished: j.Finished, Workers: j.Workers})
			last = j.Name
		}
		if len(jobs) > limit {
			page.Next = base64.RawURLEncoding.EncodeToString([]byte(last))
		}
		return page, nil
	}
	projects, err := api.o.Projects.Projects(string(after), limit+1)
	if err != nil {
		return nil, err
	}
	for _, p := range projects[:min(limit, len(projects))] {
		page.Projects = append(page.Projects, codec.Project{
			Project: validUTF8(p.Name), Jobs: p.Jobs, Finished: p.Finished, Done: p.Done, Total: p.Total, Held: p.Held,
		})
		last = p.Name
	}
	if len(projects) > limit {
		page.Next = base64.RawURLEncoding.EncodeToString([]byte(last))
	}
	return page, nil
}

// validUTF8 returns a name as a list has it, with U+FFFD for bytes that are not UTF-8.
func validUTF8(name string) string { return strings.ToValidUTF8(name, "\ufffd") }
