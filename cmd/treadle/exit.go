package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"treadle/loop/client"
)

// Exit codes of all commands.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitData        = 3 // also of a server whose disk fails
	exitNotFound    = 4
	exitForbidden   = 5
	exitInterrupted = 130
)

// exits is the table of exit codes in treadle --help and in docs/operations.md of this package. reason is that of
// errors in JSON, unless the server names another.
var exits = [...]struct {
	code            int
	reason, meaning string
}{
	{0, "", "success"},
	{exitFailure, "failed", "refused, or failed: as a port or a directory that is in use"},
	{exitUsage, "usage", "usage error, or a setting that cannot work"},
	{exitUnreachable, "unreachable", "no server answers, or not as one of the protocol; data on disk is damaged or cannot be written"},
	{exitNotFound, "not-found", "the job, queue, entry or setting is not there"},
	{exitForbidden, "not-allowed", "the server, one of its settings or the rights of its socket forbid it"},
	{exitInterrupted, "interrupted", "interrupted by a signal"},
}

// exitHelp returns the exit codes for treadle --help.
func exitHelp() string {
	var b strings.Builder
	b.WriteString("\n\nExit codes:\n\n")
	for _, e := range exits {
		fmt.Fprintf(&b, "\t%-4d %s\n", e.code, e.meaning)
	}
	return b.String()
}

// usageError is a mistake in how the program was called.
type usageError struct{ error }

func (usageError) ExitCode() int   { return exitUsage }
func (u usageError) Unwrap() error { return u.error }

func badUsage(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// noSuch returns the error of a thing that is not there.
func noSuch(format string, args ...any) error {
	return coded{error: fmt.Errorf(format, args...), code: exitNotFound}
}

// coded is an error with an exit code of its own, and perhaps a reason in JSON.
type coded struct {
	error
	code   int
	reason string
}

// Unwrap returns the error without its code.
func (c coded) Unwrap() error { return c.error }

// silent is a failure with an exit code and no message.
type silent struct{ error }

func (s silent) Unwrap() error { return s.error }

// reachError reports an HTTP server that does not answer.
type reachError struct{ error }

// Unwrap returns the cause.
func (r reachError) Unwrap() error { return r.error }

// killed is the error of a worker that a second signal has ended together with its commands.
type killed struct{}

func (killed) Error() string { return "the running commands were killed" }

// ExitCode returns the exit code of an interrupted command.
func (killed) ExitCode() int { return exitInterrupted }

// exitOf returns the exit code of an error, and its reason in JSON.
func exitOf(err error) (code int, reason string) {
	var own interface{ ExitCode() int }
	var answer *client.AnswerError
	var set coded
	if errors.As(err, &answer) {
		reason = answer.Reason
	}
	switch {
	case errors.As(err, &set):
		code, reason = set.code, cmp.Or(set.reason, reason)
	case errors.As(err, &own):
		code = own.ExitCode()
	case errors.As(err, new(*client.AddressError)):
		code = exitUsage
	case errors.Is(err, context.Canceled):
		code = exitInterrupted
	case forbidden(err, answer):
		code = exitForbidden
	case answer != nil && answer.Status == http.StatusNotFound:
		code = exitNotFound
	case answer != nil && answer.Status == http.StatusBadRequest:
		code = exitUsage
	case unreachable(err):
		code = exitUnreachable
	default:
		code = exitFailure
	}
	for _, e := range exits {
		if e.code == code && reason == "" {
			reason = e.reason
		}
	}
	return code, reason
}

// forbidden reports whether an error says that the server does not allow a request, or the system its socket. answer is
// that of the operators' interface, or nil.
func forbidden(err error, answer *client.AnswerError) bool {
	var refused *client.RefusedError
	switch {
	case answer != nil:
		return answer.Status == http.StatusForbidden || answer.Status == http.StatusUnauthorized
	case errors.As(err, &refused):
		return refused.Forbidden()
	}
	return errors.As(err, new(*client.DialError)) && errors.Is(err, fs.ErrPermission)
}

// unreachable reports whether an error says that no server answers, or that the peer is not one.
func unreachable(err error) bool {
	return errors.As(err, new(*client.DialError)) || errors.As(err, new(*client.SocketError)) || errors.As(err, new(*client.PeerError)) ||
		errors.As(err, new(reachError)) ||
		errors.Is(err, client.ErrClosed) || errors.Is(err, context.DeadlineExceeded)
}

// jsonNote is a note of a command with --json.
type jsonNote struct {
	Note string `json:"note"`
}

// jsonError is an error of a command with --json.
type jsonError struct {
	Error  string `json:"error"`
	Reason string `json:"reason"`
	Exit   int    `json:"exit"`
}

// asksJSON reports whether a command line has --json. failed is the parser's error, whose flags are not all known.
func asksJSON(args []string, parsed *kong.Context, failed error) bool {
	if failed != nil {
		if end := slices.Index(args, "--"); end >= 0 {
			args = args[:end]
		}
		return slices.Contains(args, "--json")
	}
	return slices.ContainsFunc(parsed.Path, func(p *kong.Path) bool { return p.Flag != nil && p.Flag.Name == "json" && p.Flag.Target.Bool() })
}

// report prints an error, of several each, and returns the exit code that it stands for.
func report(con console, err error) int {
	if err == nil {
		return 0
	}
	code, reason := exitOf(err)
	if errors.As(err, new(silent)) {
		return code
	}
	all := problems{err}
	errors.As(err, &all)
	for _, one := range all {
		con.fail(coded{one, code, reason})
	}
	return code
}
