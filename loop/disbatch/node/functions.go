package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// Functions is a server whose workers run tasks.
type Functions interface {
	// Submit submits a job for a function. It calls done once, from any goroutine: with the worker's result, or with an
	// error if the worker has failed the job. done must not block. After an error of Submit there is no call.
	Submit(function, name string, workload []byte, done func(data []byte, err error)) error
	// Withdraw removes a job that has not ended. It returns true if no worker has reserved it; done has no call then.
	// After false it may have one.
	Withdraw(function, name string) (unseen bool)
}

// Reasons for the end of a task of a function without a result.
var (
	errStopped  = errors.New("the server stopped before the worker was done")
	errOverTime = errors.New("its time-out is over")
)

// answer is the result of a worker.
type answer struct {
	data []byte
	err  error
}

// outcome returns the end of the task that the answer stands for.
func (a *answer) outcome() store.Outcome {
	if a.err != nil {
		return store.Outcome{Status: store.StatusFailed, Stdout: "", Stderr: a.err.Error()}
	}
	return parseResult(a.data)
}

// runFunction runs a task at a worker of the server.
func (n *Node) runFunction(a *assignment) error {
	t := store.DecodeTask(a.Task)
	id, run := t.ID.Hex(), primitive.NewObjectID()
	if err := n.begin(n.callsCtx, a, &t, run); err != nil {
		return err
	}
	var got answer
	answered := make(chan struct{}) // closed when got is set
	text, err := extendedJSON(a.Task)
	if err == nil {
		err = n.o.Functions.Submit(a.Plugin.Function, id, text, func(data []byte, err error) {
			got = answer{append([]byte(nil), data...), err}
			close(answered)
		})
	}
	if err != nil {
		return n.finish(n.callsCtx, a, &t, run, failedOutcome(unableToStart, err))
	}
	var overdue chan struct{} // closed when the time-out is over; nil: none
	if a.Plugin.Timeout > 0 {
		overdue = make(chan struct{})
		defer time.AfterFunc(a.Plugin.Timeout.Duration(), func() { close(overdue) }).Stop()
	}
	stopping := n.stopping
	for {
		select {
		case <-answered:
		case <-n.callsCtx.Done():
		case <-overdue:
		case <-stopping:
		}
		// The first of simultaneous events counts. The answer is first, so that the result of a finished task is never
		// lost.
		switch over := n.callsCtx.Err() != nil; {
		case closed(answered):
			return n.finish(n.callsCtx, a, &t, run, got.outcome())
		case over && stopping == nil:
			ctx, cancel := n.writing()
			defer cancel()
			return n.finish(ctx, a, &t, run, failedOutcome(unableToComplete, errStopped))
		case closed(overdue) && !over:
			n.o.Functions.Withdraw(a.Plugin.Function, id)
			return n.finish(n.callsCtx, a, &t, run, failedOutcome(unableToComplete, fmt.Errorf("%w: %v", errOverTime, a.Plugin.Timeout.Duration())))
		}
		stopping = nil // the node stops: the node releases the task, or its worker has time until the end of calls
		if n.o.Functions.Withdraw(a.Plugin.Function, id) {
			n.tally.released.Add(1)
			ctx, cancel := n.writing()
			defer cancel()
			return n.retry.Do(ctx, "releasing task "+id, func() error { return n.store.Requeue(ctx, &t, run, a.Schema) })
		}
	}
}

// writing returns the context for the last write about a task: that of calls, or lastWrite more when their time is
// over.
func (n *Node) writing() (context.Context, context.CancelFunc) {
	if n.callsCtx.Err() == nil {
		return n.callsCtx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(n.callsCtx), lastWrite)
}

// closed reports whether a channel is closed. A nil channel is not.
func closed(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	default:
		return false
	}
}

// lastWrite bounds the write of a task's end after the stopping node's time is over.
const lastWrite = 2 * time.Second
