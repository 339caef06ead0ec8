package admin

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Bounds of operations.
const (
	// maxRunning bounds the operations at a time: each takes its turns at the scheduler's locks.
	maxRunning = 4
	// maxOperations bounds the operations that are remembered, the running ones among them.
	maxOperations = 100
	// maxOperationErrors bounds the jobs that an operation names as left.
	maxOperationErrors = 10
	// changesAhead is how many jobs may be changed that the journal does not have yet: they fill one group of the
	// journal, and the operation changes the next ones while that group is written. Others wait for a group as long as
	// it takes to write.
	changesAhead = 1 << 10
)

// errBusy refuses an operation.
var errBusy = fmt.Errorf("%d operations run already: wait for one, or cancel it", maxRunning)

// operations are the changes of all jobs that a filter means. They end with the process.
type operations struct {
	mu      sync.Mutex
	last    uint64
	all     []*operation // the oldest first
	running int
	closed  bool
}

// operation is one of them. The mutex of the operations guards what changes in it.
type operation struct {
	codec.Operation
	cancelled bool
	of        *operations
	api       *API
	filter    *codec.Filter
	listing   *sched.Listing
	change    *sched.JobChange
	who       auditor
}

// start adds an operation, which its begin starts.
func (o *operations) start(api *API, c *codec.JobsChange, change *sched.JobChange, who auditor) (any, error) {
	f, err := changeFilter(c)
	if err != nil {
		return nil, err
	}
	if name, one := f.Queue(); one && change.Verb == sched.MoveJobs && string(protocol.Queue([]byte(name))) == change.Queue {
		return nil, badf("the filter means jobs of the queue that they are to move to")
	}
	// A listing of one queue would list a job again that becomes delayed or fails again: the job comes to a later part
	// of it. A listing by records lists each job once, as its record stays.
	every := change.Verb == sched.SetPriority || change.Verb == sched.SetDue || change.Verb == sched.RunJobs
	l, err := api.listingOf(f, "", every)
	if err != nil {
		return nil, err
	}
	l.Repeats = true
	op := &operation{of: o, api: api, filter: f, listing: l, change: change, who: who}
	op.Operation = codec.Operation{
		Verb: c.Verb, Filter: c.Filter, State: codec.OperationRunning, Of: api.host.Sched().SizeOf(l), By: who.name(), Started: api.host.Now().Wall,
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return nil, &unavailable{errors.New("the server is stopping")}
	case o.running == maxRunning:
		return nil, &unavailable{errBusy}
	}
	o.last++
	o.running++
	op.Operation.Operation = strconv.FormatUint(o.last, 10)
	if len(o.all) >= maxOperations {
		oldest := slices.IndexFunc(o.all, func(p *operation) bool { return p.State != codec.OperationRunning })
		o.all = slices.Delete(o.all, oldest, oldest+1)
	}
	o.all = append(o.all, op)
	api.running.Add(1)
	return op, nil
}

// begin starts the operation. It follows start, when the audit has a record of the request.
func (op *operation) begin() *codec.OperationStarted {
	op.api.host.Go(func() {
		defer op.api.running.Done()
		op.run()
	})
	return &codec.OperationStarted{Operation: op.Operation.Operation}
}

// run changes the jobs, a batch at a time. It ends early when the operation is cancelled, or the journal fails. The
// last job of a batch is changed with the next batch, because the listing continues behind that job as long as it keeps
// its place.
func (op *operation) run() {
	slice := cmp.Or(op.api.o.Slice, sched.WalkBatch)
	refs := make([]sched.JobRef, 0, slice+1)
	ahead := journalAhead{host: op.api.host}
	sink := op.api.host.NewSink()
	var err error
	done, unwritten := false, 0
	for began := time.Now(); !done && err == nil && !op.stopped(); {
		now := op.api.host.Now()
		refs = op.stillMeant(now, refs)
		done = op.api.host.Sched().List(now, op.listing, slice, func(v *sched.JobView) bool {
			if !op.failedAgain(v, now) {
				refs = append(refs, v.Ref)
			}
			return true
		})
		last := len(refs)
		if !done {
			last = max(last-1, 0)
		}
		unwritten += op.apply(now, refs[:last], sink)
		refs = append(refs[:0], refs[last:]...)
		if sink.Wake(); unwritten >= changesAhead {
			err, unwritten = ahead.flush(), 0
		}
		began = op.api.host.Yield(began)
	}
	op.end(errors.Join(err, op.api.commit()), done)
}

// batchTime is more milliseconds than a listing of a batch lasts.
const batchTime = 1000

// failedAgain reports whether a job has failed since the operation began, as after its retry. A later time than now is
// from before the clock was set back.
func (op *operation) failedAgain(v *sched.JobView, now sched.Time) bool {
	return v.State == sched.JobFailed && v.Since > op.Started && v.Since <= now.Wall+batchTime
}

// stillMeant returns the jobs that still match the filter. Another request may have changed a job that waits for the
// next batch.
func (op *operation) stillMeant(now sched.Time, refs []sched.JobRef) []sched.JobRef {
	waiting := refs
	refs = refs[:0]
	for _, ref := range waiting {
		one := *op.filter
		one.ID = ref.String()
		l, err := op.api.listingOf(&one, "", true)
		for done := err != nil; !done; {
			done = op.api.host.Sched().List(now, l, sched.WalkBatch, func(v *sched.JobView) bool {
				refs = append(refs, v.Ref)
				return true
			})
		}
	}
	return refs
}

// apply changes jobs, and counts.
func (op *operation) apply(now sched.Time, refs []sched.JobRef, sink protocol.Sink) (changed int) {
	var left []codec.LeftJob
	changed = op.api.host.Sched().ChangeJobs(now, refs, op.change, sink, func(n int, why error) {
		if len(left) < maxOperationErrors {
			left = append(left, leftJob(refs[n], why))
		}
	})
	op.of.mu.Lock()
	defer op.of.mu.Unlock()
	op.Looked, op.Matched, op.Changed = op.listing.Looked(), op.Matched+len(refs), op.Changed+changed
	op.Left += len(refs) - changed
	op.Errors = append(op.Errors, left[:min(len(left), maxOperationErrors-len(op.Errors))]...)
	return changed
}

func (op *operation) stopped() bool {
	op.of.mu.Lock()
	defer op.of.mu.Unlock()
	return op.cancelled
}

// end notes how the operation has ended.
func (op *operation) end(err error, done bool) {
	op.of.mu.Lock()
	op.of.running--
	op.Ended, op.State = op.api.host.Now().Wall, codec.OperationDone
	if err != nil || !done {
		op.State = codec.OperationCancelled
	}
	o := op.Operation
	op.of.mu.Unlock()
	op.api.audit(op.who, codec.AuditRecord{Request: "operation " + o.Operation, Target: o.Verb + " " + o.Filter + ": " + o.State, Count: o.Changed})
}

// stop cancels all operations and refuses others.
func (o *operations) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for _, op := range o.all {
		op.cancelled = true
	}
}

// view returns an operation as it is now.
func (op *operation) view() codec.Operation {
	v := op.Operation
	v.Errors = slices.Clone(op.Errors)
	return v
}

// find returns an operation. The caller holds mu.
func (o *operations) find(id string) (*operation, error) {
	for _, op := range o.all {
		if op.Operation.Operation == id {
			return op, nil
		}
	}
	return nil, &notFound{fmt.Errorf("there is no operation %.64q: the last %d are remembered until the server stops", id, maxOperations)}
}

// getOperations answers GET /operations with the operations that are remembered, or with one.
func (api *API) getOperations(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	o := &api.operations
	o.mu.Lock()
	defer o.mu.Unlock()
	answer := &codec.Operations{Operations: []codec.Operation{}}
	if q.Has("id") {
		op, err := o.find(q.Get("id"))
		if err != nil {
			return nil, err
		}
		answer.Operations = append(answer.Operations, op.view())
		return answer, nil
	}
	for _, op := range slices.Backward(o.all) {
		answer.Operations = append(answer.Operations, op.view())
	}
	return answer, nil
}

// postCancel ends an operation after the batch that it is at. What it has changed stays changed.
func (api *API) postCancel(r *http.Request) (any, error) {
	var c codec.Cancel
	if err := decodeBody(r, &c); err != nil {
		return nil, err
	}
	o := &api.operations
	o.mu.Lock()
	defer o.mu.Unlock()
	op, err := o.find(c.Operation)
	if err != nil {
		return nil, err
	}
	if op.State != codec.OperationRunning {
		return nil, &conflict{fmt.Errorf("operation %s has ended: it is %s", c.Operation, op.State)}
	}
	op.cancelled = true
	v := op.view()
	return &v, nil
}
