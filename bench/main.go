// The program bench measures Treadle beside its peers: it starts each server as a child process, loads it over real
// sockets, checks that every job arrives exactly once, and writes tables with ratios, a JSON file and a page with
// charts.
//
// Package load is the load generator, package peer has the servers. This package has:
//
//	rows.toml rows.go             the rows
//	run.go                        the run of all rows
//	measure.go repeat.go          the measurement of one row, and what it repeats meanwhile
//	api.go node.go                the measurements of the HTTP API and of Disbatch
//	meter.go http.go sample.go    the processor time and memory of a server, its pages, and the values: a sample
//	report.go table.go page.go    the report of the samples: its file, tables and page
//	sections.toml sections.go     the sections of the tables
//	targets.toml targets.go       the bounds that a run must keep
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
	os.Exit(1)
}

// bench runs the command of the arguments: the trials, a report of saved results, or the echo server.
func bench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseSettings(args, stderr)
	switch {
	case err != nil:
		return err
	case s.Frames != "":
		return load.ServeFrameEcho(ctx, s.Frames)
	case len(s.Together) > 0:
		return peer.RunTogether(ctx, s.Together)
	case s.Report != "":
		r, err := readReport(s.Report)
		if err != nil {
			return err
		}
		return errors.Join(r.print(stdout), r.savePage(pageOf(s.Report)))
	}
	return run(ctx, s, rows(), peer.All(s.Server), stdout, stderr)
}

// parseSettings parses the flags of the command line.
func parseSettings(args []string, stderr io.Writer) (s settings, err error) {
	s.Rows = regexp.MustCompile("")
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.Server, "server", "bin/treadle", "the Treadle `program` to measure")
	flags.TextVar(s.Rows, "rows", s.Rows, "measure only the rows whose name matches this `pattern`, a regular expression; bench/rows.toml has them")
	flags.IntVar(&s.Rounds, "rounds", 3, "measure each row this many `times` and take the medians")
	flags.Float64Var(&s.Scale, "scale", 1, "`factor` on the number of jobs; 0.01 for a quick look whether all works")
	flags.StringVar(&s.Out, "out", "bench/results/latest.json", "write the results as JSON to this `file`, and as a page beside it")
	flags.StringVar(&s.Report, "report", "", "measure nothing; print the tables of the saved results in this `file`, and write their page beside it")
	flags.StringVar(&s.Frames, "echo-frames", "", "measure nothing; run one event loop that echoes frames on this `address`, for the row 'frames echoed'")
	together := flags.Bool("together", false, "measure nothing; run the commands that follow, with --and between them, for servers of several processes")
	err = flags.Parse(args)
	switch {
	case err != nil:
		return s, err
	case *together:
		s.Together = flags.Args()
		return s, nil
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.Rounds < 1:
		return s, errors.New("-rounds: must be at least 1")
	case s.Scale <= 0:
		return s, errors.New("-scale: must be above 0")
	case s.Report+s.Frames != "":
		return s, nil
	}
	if s.Server, err = filepath.Abs(s.Server); err == nil {
		_, err = os.Stat(s.Server)
	}
	if err != nil {
		return s, fmt.Errorf("-server: %w; `make build` makes bin/treadle", err)
	}
	return s, nil
}
