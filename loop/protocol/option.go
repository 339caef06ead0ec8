package protocol

import "fmt"

// OptionError is a setting that cannot work.
type OptionError struct {
	Setting string // the flag's name, without dashes
	Err     error
	Code    int // the process's; 0: that of a mistake in how it was called
}

func (e *OptionError) Error() string { return fmt.Sprintf("--%s: %v", e.Setting, e.Err) }
func (e *OptionError) Unwrap() error { return e.Err }

// exitUsage is the code of a mistake in how the process was called.
const exitUsage = 2

// ExitCode is the process's for this error: 2 for a mistake in how it was called, 1 for what may
// work another time, as a port in use, and 3 for damaged data.
func (e *OptionError) ExitCode() int {
	if e.Code == 0 {
		return exitUsage
	}
	return e.Code
}
