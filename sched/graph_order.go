package sched

import (
	"cmp"
	"math"
	"slices"
)

// makeOrder changes orders so that from's is less than to's. That proves that an edge between them closes no cycle:
// Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs" (2006). Nearly every edge goes
// from an older task to a younger one and costs one comparison. For the other edges makeOrder tries three ways: from
// and the tasks before it become the first of all, to and the tasks after it become the last of all, or both sets swap
// their orders. It tries each way with more and more edges to scan, so the shortest way comes to its end first. budget
// is the number of edges that the request may still scan.
func (g *graph) makeOrder(from, to uint32, budget *int) error {
	low, high := g.node(to).order, g.node(from).order
	if high < low {
		return nil
	}
	for limit := fewEdges; ; limit *= 8 {
		before, whole, err := g.reach(from, to, true, math.MinInt64, limit, budget)
		if err != nil {
			return err
		}
		if whole {
			for _, job := range slices.Backward(before) {
				g.minOrder--
				g.node(job).order = g.minOrder
			}
			return nil
		}
		after, whole, err := g.reach(to, from, false, math.MaxInt64, limit, budget)
		if err != nil {
			return err
		}
		if whole {
			for _, job := range after {
				g.node(job).order = int64(g.sh.s.lastSeq.Add(1))
			}
			return nil
		}
		if whole, err := g.swap(from, to, limit, budget); whole || err != nil {
			return err
		}
	}
}

// swap gives new orders to two sets of tasks: from with its predecessors, and to with its successors. Both sets have
// only tasks whose orders lie from that of to up to that of from. The tasks share out their orders again, and from's
// set gets the smaller ones. swap scans no task outside of these orders.
func (g *graph) swap(from, to uint32, limit int, budget *int) (whole bool, err error) {
	low, high := g.node(to).order, g.node(from).order
	after, whole, err := g.reach(to, from, false, high, limit, budget)
	if !whole {
		return false, err
	}
	before, whole, err := g.reach(from, to, true, low, limit, budget)
	if !whole {
		return false, err
	}
	tasks := append(before, after...)
	orders := make([]int64, len(tasks))
	for i, job := range tasks {
		orders[i] = g.node(job).order
	}
	slices.Sort(orders)
	for i, job := range tasks {
		g.node(job).order = orders[i]
	}
	return true, nil
}

const (
	// fewEdges is how many edges are scanned before an index or a longer search pays.
	fewEdges = 32
	// maxOrderSteps is how many edges a request may scan for the order of its tasks, under the
	// lock: a few hundredths of a second. It suffices for a hundred thousand edges on one side.
	maxOrderSteps = 1 << 18
)

// reach returns start and its successors, or with back its predecessors, in order. It stops at tasks whose orders are
// beyond bound. whole is false when it takes more than limit edges. It returns a cycleError when it reaches end.
func (g *graph) reach(start, end uint32, back bool, bound int64, limit int, budget *int) (tasks []uint32, whole bool, err error) {
	sh := g.sh
	all := []uint32{start}
	sh.slab.node(start).via = start + 1
	defer func() {
		for _, job := range all {
			sh.slab.node(job).via = 0
		}
	}()
	for i := 0; i < len(all); i++ {
		n := sh.slab.node(all[i])
		x, k := n.out, n.outs
		if back {
			x, k = n.in, n.ins
		}
		for ; k > 0; k-- {
			if limit--; limit < 0 {
				return nil, false, nil
			}
			if *budget--; *budget < 0 {
				return nil, false, errCostly
			}
			sh.countSteps(1)
			e := g.edges.at(x)
			next := e.to
			if x = e.nextOut; back {
				next, x = e.from, e.nextIn
			}
			m := sh.slab.node(next)
			if m.via != 0 || back && m.order < bound || !back && m.order > bound {
				continue
			}
			m.via = all[i] + 1
			all = append(all, next)
			if next == end {
				return nil, false, g.cycle(start, end, back)
			}
		}
	}
	return g.inOrder(all), true, nil
}

// inOrder returns tasks in their order.
func (g *graph) inOrder(jobs []uint32) []uint32 {
	type ranked struct {
		order int64
		job   uint32
	}
	all := make([]ranked, len(jobs))
	for i, job := range jobs {
		all[i] = ranked{g.node(job).order, job}
	}
	slices.SortFunc(all, func(a, b ranked) int { return cmp.Compare(a.order, b.order) })
	sorted := make([]uint32, len(jobs))
	for i, r := range all {
		sorted[i] = r.job
	}
	return sorted
}

// Bounds of a cycleError: how many names it has, and how long each is.
const (
	maxCycleNames = 32
	maxCycleName  = 255
)

// cycle names the tasks of the path between start and end that reach has just found.
func (g *graph) cycle(start, end uint32, back bool) error {
	path := []uint32{end}
	for job := end; job != start; {
		job = g.node(job).via - 1
		path = append(path, job)
	}
	if back {
		slices.Reverse(path)
	}
	names := make([]string, 0, maxCycleNames+1)
	for _, job := range path[:min(len(path), maxCycleNames)] {
		names = append(names, cutName(g.sh.nameView(job)))
	}
	return &cycleError{append(names, names[0])}
}

// cutName returns at most the first maxCycleName bytes of a name, which may have megabytes.
func cutName(name []byte) string { return string(name[:min(len(name), maxCycleName)]) }
