package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/config"
)

// A host that lost its power leaves tasks at status 0 that nothing runs any more, and that hold the
// threads of their queue. The node that starts next under this name marks them as orphaned.

// nodeVariable names, in the environment of a process that runs the tasks of a node, that node:
// database, name and life.
const nodeVariable = "TREADLE_DISBATCH_RUNNER"

const (
	// reclaimTicks is how often a node looks whether what an earlier life of it had is still run.
	reclaimTicks = 10
	// maxProcessText bounds what is read of a process's arguments or environment.
	maxProcessText = 1 << 20
)

// reclaimOwn marks running tasks of earlier lives of this node that no process of this host runs. The
// end of one that is run elsewhere is written over the mark.
func (n *Node) reclaimOwn(ctx context.Context, mine []disbatch.Task) error {
	if n.left == nil {
		n.left = make(map[primitive.ObjectID]bool)
		for _, t := range mine {
			n.left[t.ID] = t.Status == disbatch.StatusRunning
		}
	} else if n.ticks%reclaimTicks != 0 {
		return nil
	}
	var left []disbatch.Task
	n.mu.Lock()
	for _, t := range mine {
		state := n.queues[t.Queue]
		if t.Status == disbatch.StatusRunning && n.left[t.ID] && (state == nil || state.plugin.Kind != config.KindFunction) { // see recover
			left = append(left, t)
		}
	}
	n.mu.Unlock()
	if own := n.o.Config.Node.ReclaimOwn; len(left) == 0 || own != nil && !bool(*own) {
		return nil
	}
	running, err := runningTasks(n.life)
	if err != nil {
		n.say("running tasks of an earlier life", fmt.Sprintf("they stay, it cannot be seen what runs here: %v", err))
		return nil
	}
	if running.runner {
		return nil // it may have any of them
	}
	for _, t := range left {
		if running.tasks[t.ID.Hex()] {
			continue
		}
		marked, err := n.store.orphanTask(ctx, &t)
		if err != nil {
			return err
		}
		if !marked { // it has ended
			continue
		}
		n.tally.orphaned.Add(1)
		n.log.Warn("orphaned a task: nothing on this host runs it any more", "task", t.ID.Hex())
	}
	return nil
}

// nodeLife is the value of nodeVariable in processes of this node.
type nodeLife struct{ node, id string }

func newLife(database, node string) nodeLife {
	return nodeLife{node: database + "/" + node + "/", id: primitive.NewObjectID().Hex()}
}

func (l nodeLife) String() string { return l.node + l.id }

// processes are what the processes of this host run.
type processes struct {
	tasks  map[string]bool // by id
	runner bool            // one that runs the tasks of another life of the node
}

// runningTasks looks through the processes of this host for task runners: those of an original, which
// have the task's id among their arguments, and plugins and runners of Treadle, by their environment.
func runningTasks(of nodeLife) (processes, error) {
	p := processes{tasks: make(map[string]bool)}
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		return p, err
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all { // those of others, and those that have ended, cannot be read
		words := processText(dir + "/cmdline")
		for i, word := range words {
			if id, ok := strings.CutPrefix(word, "--task="); ok {
				p.tasks[id] = true
			} else if word == "--task" && i+1 < len(words) {
				p.tasks[words[i+1]] = true
			}
		}
		for _, word := range processText(dir + "/environ") {
			if id, ok := strings.CutPrefix(word, selfVariable+"="); ok {
				p.tasks[id] = true
			}
			life, ok := strings.CutPrefix(word, nodeVariable+"="+of.node)
			p.runner = p.runner || ok && life != of.id
		}
	}
	return p, err
}

// processText reads a file of texts that end with a zero byte.
func processText(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()                         // it was only read
	text, _ := io.ReadAll(io.LimitReader(f, maxProcessText)) // what was read before an error counts
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00")
}

// ofPlugin is an environment without what tells the runner of a node.
func ofPlugin(environment []string) []string {
	return slices.DeleteFunc(environment, func(e string) bool { return strings.HasPrefix(e, nodeVariable+"=") })
}
