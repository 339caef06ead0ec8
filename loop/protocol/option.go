package protocol

import (
	"fmt"
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
