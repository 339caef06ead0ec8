package kts46

import (
	"errors"

	codec "treadle/codec/kts46"
)

// siteAddTask is addTask with the site's MongoDB: it reads the definition there and queues the task in the book.
func (p *Protocol) siteAddTask(r *codec.Request) (result any, err error) {
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
	err = p.turn(func() (err error) {
		j, err := p.mirror(project, d)
		if err == nil {
			result, err = started(j, p.runMirrored(j, d, v2End))
		}
		return err
	})
	return result, err
}

func (p *Protocol) siteTaskFinished(r *codec.Request) (any, error) {
	if err := p.finishReported(2, func() (*task, error) { return p.heldParam(r, true) }); err != nil {
		if errors.As(err, new(*missingError)) {
			err = errNoJob
		}
		return nil, err
	}
	return success, nil
}
