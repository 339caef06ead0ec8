package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
)

// Functions is a server whose workers do tasks.
type Functions interface {
	// Submit makes a job of a function. done is called once, from any goroutine and
	// without blocking: with a worker's bytes, or with an error if the worker failed the
	// job. After an error of Submit it is not called.
	Submit(function, name string, workload []byte, done func(data []byte, err error)) error
	// Withdraw removes a job that is not at its end. It says whether no worker had it;
	// done is not called any more if it returns true, and may be if not.
	Withdraw(function, name string) (unseen bool)
}

// Reasons for which a task of a function ended without a result.
var (
	errStopped  = errors.New("the server stopped before the worker was done")
	errOverTime = errors.New("its time-out is over")
)

type answer struct {
	data []byte
	err  error
}

// outcome is what a task comes to by it.
func (a *answer) outcome() outcome {
	if a.err != nil {
		return outcome{status: disbatch.StatusFailed, stdout: "", stderr: a.err.Error()}
	}
	return parseResult(a.data)
}

// function does a task through the server's workers.
func (n *Node) function(a *assignment) error {
	t := disbatch.DecodeTask(a.Task)
	id, run := t.ID.Hex(), primitive.NewObjectID()
	if err := n.begin(n.calls, a, &t, run); err != nil {
		return err
	}
	answers := make(chan answer, 1)
	text, err := extended(a.Task)
	if err == nil {
		err = n.o.Functions.Submit(a.Plugin.Function, id, text, func(data []byte, err error) {
			answers <- answer{append([]byte(nil), data...), err}
		})
	}
	if err != nil {
		return n.finish(n.calls, a, &t, run, ended(unableToStart, err))
	}
	var late <-chan time.Time
	if a.Plugin.Timeout > 0 {
		timer := time.NewTimer(a.Plugin.Timeout.Duration())
		defer timer.Stop()
		late = timer.C
	}
	stopping, overdue, stops := n.stopping, false, false
	for {
		select {
		case got := <-answers:
			answers <- got
		case <-late:
			overdue = true
		case <-stopping:
			stopping, stops = nil, true
		case <-n.calls.Done():
		}
		// Of what has come at once an answer counts first, so that no task which is done is
		// written as another; then the end of the node's time, then that of the task's.
		select {
		case got := <-answers:
			return n.finish(n.calls, a, &t, run, got.outcome())
		default:
		}
		select {
		case <-late:
			overdue = true
		default:
		}
		switch {
		case n.calls.Err() != nil:
			ctx, cancel := context.WithTimeout(context.WithoutCancel(n.calls), lastWrite)
			defer cancel()
			return n.finish(ctx, a, &t, run, ended(unableToComplete, errStopped))
		case overdue:
			n.o.Functions.Withdraw(a.Plugin.Function, id)
			return n.finish(n.calls, a, &t, run, ended(unableToComplete, fmt.Errorf("%w: %v", errOverTime, a.Plugin.Timeout.Duration())))
		case stops:
			stops = false
			if n.o.Functions.Withdraw(a.Plugin.Function, id) {
				n.tally.givenBack.Add(1)
				return n.retry.Do(n.calls, "giving back task "+id, func() error { return n.store.requeue(n.calls, &t, run, a.Schema) })
			}
		}
	}
}

// lastWrite bounds what a stopping node writes when its time is over.
const lastWrite = 2 * time.Second
