package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/kong"
)

// version is set by the linker: -X main.version=v1.2.3.
var version = "devel"

// console is where a command reads and writes.
type console struct {
	in       io.Reader
	out, err io.Writer
	json     bool // errors are JSON
}

// say prints a note on standard error: one line, with --json one object.
func (c *console) say(format string, args ...any) {
	text := oneLine(fmt.Sprintf(format, args...))
	if c.json {
		_ = writeLines(c.err, []jsonNote{{text}}) // a note may be lost
		return
	}
	fmt.Fprintln(c.err, "treadle: "+text)
}

// fail prints an error on standard error: one line, with --json one object.
func (c *console) fail(err error) {
	text := oneLine(err.Error())
	if c.json {
		code, reason := exitOf(err)
		_ = writeLines(c.err, []jsonError{{text, reason, code}}) // the exit code says it, too
		return
	}
	fmt.Fprintln(c.err, "treadle: "+text)
}

// cli is every command with its flags.
type cli struct {
	Host    string           `short:"H" placeholder:"ADDR" help:"Server that a client command talks to: host, host:port, tcp://host:port, tls://host:port?ca=FILE, unix:///path or a path (default: 127.0.0.1; of queue, job, conn, cron, audit, top, backup, config show and reload: treadle-data/admin.sock)."`
	Framing string           `placeholder:"FRAMING" default:"auto" enum:"auto,crc,2018" help:"Framing of the Periodic protocol: crc is today's, with checksums; auto is that, and 2018's with a server that does not know it (default: ${default})."`
	CRC     bool             `name:"crc" hidden:"" help:"As --framing crc."`
	Version kong.VersionFlag `help:"Print the version and exit."`

	sources *sources // of the settings of serve
	args    []string // of the program
	by      string   // the person or program of a change, as changeCause.By; empty: the user

	commands `kong:"-"` // newParser adds those that it needs
}

// commands are the commands with their flags, in the order of the help.
type commands struct {
	Serve    serveCmd      `help:"Run the job server."`
	Demo     demoCmd       `help:"Run a server in memory with clients of its own at work, to look at its pages."`
	Submit   submitCmd     `help:"Submit a job and return."`
	Run      runCmd        `help:"Submit a job, wait for its result and print it."`
	Status   statusCmd     `help:"Show the functions, their workers and jobs."`
	Work     workCmd       `help:"Do a function's jobs by running a command for each."`
	Recv     recvCmd       `help:"Print what a job's worker sends while it runs."`
	Remove   removeCmd     `help:"Remove a job."`
	Drop     dropCmd       `help:"Remove a function without workers and all its jobs."`
	Config   configCmd     `help:"Check the settings of a server, or read and change them while it runs."`
	Dump     dumpCmd       `help:"Write all jobs to a file."`
	Load     loadCmd       `help:"Submit all jobs of a dump."`
	Reload   reloadCmd     `help:"Have the server read its configuration again."`
	Ping     pingCmd       `help:"Ask the server for a sign of life."`
	Top      topCmd        `help:"Watch rates, queues and workers live."`
	Health   healthCmd     `help:"Ask whether the server is ready; for probes."`
	Shutdown shutdownCmd   `help:"Stop the server."`
	Queue    queueCmd      `help:"Show queues, and set how their jobs are treated: retries, limits, pauses."`
	Job      jobCmd        `help:"Find jobs in any state, see why they do not run, and change them."`
	Conn     connCmd       `help:"Show or close the connections of clients and workers."`
	Cron     cronCmd       `help:"Submit jobs on a schedule: add, show, run, pause or remove entries."`
	Print    printCmd      `help:"Print alerts and a board for the metrics, or the manual page."`
	Complete completionCmd `name:"completion" help:"Print what a shell needs to complete commands."`
	Audit    auditCmd      `help:"Show who has changed what."`
	Cluster  clusterCmd    `help:"Show the nodes of a cluster of servers."`
	Backup   backupCmd     `help:"Back up a running server, or verify a backup."`
	Restore  restoreCmd    `help:"Make a data directory from a backup."`
	Journal  journalCmd    `help:"Check, repair, export or import a data directory."`
	Import   importCmd     `help:"Move the jobs of another job server here."`
	Gloom    gloomCmd      `help:"Submit and do jobs over the Gloom protocol."`
	Dwork    dworkCmd      `help:"Make and do graphs of tasks over the dwork protocol."`
	Disbatch disbatchCmd   `help:"Do the tasks of a Disbatch site, in its MongoDB."`
	Kts46    kts46Cmd      `name:"kts46" help:"Run simulations with the kts46 scheduler."`
}

// needAllCommands are the commands that look at all others.
var needAllCommands = []string{"completion", "print"}

// leadingCommand returns the command that the arguments begin with, after an optional -H ADDR. It returns "" if there
// is none, or if it needs all commands.
func leadingCommand(args []string) string {
	if len(args) > 2 && args[0] == "-H" {
		args = args[2:]
	}
	if len(args) == 0 || slices.Contains(needAllCommands, args[0]) {
		return ""
	}
	return args[0]
}

// grammar returns the parser's options for the commands, or for the one of that name if there is one: to read the flags
// of all commands takes longer than most commands.
func (c *commands) grammar(only string) (all []kong.Option) {
	v := reflect.ValueOf(c).Elem()
	for field := range v.Type().Fields() {
		name := cmp.Or(field.Tag.Get("name"), strings.ToLower(field.Name))
		option := kong.DynamicCommand(name, field.Tag.Get("help"), "", v.FieldByIndex(field.Index).Addr().Interface())
		if name == only {
			return []kong.Option{option}
		}
		all = append(all, option)
	}
	return all
}

// exitPanic carries the exit code that kong asks for after --help and --version.
type exitPanic int

// run is the whole program: it returns the exit code.
func run(args []string, con console) (code int) {
	defer func() {
		switch asked := recover().(type) {
		case nil:
		case exitPanic:
			code = int(asked)
		default:
			panic(asked)
		}
	}()
	c := &cli{}
	parser, err := newParser(c, &con, leadingCommand(args))
	if err != nil {
		return report(con, err)
	}
	if len(args) == 0 {
		run([]string{"--help"}, console{in: con.in, out: con.err, err: con.err})
		return exitUsage
	}
	if ours, err := helpTopic(parser, con, args); ours {
		return report(con, err)
	}
	c.args = helpFlags(disbatchArgs(parser.Model, args))
	parsed, err := parser.Parse(c.args)
	con.json = asksJSON(c.args, parsed, err)
	if command := helpDespite(err, c.args); command != nil {
		return run(append(command, "--help"), con)
	}
	if err != nil {
		return report(con, usage(err))
	}
	if err := refuseIgnored(parsed); err != nil {
		return report(con, err)
	}
	return report(con, parsed.Run())
}

// helpDespite returns the words of the command whose help the arguments ask for although they have the mistake err, or
// nil: who asks for help may not know yet what the arguments are.
func helpDespite(err error, args []string) (command []string) {
	var wrong *kong.ParseError
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	if !errors.As(err, &wrong) || !slices.Contains(args, "--help") && !slices.Contains(args, "-h") {
		return nil
	}
	for _, p := range wrong.Context.Path {
		if p.Command != nil {
			command = append(command, p.Command.Name)
		}
	}
	return command
}

// newParser returns the parser of the command line, which fills c, with the command of that name or with all.
func newParser(c *cli, con *console, only string) (*kong.Kong, error) {
	parser, err := kong.New(c, append(c.grammar(only),
		kong.Name("treadle"),
		kong.Description(topHelp+exitHelp()),
		kong.Vars{
			"version": versionLine(),
		},
		kong.Writers(con.out, con.err),
		kong.Bind(con, c),
		kong.KindMapper(reflect.String, kong.MapperFunc(decodeText)),
		kong.NamedMapper("size", kong.MapperFunc(decodeSize)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
		kong.Exit(func(code int) { panic(exitPanic(code)) }),
		kong.Help(printHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 100}),
	)...)
	if err != nil {
		return nil, err
	}
	for _, command := range parser.Model.Children {
		for _, flag := range command.Flags {
			if flag.Tag.Has("reload") {
				flag.Help += " A reload changes it."
			}
		}
	}
	return parser, nil
}

// decodeText takes an argument byte for byte: names and workloads need not be UTF-8, and kong's own mapper
// replaces invalid bytes.
func decodeText(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	text, ok := token.Value.(string)
	if !ok {
		return fmt.Errorf("expected text but got %v", token.Value)
	}
	target.SetString(text)
	return nil
}

// oneLine returns a text on one line, with control characters escaped: names and replies may hold any bytes.
func oneLine(s string) string {
	s = strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ")
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if unicode.IsGraphic(r) && (r != utf8.RuneError || n > 1) {
			b.WriteString(s[:n])
		} else {
			quoted := strconv.Quote(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// versionLine is what --version prints.
func versionLine() string {
	line := fmt.Sprintf("treadle %s", version)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				line += " " + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return fmt.Sprintf("%s %s %s/%s", line, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// readWorkload returns the bytes that -w names: the text itself, @FILE's content or, for @-, standard input.
func readWorkload(w string, in io.Reader) ([]byte, error) {
	file, isFile := strings.CutPrefix(w, "@")
	switch {
	case !isFile:
		return []byte(w), nil
	case file == "-":
		return io.ReadAll(in)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the workload: %w", err)
	}
	return data, nil
}
