package disbatch

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// SettingError says that a setting cannot work.
type SettingError struct{ Err error }

// Error implements error.
func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with it.
func (e *SettingError) Unwrap() error { return e.Err }

// Listen opens a TCP address that a setting names. The error is a SettingError if no waiting ends it.
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
	if errno != 0 { // it may work another time
		return nil, err
	}
	return nil, &SettingError{err}
}
