package config

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// SettingError reports a setting that cannot work. A retry does not help.
type SettingError struct{ Err error }

// Error implements error.
func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SettingError) Unwrap() error { return e.Err }

// Listen listens on the TCP address of a setting; setting is its name for errors. The error is a SettingError if a
// retry does not help.
func Listen(address, setting string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l, nil
	}
	var errno syscall.Errno
	var where *net.OpError
	switch {
	case errors.As(err, &errno):
		err = errno
	case errors.As(err, &where):
		err = where.Err
	}
	err = fmt.Errorf("cannot listen on %s (%s): %w", address, setting, err)
	if errno != 0 { // a retry may help
		return nil, err
	}
	return nil, &SettingError{err}
}
