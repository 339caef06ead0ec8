package node

import (
	"strings"

	"treadle/loop/disbatch/store"
)

// kindDemo is the kind of DemoPlugin. No configuration has it.
const kindDemo = "demo"

// demo runs the built-in plugin. Each letter of the payload's field commands writes a line to stdout (a) or stderr (b),
// or fails the task (c).
func demo(t *store.Task) store.Outcome {
	commands, _ := t.Params().DocumentOK()
	var stdout, stderr strings.Builder
	o := store.Outcome{Status: store.StatusSucceeded}
	for _, letter := range store.Text(commands.Lookup("commands")) {
		switch letter {
		case 'a':
			stdout.WriteString("a\n")
		case 'b':
			stderr.WriteString("b\n")
		case 'c':
			o.Status = store.StatusFailed
		}
	}
	o.Stdout, o.Stderr = stdout.String(), stderr.String()
	return o
}
