package dwork

import (
	"fmt"

	codec "treadle/codec/dwork"
	"treadle/loop/protocol"
	"treadle/sched"
)

// create handles Create: it adds the tasks of the request to the graph.
func (p *Protocol) create() error {
	err := p.host.CheckCapacity()
	if err == nil {
		err = p.sched.CheckSubmits(queue)
	}
	if err != nil {
		p.host.CountRefusal(name, protocol.ReasonOf(err))
		return err
	}
	defer p.dropLargeBuffers()
	tasks, err := p.readTasks()
	if err != nil {
		return err
	}
	return p.sched.AddTasks(p.now, Space, queue, tasks, p.sink)
}

// lookup handles Lookup: it answers with a task: its predecessors, successors, log and worker.
func (p *Protocol) lookup(out []byte) []byte {
	found := p.sched.LookupTask(Space, queue, p.query.Name, func(t *sched.TaskView) {
		parts, names := p.parts[:0], 0
		for name := range t.After() {
			parts = codec.AppendPred(parts, codec.Dep{Name: name})
			if names++; names == maxNames || len(parts) > maxReply {
				break
			}
		}
		names = 0
		for name := range t.Before() {
			parts = codec.AppendSucc(parts, codec.Dep{Name: name})
			if names++; names == maxNames || len(parts) > maxReply {
				break
			}
		}
		p.parts = appendLog(parts, t.Log)
		out = codec.AppendType(out, codec.OK)
		out = codec.AppendTask(out, t.Name, t.Workload, p.parts)
		if t.Stage == sched.StageReserved {
			location := t.Holder
			if t.By != 0 {
				location = fmt.Sprintf("%s:%d", location, t.By)
			}
			out = codec.AppendLocation(out, []byte(location))
		}
	})
	if cap(p.parts) > maxReply/16 {
		p.parts = nil
	}
	if !found {
		out = codec.AppendType(out, codec.NotFound)
	}
	return out
}

// status handles the other requests with the counts of tasks.
func (p *Protocol) status(out []byte) []byte {
	active, ready := p.sched.Backlog(queue)
	out = codec.AppendType(out, codec.OK)
	out = codec.AppendName(out, fmt.Appendf(p.parts[:0], "dhub: %d active tasks, %d ready.", active, ready))
	return codec.AppendN(out, int32(ready)) // far fewer fit in memory than an int32 counts
}
