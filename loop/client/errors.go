package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// Errors for a server's replies.
var (
	// ErrRefused is the reply UNKNOWN: the server does not know the request, or refuses it because
	// of its disk, a limit or a setting.
	ErrRefused = errors.New("the server refused the request (it answered UNKNOWN)")
	// ErrNoWorker is the reply NO_WORKER of the CRC framing since 2019: no worker offers the function.
	ErrNoWorker = errors.New("no worker for this function is connected")
	// ErrFailed, ErrExpired and ErrRemoved are ends of a Run without a result.
	ErrFailed  = errors.New("the job failed")
	ErrExpired = errors.New("the job was not done within its time-out")
	ErrRemoved = errors.New("the job was removed before it was done")
	// ErrClosed reports that the server closed the connection.
	ErrClosed = errors.New("the server closed the connection")
	// ErrNotPeriodic reports a peer whose bytes are not frames of the protocol.
	ErrNotPeriodic = errors.New("the peer does not speak Periodic in this framing")

	errClosedHere = errors.New("this connection has been closed")
)

// DialError reports a server that could not be reached.
type DialError struct {
	Address string // as network://address
	Setting string // the setting that names the server on the command line
	Err     error
}

func (e *DialError) Error() string {
	return fmt.Sprintf("cannot connect to %s: %v (is `treadle serve` running? %s names the server)", e.Address, e.Err, e.Setting)
}

// Unwrap returns the cause.
func (e *DialError) Unwrap() error { return e.Err }

// SocketError reports a socket that is not used because it may belong to another program than the
// server.
type SocketError struct {
	Address string // as network://address
	Err     error
}

func (e *SocketError) Error() string {
	return fmt.Sprintf("will not connect to %s: %v", e.Address, e.Err)
}

// Unwrap returns the cause.
func (e *SocketError) Unwrap() error { return e.Err }

// AddressError reports an invalid address.
type AddressError struct {
	Address string // as given
	Setting string // the setting that names the server on the command line
	Err     error
}

func (e *AddressError) Error() string {
	more := ""
	if e.Setting == adminSetting {
		more = ", or http://host:port"
	}
	return fmt.Sprintf("%s: %q: %v; write it as host, host:port, tcp://host:port, tls://host:port, unix:///path or a path%s", e.Setting, e.Address, e.Err, more)
}

// Unwrap returns the cause.
func (e *AddressError) Unwrap() error { return e.Err }

// AnswerError is the API's refusal of a request.
type AnswerError struct {
	Status int    // of HTTP
	Reason string // the label of the refusal in the metrics, or empty
	Text   string
}

func (e *AnswerError) Error() string { return e.Text }

// simplify returns the innermost cause of an error of package net, because the callers name the
// operation and the address.
func simplify(err error) error {
	var errno syscall.Errno
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &contextError{"no answer in time", context.DeadlineExceeded}
	case errors.Is(err, context.Canceled):
		return &contextError{"interrupted", context.Canceled}
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return ErrClosed
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &dns):
		return dns
	}
	return err
}

// contextError is an error of package context in a user's words.
type contextError struct {
	text string
	err  error
}

func (e *contextError) Error() string { return e.text }
func (e *contextError) Unwrap() error { return e.err }
