package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"treadle/codec/admin"
)

// Messages about changes.
type (
	// JobsChange changes jobs, by their ids or a filter.
	JobsChange = admin.JobsChange
	// JobsChanged says what became of jobs that were named by ids.
	JobsChanged = admin.JobsChanged
	// LeftJob is a job that stayed as it was.
	LeftJob = admin.LeftJob
	// JobsMatched is how many jobs a filter means.
	JobsMatched = admin.JobsMatched
	// Operation is a change of all jobs that a filter means.
	Operation = admin.Operation
	// AuditRecord is a change that was made through the API.
	AuditRecord = admin.AuditRecord
	// Duration is a time as JSON has it.
	Duration = admin.Duration
	// Moment is a moment as JSON has it.
	Moment = admin.Moment
)

const changePath = "/api/v1/jobs/change"

// ChangeJobs changes the jobs of the ids of c, at most 1000, or the one of its queue and name. Names may have any
// bytes, a filter is UTF-8.
func (a *Admin) ChangeJobs(ctx context.Context, c *JobsChange) (d JobsChanged, err error) {
	err = a.call(ctx, http.MethodPost, changePath, a.asJSON(*c), &d)
	return d, err
}

// asJSON returns a change with its names as JSON has them, and who asks.
func (a *Admin) asJSON(c JobsChange) *JobsChange {
	c.Queue, c.QueueBytes = admin.Name(c.Queue)
	c.Name, c.NameBytes = admin.Name(c.Name)
	c.To, c.ToBytes = admin.Name(c.To)
	c.By = a.By
	return &c
}

// CountJobs counts the jobs that the filter of c means, and changes none.
func (a *Admin) CountJobs(ctx context.Context, c JobsChange) (m JobsMatched, err error) {
	c.DryRun = true
	err = a.call(ctx, http.MethodPost, changePath, &c, &m)
	return m, err
}

// StartChange begins to change all jobs that the filter of c means. It returns the id of the operation.
func (a *Admin) StartChange(ctx context.Context, c *JobsChange) (id string, err error) {
	var started admin.OperationStarted
	err = a.call(ctx, http.MethodPost, changePath, a.asJSON(*c), &started)
	return started.Operation, err
}

// Operations returns the last operations, the newest first.
func (a *Admin) Operations(ctx context.Context) ([]Operation, error) {
	var all admin.Operations
	err := a.call(ctx, http.MethodGet, "/api/v1/operations", nil, &all)
	return all.Operations, err
}

// Operation returns one operation.
func (a *Admin) Operation(ctx context.Context, id string) (Operation, error) {
	var all admin.Operations
	if err := a.call(ctx, http.MethodGet, "/api/v1/operations?id="+url.QueryEscape(id), nil, &all); err != nil {
		return Operation{}, err
	}
	if len(all.Operations) != 1 {
		return Operation{}, &PeerError{a.address, adminSetting, fmt.Errorf("it answered with %d operations instead of one", len(all.Operations))}
	}
	return all.Operations[0], nil
}

// CancelOperation has an operation end early: what it has changed stays changed.
func (a *Admin) CancelOperation(ctx context.Context, id string) error {
	return a.call(ctx, http.MethodPost, "/api/v1/operations/cancel", &admin.Cancel{Operation: id, RequestedBy: a.cause("")}, new(struct{}))
}

// PauseQueue pauses a queue, or those of a pattern: what is hand-out, submits or both. It returns the rule.
func (a *Admin) PauseQueue(ctx context.Context, queue, what, why string) (r PolicyRule, err error) {
	err = a.call(ctx, http.MethodPost, "/api/v1/queues/pause", a.queueChange(queue, what, why), &r)
	return r, err
}

// ResumeQueue ends a pause, also one by the rule of a pattern. It returns the rule.
func (a *Admin) ResumeQueue(ctx context.Context, queue string) (r PolicyRule, err error) {
	err = a.call(ctx, http.MethodPost, "/api/v1/queues/resume", a.queueChange(queue, "", ""), &r)
	return r, err
}

// DrainQueue has a queue take no more jobs in, and returns those that it has.
func (a *Admin) DrainQueue(ctx context.Context, queue, why string) (QueueState, error) {
	return a.oneQueue(ctx, http.MethodPost, "/api/v1/queues/drain", a.queueChange(queue, "", why))
}

// CountQueue counts the jobs that EmptyQueue would remove.
func (a *Admin) CountQueue(ctx context.Context, queue string) (m JobsMatched, err error) {
	c := a.queueChange(queue, "", "")
	c.DryRun = true
	err = a.call(ctx, http.MethodPost, "/api/v1/queues/empty", c, &m)
	return m, err
}

// EmptyQueue begins to remove the jobs of a queue that do not run. It returns the id of the operation.
func (a *Admin) EmptyQueue(ctx context.Context, queue, why string) (id string, err error) {
	var started admin.OperationStarted
	err = a.call(ctx, http.MethodPost, "/api/v1/queues/empty", a.queueChange(queue, "", why), &started)
	return started.Operation, err
}

// queueChange is a change of a queue whose name is UTF-8.
func (a *Admin) queueChange(queue, what, why string) *admin.QueueChange {
	return &admin.QueueChange{Queue: queue, What: what, RequestedBy: a.cause(why)}
}

// Audit returns a page of the changes through the API, the newest first. after is the Next of the page before, or
// empty.
func (a *Admin) Audit(ctx context.Context, after string, limit int) (p admin.Audit, err error) {
	query := url.Values{"after": {after}, "limit": {strconv.Itoa(limit)}}
	err = a.call(ctx, http.MethodGet, "/api/v1/audit?"+query.Encode(), nil, &p)
	return p, err
}
