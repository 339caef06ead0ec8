package periodic

import (
	"fmt"
	"strconv"
	"strings"
)

// The counts of a function, in the order in which a line of STATUS has them.
const (
	StatusWorkers = iota // workers that offer the function
	StatusJobs           // jobs that have not ended, including running ones
	StatusRunning        // jobs that workers hold
	StatusLocked         // jobs that wait for a named lock
	StatusDelayed        // jobs that are not due yet
	StatusWaiting        // jobs that wait for predecessors
	StatusFailed         // jobs that were given up and are kept; StatusJobs does not count them
	statusCounts
)

// StatusForm is the form of a line of STATUS: the number of counts that it has, from StatusWorkers on.
type StatusForm int

// The forms, by the framing of a STATUS and by the key of a CONFIG_GET.
const (
	StatusPlain     StatusForm = StatusRunning + 1 // Plain
	StatusCRC       StatusForm = StatusLocked + 1  // CRC
	StatusDetails   StatusForm = StatusWaiting + 1 // KeyStatus
	StatusAllCounts StatusForm = StatusFailed + 1  // KeyFailedStatus
)

// StatusLine is what STATUS says of one function.
type StatusLine struct {
	Func    string
	Counts  [statusCounts]int64 // a parsed line has the counts of its form, the others are 0
	SchedAt int64               // when the earliest pending job is due, in Unix seconds; the present without one
}

// AppendStatusLine appends a line of a form: the function, its counts and SchedAt, separated by commas. Lines are
// separated by newlines, which the caller appends. A name may contain both.
func AppendStatusLine(dst []byte, l *StatusLine, form StatusForm) []byte {
	dst = append(dst, l.Func...)
	for _, n := range l.Counts[:form] {
		dst = strconv.AppendInt(append(dst, ','), n, 10)
	}
	return strconv.AppendInt(append(dst, ','), l.SchedAt, 10)
}

// ParseStatus parses lines of a form. Names may contain commas and newlines: the counts are taken from the end of a
// line, and a line without enough of them is the beginning of a name.
func ParseStatus(text string, form StatusForm) ([]StatusLine, error) {
	if text == "" {
		return nil, nil
	}
	var lines []StatusLine
	begun := "" // the beginning of a name
	for line := range strings.SplitSeq(text, "\n") {
		l, ok := parseStatusLine(begun+line, form)
		if !ok {
			begun += line + "\n"
			continue
		}
		begun = ""
		lines = append(lines, l)
	}
	if begun != "" {
		return nil, fmt.Errorf("the server sent a status line that cannot be read: %q", strings.TrimSuffix(begun, "\n"))
	}
	return lines, nil
}

// parseStatusLine parses a line of the status. The name may contain commas: the counts are the last fields.
func parseStatusLine(line string, form StatusForm) (l StatusLine, ok bool) {
	fields := strings.Split(line, ",")
	name := len(fields) - int(form) - 1 // how many fields the name takes
	if name < 1 {
		return l, false
	}
	l.Func = strings.Join(fields[:name], ",")
	for i, field := range fields[name:] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return l, false
		}
		if i < int(form) {
			l.Counts[i] = n
		} else {
			l.SchedAt = n
		}
	}
	return l, true
}
