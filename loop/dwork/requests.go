package dwork

import (
	"fmt"
	"log/slog"

	codec "treadle/codec/dwork"
	"treadle/sched"
)

// Limits of requests and replies.
const (
	// maxReply ends a reply of many tasks at the likely frame limit of clients. A reply has at least one task.
	maxReply = 16 << 20
	// maxParts bounds the dependencies and log entries of a request, with taskParts for each task, since other requests
	// wait meanwhile.
	maxParts  = 1 << 17
	taskParts = 4
	// maxNames bounds the predecessors, and the successors, that a Lookup shows.
	maxNames = 1 << 16
)

var errTooManyParts = fmt.Errorf("more than %d dependencies and log entries, or %d tasks: send fewer at a time", maxParts, maxParts/taskParts)

// decode sets the query, which keeps views of payload.
func (p *Protocol) decode(payload []byte) error { return codec.Decode(payload, &p.query) }

// handle appends the reply to the query. invalid is the error of decode, for which the reply is Error. With wait the
// reply may be sent only after the group is committed.
func (p *Protocol) handle(out []byte, invalid error) (_ []byte, group uint64, wait bool) {
	q := &p.query
	if invalid != nil {
		return p.answerError(out, invalid), 0, false
	}
	p.stats.requests[q.Type].Add(1)
	if p.stopping.Load() && !isReport(q.Type) {
		return p.answerStopping(out), 0, false
	}
	var err error
	switch q.Type {
	case codec.Create:
		err = p.create()
		wait = true
	case codec.Complete:
		out, err = p.complete(out)
		wait = true
	case codec.Transfer:
		out, err = p.transfer(out)
		wait = true
	case codec.Steal:
		out, err = p.steal(out)
	case codec.Exit:
		out = p.exit(out)
	case codec.Lookup:
		out = p.lookup(out)
	default:
		out = p.status(out)
	}
	if err != nil {
		return p.answerError(out, err), 0, false
	}
	if q.Type == codec.Create {
		out = codec.AppendType(out, codec.OK)
	}
	if wait {
		group, wait = p.host.CommitGroup(queue)
	}
	return out, group, wait
}

// isReport is true for a request that ends tasks of its worker. A stopping server still handles such a request,
// or finished tasks would be done again.
func isReport(t codec.Type) bool {
	return t == codec.Complete || t == codec.Transfer || t == codec.Exit
}

// answerStopping answers the other requests while the server stops. Exit ends a worker; after NotFound it asks again.
func (p *Protocol) answerStopping(out []byte) []byte {
	if p.query.Type == codec.Steal && p.o.Stop == AnswerNotFound {
		return codec.AppendType(out, codec.NotFound)
	}
	return codec.AppendType(out, codec.Exit)
}

// answerError answers Error and logs the reason.
func (p *Protocol) answerError(out []byte, why error) []byte {
	p.stats.errors.Add(1)
	p.host.LogLimited(slog.LevelInfo, "refusing a dwork request", "reason", why.Error())
	return codec.AppendType(out, codec.Error)
}

// readTasks returns the request's tasks for the scheduler, as views of the request.
func (p *Protocol) readTasks() ([]sched.Task, error) {
	p.tasks, p.preds, p.log = p.tasks[:0], p.preds[:0], p.log[:0]
	for t := range p.query.Tasks {
		preds, events := len(p.preds), len(p.log)
		for d := range t.Pred {
			p.preds = append(p.preds, d.Name)
		}
		for e := range t.Log {
			p.log = append(p.log, sched.Event{Stage: stageOf(e.State), Micros: e.Time})
		}
		// An append for a later task may move preds and log to larger arrays. The views of earlier tasks keep the old
		// arrays, which have the same content.
		p.tasks = append(p.tasks, sched.Task{
			Name: t.Name, Workload: t.Origin, After: p.preds[preds:len(p.preds):len(p.preds)], Log: p.log[events:len(p.log):len(p.log)],
		})
		if taskParts*len(p.tasks)+len(p.preds)+len(p.log) > maxParts {
			return nil, errTooManyParts
		}
	}
	return p.tasks, nil
}

// dropLargeBuffers drops the views of a large request.
func (p *Protocol) dropLargeBuffers() {
	if cap(p.tasks) > 1024 {
		p.tasks = nil
	}
	if cap(p.preds) > 1024 {
		p.preds = nil
	}
	if cap(p.log) > 1024 {
		p.log = nil
	}
}

// workerAndTasks returns the worker and the tasks that a request names.
func (p *Protocol) workerAndTasks() (*worker, []sched.Task, error) {
	w, err := p.addWorker(p.query.Location)
	if err != nil {
		return nil, nil, err
	}
	tasks, err := p.readTasks()
	return w, tasks, err
}

func appendLog(parts []byte, log []sched.Event) []byte {
	for _, e := range log {
		parts = codec.AppendLog(parts, codec.LogEntry{State: stateOf(e.Stage), Time: e.Micros})
	}
	return parts
}
