package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"treadle/loop/client"
)

// The requests of dwork's clients.
const (
	linCreate   linKind = "create"
	linSteal    linKind = "steal"
	linComplete linKind = "complete"
	linTransfer linKind = "transfer"
	linExit     linKind = "exit"
	linLookup   linKind = "lookup"
	linBacklog  linKind = "backlog" // active tasks, ready ones
)

// The replies to requests that are not names of tasks.
const (
	linOK      = "ok"
	linMissing = "not found"
	linOver    = "exit"
	linRefused = "error"
)

// linTask is a task of the graph.
type linTask struct {
	name    string
	after   string // those that it waits for, sorted, a space behind each
	holder  string // a location, or linPeer of a worker of another protocol
	loose   bool   // ready since the server started: nothing is known of its place among the others
	leaving bool   // the holder has closed its connection
}

// linPeer is the holder name of workers of other protocols.
func linPeer(worker int) string { return fmt.Sprint("#", worker) }

// linGraph is the state of the tasks that dwork clients and workers of Periodic and Gloom make and do, and the states
// that may be on disk: Create, Complete and Transfer are answered after the sync.
type linGraph struct {
	tasks  []linTask // by name
	line   []string  // ready, first ones first
	known  []string  // locations that may exit
	asking []int     // workers that were killed over a grab
	disk   linStore  // as String says it
}

func (g linGraph) equal(o linGraph) bool {
	return slices.Equal(g.tasks, o.tasks) && slices.Equal(g.line, o.line) && slices.Equal(g.known, o.known) &&
		slices.Equal(g.asking, o.asking) && slices.Equal(g.disk, o.disk)
}

// String returns the tasks in the form in which readTasks reads them from a server that has just started.
func (g linGraph) String() string {
	text := ""
	for _, t := range g.tasks {
		at := t.holder
		if strings.HasPrefix(at, "#") { // it is its connection's
			at = ""
		}
		text += linTaskText(t.name, strings.Fields(t.after), at)
	}
	return text
}

// linTaskText returns a task in the form of String.
func linTaskText(name string, after []string, location string) string {
	return fmt.Sprintf("%s,%s,%s;", name, strings.Join(slices.Sorted(slices.Values(after)), " "), location)
}

// linGraphStart returns the state of tasks in the form of String.
func linGraphStart(read string) linGraph {
	g := linGraph{disk: linStore{read}}
	for text := range strings.SplitSeq(strings.TrimSuffix(read, ";"), ";") {
		fields := strings.Split(text, ",")
		if len(fields) != 3 {
			continue
		}
		t := linTask{name: fields[0], after: fields[1], holder: fields[2], loose: true}
		if t.after != "" {
			t.after += " "
		}
		switch {
		case t.holder != "":
			g.known = with(g.known, t.holder)
		case t.after == "":
			g.line = append(g.line, t.name)
		}
		g.tasks = append(g.tasks, t)
	}
	return g
}

// with adds an element to a sorted set.
func with[T cmp.Ordered](set []T, v T) []T {
	at, found := slices.BinarySearch(set, v)
	if found {
		return set
	}
	return slices.Insert(slices.Clone(set), at, v)
}

func (g *linGraph) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(g.tasks, name, func(t linTask, name string) int { return cmp.Compare(t.name, name) })
}

// change returns a copy of a task of g that the caller may change.
func (g *linGraph) change(name string) *linTask {
	at, found := g.find(name)
	if !found {
		return nil
	}
	g.tasks = slices.Clone(g.tasks)
	return &g.tasks[at]
}

// reaches reports whether a task waits for another directly or through others.
func (g *linGraph) reaches(from, to string) bool {
	at, found := g.find(from)
	if !found {
		return false
	}
	return slices.ContainsFunc(strings.Fields(g.tasks[at].after), func(name string) bool { return name == to || g.reaches(name, to) })
}

// wait makes a task wait for the others that exist; false: that would be a cycle.
func (g *linGraph) wait(name string, after []string) bool {
	for _, other := range after {
		if other == name || g.reaches(other, name) {
			return false
		}
		if _, found := g.find(other); !found {
			continue
		}
		t := g.change(name)
		all := with(strings.Fields(t.after), other)
		t.after = strings.Join(all, " ") + " "
	}
	return true
}

// settle puts a task without holder and predecessors at an end of the ready line.
func (g *linGraph) settle(name string, front bool) {
	t := g.change(name)
	t.holder, t.leaving, t.loose = "", false, false
	switch {
	case t.after != "":
	case front:
		g.line = slices.Insert(slices.Clone(g.line), 0, name)
	default:
		g.line = append(slices.Clone(g.line), name)
	}
}

// create adds tasks and their predecessors; false: the request changes nothing.
func (g *linGraph) create(tasks []client.DworkTask) bool {
	for _, want := range tasks {
		at, found := g.find(want.Name)
		if !found {
			g.tasks = slices.Insert(slices.Clone(g.tasks), at, linTask{name: want.Name})
		}
		if !g.wait(want.Name, want.After) {
			return false
		}
		t := g.change(want.Name)
		in := slices.Index(g.line, want.Name)
		switch {
		case !found:
			g.settle(want.Name, false)
		case in >= 0 && t.after != "":
			g.line = without(g.line, in)
		}
	}
	return true
}

// give hands the i-th ready task to a holder.
func (g linGraph) give(i int, holder string) linGraph {
	t := g.change(g.line[i])
	t.holder, t.loose = holder, false
	g.line = without(g.line, i)
	return g
}

// first reports whether the i-th ready task may be handed out next.
func (g linGraph) first(i int) bool {
	loose := func(name string) bool {
		at, _ := g.find(name)
		return g.tasks[at].loose
	}
	return i == 0 || !slices.ContainsFunc(g.line[:i+1], func(name string) bool { return !loose(name) })
}

// end completes a task. The tasks that become ready may do so in any order.
func (g linGraph) end(name string) []linGraph {
	at, _ := g.find(name)
	g.tasks = without(g.tasks, at)
	var freed []string
	for i := range g.tasks {
		t := &g.tasks[i]
		names := strings.Fields(t.after)
		k := slices.Index(names, name)
		if k < 0 {
			continue
		}
		if t.after = strings.Join(without(names, k), " "); t.after != "" {
			t.after += " "
		} else if t.holder == "" {
			freed = append(freed, t.name)
		}
	}
	return g.enter(freed)
}

// enter puts tasks at the front of the ready line, in every order.
func (g linGraph) enter(freed []string) (all []linGraph) {
	if len(freed) == 0 {
		return []linGraph{g}
	}
	for i, name := range freed {
		next := g
		next.settle(name, true)
		all = append(all, next.enter(without(freed, i))...)
	}
	return all
}

// saved notes a state that will be on disk, or is.
func (g linGraph) saved(synced bool) linGraph {
	g.disk = g.disk.add(g.String(), synced)
	return g
}

func (g linGraph) stored() linStore { return g.disk }

// drift is linSpec's, as linState's is.
func (g linGraph) drift() []linGraph {
	all := []linGraph{g}
	for _, t := range g.tasks {
		if t.leaving {
			next := g
			next.settle(t.name, true)
			all = append(all, next.saved(false).drift()...)
		}
	}
	for i := range g.line {
		if !g.first(i) {
			break
		}
		for k, worker := range g.asking {
			next := g.give(i, linPeer(worker))
			next.asking = without(g.asking, k)
			all = append(all, next.drift()...)
		}
	}
	return all
}

// holds reports whether a holder has a task.
func (g *linGraph) holds(holder, name string) bool {
	at, found := g.find(name)
	return found && g.tasks[at].holder == holder
}

// after returns the possible states after a request; none: its reply is impossible.
func (g linGraph) after(o *linOp, output string) (all []linGraph) {
	switch o.kind {
	case linRestart:
		for _, read := range g.disk {
			all = append(all, linGraphStart(read))
		}
		return all
	case linCreate:
		if before := g; !g.create(o.tasks) {
			return g.answered(o, output, linRefused, false, before)
		}
		return g.answered(o, output, linOK, true, g)
	case linSteal:
		return g.steal(o, output)
	case linComplete, linTransfer, linExit:
		return g.hand(o, output)
	case linLookup:
		return g.answered(o, output, g.shown(o.name), false, g)
	case linBacklog:
		return g.answered(o, output, fmt.Sprint(len(g.tasks), " ", len(g.line)), false, g)
	case linStatus:
		held := 0
		for _, t := range g.tasks {
			if t.holder != "" {
				held++
			}
		}
		return g.answered(o, output, fmt.Sprint(len(g.tasks), " ", held), false, g)
	}
	return g.peer(o, output)
}

// answered returns the states if the reply is the expected one.
func (g linGraph) answered(o *linOp, heard, answer string, durable bool, after ...linGraph) (all []linGraph) {
	if o.known && heard != answer {
		return nil
	}
	for _, a := range after {
		all = append(all, a.saved(o.known && durable))
	}
	return all
}

// shown returns the reply to a Lookup.
func (g *linGraph) shown(name string) string {
	at, found := g.find(name)
	if !found {
		return linMissing
	}
	t := g.tasks[at]
	if strings.HasPrefix(t.holder, "#") { // what stands for a connection is the server's
		t.holder = "#"
	}
	return linTaskText(t.name, strings.Fields(t.after), t.holder)
}

// steal returns the states after a Steal, which gets the first ready tasks.
func (g linGraph) steal(o *linOp, output string) []linGraph {
	switch {
	case len(g.line) > 0:
		names := strings.Fields(output)
		g.known = with(g.known, o.location)
		return g.take(o, names)
	case len(g.tasks) > 0:
		return g.answered(o, output, linMissing, false, g)
	}
	return g.answered(o, output, linOver, false, g)
}

// take hands ready tasks to the worker that steals: the tasks of its reply if that came.
func (g linGraph) take(o *linOp, names []string) (all []linGraph) {
	if len(g.line) == 0 || o.count == 0 {
		if o.known && len(names) > 0 {
			return nil
		}
		return []linGraph{g.saved(false)}
	}
	if o.known && len(names) == 0 {
		return nil // it would have got more
	}
	rest := *o
	rest.count--
	for i, name := range g.line {
		switch {
		case !g.first(i):
		case !o.known:
			all = append(all, g.give(i, o.location).take(&rest, nil)...)
		case name == names[0]:
			all = append(all, g.give(i, o.location).take(&rest, names[1:])...)
		}
	}
	return all
}

// hand returns the states after a location's request about tasks that it holds.
func (g linGraph) hand(o *linOp, output string) []linGraph {
	known := slices.Index(g.known, o.location)
	if o.kind == linExit {
		if known < 0 {
			return g.answered(o, output, linMissing, false, g)
		}
		g.known = without(g.known, known)
		for _, t := range g.tasks { // the last of them is the first in line
			if t.holder == o.location {
				g.settle(t.name, true)
			}
		}
		return g.answered(o, output, linOK, false, g)
	}
	g.known = with(g.known, o.location)
	task := o.tasks[0]
	before := g
	held := g.holds(o.location, task.Name)
	if at, found := g.find(task.Name); found && o.kind == linComplete { // any location's, but no connection's
		held = g.tasks[at].holder != "" && !strings.HasPrefix(g.tasks[at].holder, "#")
	}
	switch {
	case !held:
		return g.answered(o, output, linMissing, true, g)
	case o.kind == linComplete:
		return g.answered(o, output, linOK, true, g.end(task.Name)...)
	case !g.wait(task.Name, task.After):
		return g.answered(o, output, linRefused, false, before)
	}
	g.settle(task.Name, false)
	return g.answered(o, output, linOK, true, g)
}

// peer returns the states after an operation of a worker of another protocol.
func (g linGraph) peer(o *linOp, output string) (all []linGraph) {
	me := linPeer(o.worker)
	switch held := g.holds(me, o.name); {
	case o.kind == linGrab && !o.known:
		g.asking = with(g.asking, o.worker)
		return []linGraph{g}
	case o.kind == linBack:
		if !slices.ContainsFunc(g.tasks, func(t linTask) bool { return t.holder == me }) {
			all = append(all, g)
		}
		return all
	case o.kind == linGrab:
		for i, name := range g.line {
			if g.first(i) && name == output {
				all = append(all, g.give(i, me))
			}
		}
		return all
	case o.kind == linLeave && o.name == "": // the connection has ended by itself
		g.tasks = slices.Clone(g.tasks)
		for i := range g.tasks {
			g.tasks[i].leaving = g.tasks[i].leaving || g.tasks[i].holder == me
		}
		return []linGraph{g}
	case !held:
		return []linGraph{g}
	case o.kind == linDone:
		return g.answered(o, output, output, false, g.end(o.name)...)
	case o.kind == linLeave:
		g.change(o.name).leaving = true
		return []linGraph{g}
	}
	g.settle(o.name, true) // failed, or put off by no time
	return []linGraph{g.saved(false)}
}
