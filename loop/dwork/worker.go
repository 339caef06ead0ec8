package dwork

import (
	codec "treadle/codec/dwork"
	"treadle/sched"
)

// steal handles Steal: it hands out ready tasks. It adds a worker with the worker's first task.
func (p *Protocol) steal(out []byte) ([]byte, error) {
	n := 1
	if p.query.HasN {
		n = int(p.query.N)
	}
	w, err := p.findWorker(p.query.Location)
	if err != nil {
		return out, err
	}
	start := len(out)
	p.sched.Steal(p.now, w.peer, queue, min(n, p.o.MaxSteal), p.sink, func(t *sched.TaskView) bool {
		if len(out) == start {
			out = codec.AppendType(out, codec.Transfer)
		}
		p.parts = appendLog(p.parts[:0], t.Log)
		out = codec.AppendTask(out, t.Name, t.Workload, p.parts)
		return len(out)-start < maxReply
	})
	if len(out) > start {
		p.workers[w.location] = w
		return out, nil
	}
	if active, _ := p.sched.Backlog(queue); active == 0 && p.o.Idle != AnswerNotFound {
		return codec.AppendType(out, codec.Exit), nil
	}
	return codec.AppendType(out, codec.NotFound), nil
}

// complete handles Complete: it ends tasks. The answer names the tasks that no worker holds. When Options.Complete is
// holder, it names the tasks that this worker does not hold.
func (p *Protocol) complete(out []byte) ([]byte, error) {
	defer p.dropLargeBuffers()
	w, tasks, err := p.workerAndTasks()
	if err != nil {
		return out, err
	}
	holder := w.peer
	if p.o.Complete != completeHolder {
		holder = nil
	}
	start := len(out)
	p.sched.Complete(p.now, holder, Space, queue, tasks, p.sink, func(i int) {
		if len(out) == start {
			out = codec.AppendType(out, codec.NotFound)
		}
		out = codec.AppendTask(out, tasks[i].Name, tasks[i].Workload)
	})
	if len(out) == start {
		out = codec.AppendType(out, codec.OK)
	}
	return out, nil
}

// transfer handles Transfer: it returns a worker's tasks to the graph, with further predecessors, and appends the
// reply.
func (p *Protocol) transfer(out []byte) ([]byte, error) {
	defer p.dropLargeBuffers()
	w, tasks, err := p.workerAndTasks()
	if err != nil {
		return out, err
	}
	switch err := p.sched.Transfer(p.now, w.peer, Space, queue, tasks, p.sink); {
	case err == sched.ErrNotFound:
		return codec.AppendType(out, codec.NotFound), nil
	case err != nil:
		return out, err
	}
	return codec.AppendType(out, codec.OK), nil
}

// exit handles Exit: it releases the tasks of a worker.
func (p *Protocol) exit(out []byte) []byte {
	w := p.workers[string(p.query.Location)]
	if w == nil {
		return codec.AppendType(out, codec.NotFound)
	}
	p.removeWorker(w)
	return codec.AppendType(out, codec.OK)
}
