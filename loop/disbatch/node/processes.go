package node

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/bson/primitive"
)

// nodeVariable is an environment variable of a process that runs the tasks of a node. Its value is the instance of the
// node.
const nodeVariable = "TREADLE_DISBATCH_RUNNER"

// maxProcessText bounds the bytes read of a process's arguments or environment.
const maxProcessText = 1 << 20

// instance identifies one run of a node: database and name, and an id of the run. It is the value of nodeVariable.
type instance struct{ node, id string }

// newInstance returns an instance with a new id.
func newInstance(database, node string) instance {
	return instance{node: database + "/" + node + "/", id: primitive.NewObjectID().Hex()}
}

func (i instance) String() string { return i.node + i.id }

// processes holds the tasks that processes of this host run.
type processes struct {
	tasks         map[string]bool // by id
	otherExecutor bool            // an executor of another instance of the node runs, which may run any task of the node
}

// runningTasks searches the processes of this host for tasks. A task runner of the original has the id of its task as
// an argument. A plugin or an executor has it in its environment.
func runningTasks(of instance) (processes, error) {
	p := processes{tasks: make(map[string]bool)}
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		return p, err
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all { // processes of other users and ended ones are unreadable
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
			id, ok := strings.CutPrefix(word, nodeVariable+"="+of.node)
			p.otherExecutor = p.otherExecutor || ok && id != of.id
		}
	}
	return p, err
}

// processText reads a file of zero-terminated texts.
func processText(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()                         // only read
	text, _ := io.ReadAll(io.LimitReader(f, maxProcessText)) // an error ends the text
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00")
}

// pluginEnvironment returns an environment without nodeVariable.
func pluginEnvironment(environment []string) []string {
	return slices.DeleteFunc(environment, func(e string) bool { return strings.HasPrefix(e, nodeVariable+"=") })
}
