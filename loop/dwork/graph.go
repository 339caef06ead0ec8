package dwork

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"

	"treadle/sched"
)

// graph writes the tasks that are not complete, and who waits for whom, in Graphviz' DOT
// language. The graph goes on living meanwhile: each task is as it was when its line was
// written. The last line is there only when nothing is missing.
func (h *Hub) graph(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/vnd.graphviz; charset=utf-8")
	out := bufio.NewWriterSize(w, 64<<10)
	line := []byte("digraph dwork {\n")
	for cursor, done := (sched.Cursor{}), false; !done; {
		// One at a time: very many may wait for a task, and all others for the lock.
		cursor, done = h.sched.WalkTasks(cursor, 1, Space, func(t *sched.TaskView) {
			line = appendDotTask(line, t)
		})
		if _, err := out.Write(line); err != nil {
			return // whoever asked is gone
		}
		line = line[:0]
	}
	_, _ = out.WriteString("}\n") // Flush says it again
	_ = out.Flush()               // whoever asked sees that the end is missing
}

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

// maxDotName is how much of a name is shown. It may have megabytes, and stands there again for
// each that waits for the task.
const maxDotName = 1 << 10

// appendDotName appends a quoted id: DOT knows no escape but the quote's and, in labels,
// the backslash's. Of a long name the middle is left out.
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
