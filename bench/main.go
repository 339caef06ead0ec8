// The program bench measures Treadle beside its peers: it starts each server as a child process, loads it over real
// sockets, checks that every job arrives exactly once, and writes tables with ratios, a JSON file and a page with charts.
//
// Package load is the load generator, package peer has the servers. This package has the rows (rows.toml), the
// measurements (measure.go, and node.go for Disbatch) and the report (sections.toml, targets.toml, page.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"treadle/bench/load"
	"treadle/bench/peer"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	if errors.As(err, new(usageError)) {
		os.Exit(2)
	}
	os.Exit(1)
}

// usageError reports a mistake in the flags: exit 2.
type usageError struct{ error }

// bench runs the program and returns its error.
func bench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, other, err := parseSettings(args, stderr)
	if err != nil {
		return err
	}
	if other != nil {
		return other(ctx, stdout)
	}
	return run(ctx, s, rows(), peer.All(s.Server), stdout, stderr)
}

// instead is another action in place of a run.
type instead func(ctx context.Context, w io.Writer) error

// parseSettings reads the flags.
func parseSettings(args []string, stderr io.Writer) (s settings, other instead, err error) {
	s.Rows, s.Peers = regexp.MustCompile(""), regexp.MustCompile("")
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.Server, "server", "bin/treadle", "the Treadle `program` to measure; '' measures the peers alone")
	flags.TextVar(s.Rows, "rows", s.Rows, "measure only the rows whose name matches this `pattern`, a regular expression; there are "+strings.Join(rowNames(), ", "))
	flags.TextVar(s.Peers, "peers", s.Peers, "compare only with the peers whose name matches this `pattern`; '^$' for none")
	flags.IntVar(&s.Rounds, "rounds", 3, "measure each row this many `times` and take the medians")
	flags.Float64Var(&s.Scale, "scale", 1, "`factor` on the number of jobs; 0.01 for a quick look whether all works")
	flags.StringVar(&s.Out, "out", "bench/results/latest.json", "write the results as JSON to this `file`, and as a page beside it")
	with := func(do func(ctx context.Context, argument string, w io.Writer) error) func(argument string) error {
		return func(argument string) error {
			other = func(ctx context.Context, w io.Writer) error { return do(ctx, argument, w) }
			return nil
		}
	}
	flags.Func("echo", "be a ZeroMQ echo on this `address`, as the dwork rows need one beside them",
		with(func(ctx context.Context, address string, _ io.Writer) error { return load.ServeEcho(ctx, address) }))
	flags.Func("echo-frames", "be one event loop that echoes on this `address`, as the share of the limit needs it",
		with(func(ctx context.Context, address string, _ io.Writer) error { return load.ServeFrameEcho(ctx, address) }))
	flags.Func("targets", "measure nothing; print the table of the targets for the saved results in this `file`, as bench/NOTES.md has it",
		with(func(_ context.Context, file string, w io.Writer) error {
			r, err := readReport(file)
			if err == nil {
				_, err = io.WriteString(w, markdown(r.targetTable(true)))
			}
			return err
		}))
	flags.Func("page", "measure nothing; write the page for the saved results in this `file` beside it",
		with(func(_ context.Context, file string, _ io.Writer) error {
			r, err := readReport(file)
			if err == nil {
				err = r.savePage(pageOf(file))
			}
			return err
		}))
	flags.BoolFunc("allocs", "measure nothing; read benchstat's CSV of allocs/op from standard input, and fail when one has grown",
		with(func(_ context.Context, _ string, w io.Writer) error { return judgeAllocations(os.Stdin, w) }))
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return s, nil, err
	case err != nil:
		return s, nil, usageError{err}
	case flags.NArg() > 0:
		return s, nil, usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	case s.Rounds < 1:
		return s, nil, usageError{errors.New("-rounds: must be at least 1")}
	case s.Scale <= 0:
		return s, nil, usageError{errors.New("-scale: must be above 0")}
	case s.Server == "" || other != nil:
		return s, other, nil
	}
	if s.Server, err = filepath.Abs(s.Server); err == nil {
		_, err = os.Stat(s.Server)
	}
	if err != nil {
		return s, nil, usageError{fmt.Errorf("-server: %w; `make build` makes bin/treadle", err)}
	}
	return s, nil, nil
}
