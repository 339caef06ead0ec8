package kts46

import (
	"errors"

	codec "treadle/codec/kts46"
)

// mongoAddTask is addTask with the site's MongoDB: it reads the definition there and queues the task in the registry.
func (p *Protocol) mongoAddTask(r *codec.Request) (any, error) {
	project, name, err := jobNames(r)
	if err != nil {
		return nil, err
	}
	d, err := p.site.job(project, name)
	if errors.As(err, new(*missingError)) {
		return nil, errNoJob
	}
	if err != nil {
		return nil, err
	}
	return p.updateWithAnswer(func() (any, error) {
		j, err := p.mirror(project, d)
		if err != nil {
			return nil, err
		}
		return started(j, p.runMirrored(j, d, v2End))
	})
}

func (p *Protocol) mongoTaskFinished(r *codec.Request) (any, error) {
	if err := p.finishReported(2, func() (*task, error) { return p.heldParam(r, true) }); err != nil {
		if errors.As(err, new(*missingError)) {
			err = errNoJob
		}
		return nil, err
	}
	return success, nil
}
