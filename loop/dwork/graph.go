package dwork

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"

	"treadle/sched"
)

// graph writes the incomplete tasks and their dependencies in Graphviz' DOT language. Each task is as it was when its
// line was written. Only a whole graph has the last line.
func (p *Protocol) graph(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/vnd.graphviz; charset=utf-8")
	out := bufio.NewWriterSize(w, 64<<10)
	line := []byte("digraph dwork {\n")
	for cursor, done := (sched.Cursor{}), false; !done; {
		// One task at a time: a task with very many successors holds the lock for long.
		cursor, done = p.sched.WalkTasks(cursor, 1, Space, func(t *sched.TaskView) {
			line = appendDotTask(line, t)
		})
		if _, err := out.Write(line); err != nil {
			return // the client is gone
		}
		line = line[:0]
	}
	_, _ = out.WriteString("}\n") // Flush returns the error again
	_ = out.Flush()               // the client sees that the end is missing
}

// appendDotTask appends a task in the language DOT: a line with its name and style, and one for each predecessor.
func appendDotTask(line []byte, t *sched.TaskView) []byte {
	shape := ""
	switch t.Stage {
	case sched.StageReady:
		shape = " [style=bold]"
	case sched.StageReserved:
		shape = " [style=filled]"
	}
	line = appendDotName(append(line, '\t'), t.Name)
	line = append(append(line, shape...), ";\n"...)
	for name := range t.Before() {
		line = appendDotName(append(line, '\t'), t.Name)
		line = appendDotName(append(line, " -> "...), name)
		line = append(line, ";\n"...)
	}
	return line
}

// maxDotName is the length to which a name is cut. A name may have megabytes, and each successor of the task repeats
// it.
const maxDotName = 1 << 10

// appendDotName appends a quoted id without the middle of a long name. DOT has no escapes but that of the quote and, in
// labels, of the backslash.
func appendDotName(line, name []byte) []byte {
	if len(name) > maxDotName {
		name = fmt.Appendf(nil, "%s ... %s (%d bytes)", name[:maxDotName/2], name[len(name)-maxDotName/2:], len(name))
	}
	line = append(line, '"')
	for _, r := range string(name) {
		switch {
		case r == '"' || r == '\\':
			line = append(line, '\\', byte(r))
		case strconv.IsPrint(r):
			line = append(line, string(r)...)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			line = append(append(line, '\\'), quoted[1:len(quoted)-1]...)
		}
	}
	return append(line, '"')
}
