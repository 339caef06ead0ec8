// The program bench measures Treadle beside its peers: it starts each server as a child process, loads it over real
// sockets, checks that every job arrives exactly once, and prints a table with ratios.
//
// One load generator drives them all, through one small protocol interface: see trial.go for what a measurement does,
// pump.go for how it does it cheaply, and periodic.go, periodic_crc.go, gloom.go, beanstalkd.go, gearman.go and redis.go
// for what was chosen to be fair to each server, and durable.go for the servers that keep their jobs on disk. It is
// Linux only: it reads /proc and waits with epoll.
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
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, new(usageError)):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// usageError is a mistake in the flags: exit 2.
type usageError struct{ error }

// bench is the program without its exit.
func bench(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseSettings(args, stderr)
	if err != nil {
		return err
	}
	if s.Echo != "" {
		return echo(ctx, s.Echo)
	}
	if s.Attack != "" {
		return besiege(ctx, s.Attack, s.At, os.Stdin, stdout)
	}
	if s.Allocs {
		return judgeAllocations(os.Stdin, stdout)
	}
	if s.Judge != "" {
		return printTargets(s.Judge, stdout)
	}
	if s.Frames != "" {
		return echoFrames(ctx, s.Frames)
	}
	return run(ctx, s, rows(), contenders(s.Server), stdout, stderr)
}

// parseSettings reads the flags.
func parseSettings(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	server := flags.String("server", "bin/treadle", "the Treadle `program` to measure; '' measures the peers alone")
	rowPattern := flags.String("rows", "", "measure only the rows whose name matches this `pattern`, a regular expression; there are "+rowNames())
	peerPattern := flags.String("peers", "", "compare only with the peers whose name matches this `pattern`; '^$' for none")
	flags.IntVar(&s.Rounds, "rounds", 3, "measure each row this many `times` and take the medians")
	flags.Float64Var(&s.Scale, "scale", 1, "`factor` on the number of jobs; 0.01 for a quick look whether all works")
	flags.StringVar(&s.Out, "out", "bench/results/latest.json", "write the results as JSON to this `file`")
	flags.StringVar(&s.Echo, "echo", "", "be a ZeroMQ echo on this `address`, as the dwork rows need one beside them")
	flags.StringVar(&s.Attack, "attack", "", "be the attackers of this `row` on the address of -at until standard input ends, as that row needs them beside it")
	flags.StringVar(&s.At, "at", "", "the `address` to attack")
	flags.StringVar(&s.Judge, "targets", "", "measure nothing; print the table of the targets for the saved results in this `file`, as bench/NOTES.md has it")
	flags.BoolVar(&s.Allocs, "allocs", false, "measure nothing; read benchstat's CSV of allocs/op from standard input, and fail when one has grown")
	flags.StringVar(&s.Frames, "echo-frames", "", "be one event loop that echoes on this `address`, as the share of the limit needs it")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return s, err
		}
		return s, usageError{err}
	}
	var err error
	if s.Rows, err = regexp.Compile(*rowPattern); err != nil {
		return s, usageError{fmt.Errorf("-rows: %w", err)}
	}
	if s.Peers, err = regexp.Compile(*peerPattern); err != nil {
		return s, usageError{fmt.Errorf("-peers: %w", err)}
	}
	switch {
	case flags.NArg() > 0:
		return s, usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	case s.Rounds < 1:
		return s, usageError{errors.New("-rounds: must be at least 1")}
	case s.Scale <= 0:
		return s, usageError{errors.New("-scale: must be above 0")}
	}
	if *server == "" || s.Echo != "" || s.Attack != "" || s.Frames != "" || s.Judge != "" || s.Allocs {
		return s, nil
	}
	if s.Server, err = filepath.Abs(*server); err != nil {
		return s, fmt.Errorf("-server: %w", err)
	}
	if _, err := os.Stat(s.Server); err != nil {
		return s, usageError{fmt.Errorf("-server: %w; `make build` makes bin/treadle", err)}
	}
	return s, nil
}

// rowNames lists the names of all rows for the help.
func rowNames() string {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	return strings.Join(names, ", ")
}
