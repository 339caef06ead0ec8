package protocol

import (
	"fmt"

	"treadle/sched"
)

// OptionError is an error of a setting.
type OptionError struct {
	Setting string // the flag, without dashes
	Err     error
	Code    int // the exit code; 0: exitUsage
}

func (e *OptionError) Error() string { return fmt.Sprintf("--%s: %v", e.Setting, e.Err) }
func (e *OptionError) Unwrap() error { return e.Err }

// BadOption returns the error of a setting, with a text as of fmt.Errorf.
func BadOption(setting, format string, args ...any) error {
	return &OptionError{Setting: setting, Err: fmt.Errorf(format, args...)}
}

// exitUsage is the exit code of a wrong command line.
const exitUsage = 2

// ExitCode returns the exit code of the process: 2 for a wrong command line, 1 for an error that may
// pass, as a port in use, and 3 for damaged data.
func (e *OptionError) ExitCode() int {
	if e.Code == 0 {
		return exitUsage
	}
	return e.Code
}

// MinFrame has room for the largest request without a workload: a job record of Periodic with two names of 255 bytes.
const MinFrame = 1 << 10

// CheckMaxFrame returns an OptionError unless a setting for the largest frame is between MinFrame and most bytes.
func CheckMaxFrame(setting string, bytes, most int) error {
	if bytes < MinFrame || bytes > most {
		// A flag of 0 is -1 in Options, since 0 means the default.
		return BadOption(setting, "%v is not between %v and %v", sched.Size(max(bytes, 0)), sched.Size(MinFrame), sched.Size(most))
	}
	return nil
}
