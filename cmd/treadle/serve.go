package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"treadle/loop"
	"treadle/loop/setting"
)

// serveCmd holds the settings of treadle serve: those of loop.Options, and those that concern the program alone.
type serveCmd struct {
	Config string   `name:"config" placeholder:"FILE" help:"TOML file of settings, named as these flags without the dashes; flags win (default: none)."`
	Only   []string `name:"only" enum:"periodic,gloom,dwork,kts46,beanstalk,faktory" default:"periodic,gloom,dwork,kts46" placeholder:"PROTOCOL,..." help:"Protocols to serve, of periodic, gloom, dwork and kts46, whose addresses are off if they are left out, and beanstalk and faktory, which have their default ports if they are named (default: periodic,gloom,dwork,kts46)."`

	loop.Options `embed:""`

	MaxMemory memorySize `name:"max-memory" group:"Limits" default:"70%" placeholder:"SIZE" help:"Memory that the server may hold before new jobs are refused, as 2GiB, or a part of what the container or the machine has, at most 80%; off or 0: no limit (default: ${default})."`

	LogLevel  string `name:"log-level" group:"Log" enum:"debug,info,warn,error" default:"info" reload:"" help:"Least level that is logged: debug, info, warn or error (default: ${default})."`
	LogFormat string `name:"log-format" group:"Log" enum:"text,json" default:"text" help:"Form of the log on standard error: text or json (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (serveCmd) Help() string {
	return `Serves until SIGTERM or SIGINT. The server then hands out no more jobs, waits up to --drain for running jobs and pending replies, and exits 0; a second signal exits at once. The log says how many jobs are still running; jobs in the journal run again after the next start.

	treadle serve
	treadle serve --periodic tcp://0.0.0.0:5000 --periodic unix:///run/periodic.sock
	treadle serve --only periodic,gloom
	treadle serve --only beanstalk
	treadle serve --config /etc/treadle.toml --log-level debug

A configuration file is TOML with the names of the flags. Each flag has a variable, too: TREADLE_SERVE_MAX_FRAME for --max-frame, with commas between the elements of a list. A flag wins over its variable, that over the file:

	periodic = ["tcp://0.0.0.0:5000"]
	max-frame = "16MiB"
	drain = "30s"

SIGHUP and treadle reload read the file again.`
}

// Run serves until a signal.
func (s *serveCmd) Run(c *cli, con *console) error {
	r := &runningServer{c: c, level: new(slog.LevelVar)}
	r.level.Set(levelOf(s.LogLevel))
	r.log = newLog(con.err, r.level, s.LogFormat)
	o, soft, err := s.completeOptions(c.sources, r.log)
	if err != nil {
		return c.sources.blame(err)
	}
	warnIgnored(r.log)
	if unknown := s.unknownVariables(); unknown != nil {
		r.log.Warn("variables that name no setting are ignored", "variables", strings.Join(unknown, " "))
	}
	if r.manager, err = newServiceManager(); err != nil {
		r.log.Warn("the service manager is not told of the start", "error", err)
	}
	hangups, forget := notifyHangups()
	defer forget()
	o.Admin.Configuration, o.Started = r, func([]loop.Listening) {
		go r.follow(hangups)
		r.manager.ready(serving)
		go r.manager.watch(r.live)
	}
	setSoftLimit(soft)
	if o.Cluster.Name != "" {
		return s.runNode(c, r, o)
	}
	if r.server, err = loop.New(o); err != nil {
		return c.sources.blameEach(err)
	}
	first, stop := r.untilSignal()
	defer stop()
	return c.sources.blame(settingError(r.server.Run(first)))
}

// runNode serves as a node of a cluster until a signal.
func (s *serveCmd) runNode(c *cli, r *runningServer, o loop.Options) error {
	o.Started(nil) // SIGHUP is heard from now on
	first, stop := r.untilSignal()
	defer stop()
	return c.sources.blameEach(loop.RunCluster(first, o, r))
}

// serving is what the service manager shows of a server that runs.
const serving = "Serving"

// stopTime is the time in which a server ends after --drain: it writes what the journal still has in memory.
const stopTime = 30 * time.Second

// untilSignal returns a context that ends with the first signal. The second one ends the process.
func (r *runningServer) untilSignal() (first context.Context, stop func()) {
	first, second, stop := signals()
	context.AfterFunc(first, func() {
		r.log.Info("stopping", "drain", r.drain())
		r.manager.stopping(r.drain() + stopTime)
	})
	context.AfterFunc(second, func() { os.Exit(exitInterrupted) })
	return first, stop
}

// completeOptions returns the settings of the server with what the program adds, and Go's soft limit of memory. Errors
// are as those of loop.New.
func (s *serveCmd) completeOptions(from *sources, log *slog.Logger) (o loop.Options, soft int64, err error) {
	if o, err = s.options(); err != nil {
		return o, 0, err
	}
	o.Log, o.Admin.Rules, o.Admin.Cron = log, from.rules, from.cron
	// Absolute paths, so that the log and errors name a directory that can be found from elsewhere.
	for name, path := range map[string]*string{"data": &o.Data, "run-dir": &o.RunDir} {
		if *path == "" || *path == loop.NoData && name == "data" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return o, 0, &loop.OptionError{Setting: name, Err: err}
		}
	}
	if len(o.Admin.Listen) == 0 && o.Data != loop.NoData {
		o.Admin.Listen = adminSocket(o.Data, log)
	}
	o.MaxMemory, soft, err = s.MaxMemory.limit(os.DirFS("/"))
	return o, soft, err
}

// longestSocket is the longest path that the system takes for a socket.
const longestSocket = len(syscall.RawSockaddrUnix{}.Path) - 1

// adminSocket returns the default address of the operators' interface. A directory with too long a path has none.
func adminSocket(data string, log *slog.Logger) []string {
	path := filepath.Join(data, loop.AdminSocket)
	if len(path) > longestSocket {
		log.Warn("treadle queue, treadle job and treadle cron cannot reach this server: the path of the socket is too long; name another with --admin", "path", path)
		return off
	}
	return []string{"unix://" + path}
}

// disableUnlisted switches off the protocols that --only does not name, and those that are off by default on when it
// does. It refuses an address for one that it leaves out, but for those.
func (s *serveCmd) disableUnlisted(o *loop.Options) error {
	if len(s.Only) == 0 {
		return &loop.OptionError{Setting: "only", Err: errors.New("it is empty; name periodic, gloom, dwork, kts46, beanstalk or faktory")}
	}
	for _, p := range []struct {
		protocol, setting string
		addresses         *[]string
	}{
		{"periodic", "periodic", &o.Periodic.Listen}, {"gloom", "gloom-masters", &o.Gloom.Masters}, {"gloom", "gloom-slaves", &o.Gloom.Slaves},
		{"dwork", "dwork", &o.Dwork.Listen}, {"kts46", "kts46", &o.Kts46.Listen}, {"kts46", "kts46-json", &o.Kts46.JSON},
	} {
		if slices.Contains(s.Only, p.protocol) {
			continue
		}
		if given := *p.addresses; len(given) > 0 && !slices.Equal(given, off) {
			err := fmt.Errorf("%s leaves %s out, and --%s gives it an address: name %s here too, or leave the address out",
				strings.Join(s.Only, ","), p.protocol, p.setting, p.protocol)
			return &loop.OptionError{Setting: "only", Err: err}
		}
		*p.addresses = off
	}
	for _, protocol := range s.Only {
		o.TurnOn(protocol)
	}
	return nil
}

// off are the addresses of a protocol that is not served.
var off = []string{"off"}

// options returns the settings of the server as the command line has them.
func (s *serveCmd) options() (loop.Options, error) {
	o := s.Options
	o.Explicit, o.Version = true, version
	o.Web.Docs, o.Web.Topics = pages, topics
	if err := s.disableUnlisted(&o); err != nil {
		return o, err
	}
	if o.Data == "" {
		return o, &loop.OptionError{Setting: "data", Err: errors.New("it is empty; name a directory, or none")}
	}
	if o.Disbatch.Config == "" {
		return o, nil
	}
	site, err := disbatchConfig(o.Disbatch.Config)
	if err != nil {
		return o, &loop.OptionError{Setting: "disbatch", Err: err}
	}
	o.Disbatch.Config = site.Path
	o.Disbatch.Executor, err = disbatchExecutor(site)
	return o, err
}

// levelOf returns the level of a name that the flags' enums allow.
func levelOf(name string) (level slog.Level) {
	_ = level.UnmarshalText([]byte(name)) // it knows the names
	return level
}

// newLog returns a logger of a format that the flags' enums allow.
func newLog(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	// JSON keeps numbers for programs; the text has times as the flags do.
	o.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(setting.FormatDuration(a.Value.Duration()))
		}
		return a
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// warnIgnored logs which variables of the original's server are set and ignored.
func warnIgnored(log *slog.Logger) {
	var set []string
	for _, name := range []string{hostVariable, pathVariable} {
		if os.Getenv(name) != "" {
			set = append(set, name)
		}
	}
	if set != nil {
		log.Warn("variables of the original's server are ignored: --periodic and --data are the settings, or call the program as "+originalName+", by a link", "variables", strings.Join(set, " "))
	}
}

// ignoreHangups logs every SIGHUP until stop is called. Other programs read their settings again on it.
func ignoreHangups(log *slog.Logger) (stop func()) {
	hangups, stop := notifyHangups()
	go func() {
		for range hangups {
			log.Warn("SIGHUP is ignored: settings are read at the start, so restart the server to change them")
		}
	}()
	return stop
}

// signals returns contexts that end with the first and the second SIGTERM or
// SIGINT.
func signals() (first, second context.Context, stop func()) {
	first, endFirst := context.WithCancel(context.Background())
	second, endSecond := context.WithCancel(context.Background())
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGINT)
	stopped := make(chan struct{})
	go func() {
		for _, end := range []func(){endFirst, endSecond} {
			select {
			case <-received:
				end()
			case <-stopped:
				return
			}
		}
	}()
	return first, second, func() {
		signal.Stop(received)
		close(stopped)
	}
}
