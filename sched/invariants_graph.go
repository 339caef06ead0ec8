package sched

import (
	"errors"
	"fmt"
)

// graph checks tasks: their edges, their orders, their numbers in each queue.
func (c *checker) graph() error {
	sh := c.sh
	if err := c.index(&sh.graph.remembered, "memory", func(job uint32, r *record, k sortKey) error {
		if r.state != remembered || k.minor != 0 || k.major%grain != 0 {
			return fmt.Errorf("state %d at key %v", r.state, k)
		}
		return c.stand(job, "memory")
	}); err != nil {
		return err
	}
	cutting := make(map[uint32]bool)
	for _, job := range sh.graph.freeing {
		cutting[job] = true
		if r := sh.slab.at(job); r.state == freeing {
			if err := c.stand(job, "cutting"); err != nil {
				return err
			}
		}
	}
	edges, joins, waits, tasks, lined := 0, 0, make(map[uint32]int), make(map[*queue]int), make(map[*queue]int)
	for i := range sh.slab.chunks {
		p := &sh.slab.chunks[i]
		if p.records == nil || p.nodes == nil {
			continue
		}
		for k := range p.records {
			job, r := uint32(i)<<slabBits|uint32(k), &p.records[k]
			if r.flags&task == 0 {
				if p.nodes[k] != (node{}) {
					return fmt.Errorf("job %d is no task and has a node", job)
				}
				continue
			}
			if err := c.taskNode(job, r, &p.nodes[k], cutting[job]); err != nil {
				return fmt.Errorf("task %d: %w", job, err)
			}
			edges += int(p.nodes[k].outs)
			if p.nodes[k].ins > fewEdges {
				joins += int(p.nodes[k].ins)
			}
			if !r.live() {
				continue
			}
			q := sh.queueOf(r)
			tasks[q]++
			lined[q] += oneIf(r.state == ready)
			if r.state == waiting {
				waits[r.container]++
				if err := c.stand(job, "waiting"); err != nil {
					return err
				}
			}
		}
	}
	if joins != len(sh.graph.edges.pairs) {
		return fmt.Errorf("%d edges are known by their ends, want %d", len(sh.graph.edges.pairs), joins)
	}
	if edges != sh.graph.edges.live || sh.graph.completeRecords != c.states[freeing]+c.states[remembered] {
		return fmt.Errorf("%d edges and %d complete tasks are counted, %d and %d are there", sh.graph.edges.live, sh.graph.completeRecords,
			edges, c.states[freeing]+c.states[remembered])
	}
	for id, q := range sh.queues {
		if q != nil && (q.waiting != waits[uint32(id)] || q.tasks != tasks[q] || q.readyTasks != lined[q]) {
			return fmt.Errorf("queue %q counts %d tasks, %d waiting, %d in line, has %d, %d, %d", q.name, q.tasks, q.waiting, q.readyTasks,
				tasks[q], waits[uint32(id)], lined[q])
		}
	}
	return nil
}

// taskNode checks the node of a task: its state against its counts of edges, and both lists of its edges. cutting
// reports whether the node's edges are being freed.
func (c *checker) taskNode(job uint32, r *record, n *node, cutting bool) error {
	sh := c.sh
	switch {
	case r.state == waiting && n.ins == 0, r.state == ready && n.ins > 0, n.given < n.ins:
		return fmt.Errorf("state %d with %d of %d predecessors", r.state, n.ins, n.given)
	case !r.live() && (n.outs+n.ins > 0) != cutting, r.state == freeing && !cutting:
		return fmt.Errorf("state %d with %d successors, being freed: %v", r.state, n.outs, cutting)
	}
	k, prev := uint32(0), none
	for i := n.out; k < n.outs; k++ {
		e := sh.graph.edges.at(i)
		if e.from != job || e.prevOut != prev || sh.slab.node(e.to).ins == 0 {
			return fmt.Errorf("edge %d goes from %d, behind %d, want from %d behind %d", i, e.from, e.prevOut, job, prev)
		}
		if sh.slab.node(e.to).order <= n.order {
			return fmt.Errorf("has order %d, its successor %d has %d", n.order, e.to, sh.slab.node(e.to).order)
		}
		prev, i = i, e.nextOut
	}
	if n.outs > 0 && n.outLast != prev {
		return errors.New("its last edge is not the last of its list")
	}
	k, prev = 0, none
	for i := n.in; k < n.ins; k++ {
		e := sh.graph.edges.at(i)
		if e.to != job || e.prevIn != prev {
			return fmt.Errorf("edge %d goes to %d, behind %d, want to %d behind %d", i, e.to, e.prevIn, job, prev)
		}
		if !sh.graph.linked(e.from, job) {
			return fmt.Errorf("edge %d, from %d, is not known", i, e.from)
		}
		prev, i = i, e.nextIn
	}
	if n.via != 0 && (r.live() || n.via != viaComplete) {
		return errors.New("a search left its mark")
	}
	return nil
}
