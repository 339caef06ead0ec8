package main

import (
	"cmp"
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
)

// serveCmd holds the flags of treadle serve: the settings of loop.Options.
type serveCmd struct {
	Config configPath `placeholder:"FILE" help:"TOML file of settings, named as these flags without the dashes; flags win (default: none)."`

	Only             []string `enum:"periodic,gloom,dwork,kts46" default:"periodic,gloom,dwork,kts46" placeholder:"PROTOCOL,..." help:"Protocols to serve, of periodic, gloom, dwork and kts46; the addresses of the others are off (default: all)."`
	Periodic         []string `sep:"none" placeholder:"ADDR" help:"Address of the Periodic protocol, tcp://host:port or unix:///path (mode 0660), or off; repeatable (default: tcp://127.0.0.1:5000 and unix:///tmp/periodic.sock)."`
	Bind             string   `placeholder:"HOST" help:"Host of every default TCP address (default: 127.0.0.1)."`
	RunDir           string   `placeholder:"DIR" help:"Directory of the default socket, periodic.sock, made when missing; no other user can put one there first (default: /tmp)."`
	PeriodicGrab     string   `enum:"hold,document" default:"hold" help:"Answer to a worker's GRAB_JOB when no job is ready: hold it until there is one, or NO_JOB as the document says: hold or document (default: ${default})."`
	PeriodicCRC      string   `name:"periodic-crc" enum:"2019-02,2019,2020,2023,2026" default:"2023" help:"Version of the protocol in which clients of the CRC framing are answered: 2019-02, 2019, 2020, 2023 or 2026; an address of --periodic may have its own, as in tcp://:5001?crc=2020 (default: ${default})."`
	PeriodicShutdown string   `enum:"on,off" default:"on" help:"Whether a client's SHUTDOWN stops the server: on or off (default: ${default})."`
	GloomMasters     []string `sep:"none" placeholder:"ADDR" help:"Address of the Gloom protocol for masters, or off; repeatable (default: tcp://127.0.0.1:9998)."`
	GloomSlaves      []string `sep:"none" placeholder:"ADDR" help:"Address of the Gloom protocol for slaves, or off; repeatable (default: tcp://127.0.0.1:9999)."`
	GloomMaxFrame    byteSize `default:"64MiB" placeholder:"SIZE" help:"Largest Gloom frame (default: ${default})."`
	GloomJSON        string   `name:"gloom-json" enum:"lax,strict" default:"lax" help:"Raw control characters, as a newline, in strings of Gloom clients: lax reads them as their escapes, as the original does, strict refuses them (default: ${default})."`
	Dwork            []string `sep:"none" placeholder:"ADDR" help:"Address of the dwork protocol, or off; repeatable (default: tcp://127.0.0.1:6125)."`
	Kts46            []string `name:"kts46" sep:"none" placeholder:"ADDR" help:"Address of the kts46 scheduler's XML-RPC, or off; repeatable (default: tcp://127.0.0.1:46210)."`
	Kts46JSON        []string `name:"kts46-json" sep:"none" placeholder:"ADDR" help:"Address of its JSON-RPC, version 2, or off; repeatable (default: tcp://127.0.0.1:46400)."`
	Admin            []string `sep:"none" placeholder:"ADDR" help:"Address of the operators' interface for treadle queue, treadle failed and treadle cron, unix:///path (mode 0600) or tcp://host:port, or off; repeatable (default: admin.sock in the directory of --data, off with --data none)."`
	HTTP             string   `name:"http" placeholder:"HOST:PORT" help:"Address of /metrics, /livez, /readyz and /healthz, or off (default: 127.0.0.1:5001)."`
	MetricsMaxQueues int      `default:"500" placeholder:"N" help:"Queues with lines of their own in /metrics, at most 10000; all others are summed as _other (default: ${default})."`
	Pprof            string   `enum:"on,off" default:"off" help:"Whether Go's profiles are served there, too, under /debug/pprof: on or off (default: ${default})."`
	AllowHost        []string `sep:"none" placeholder:"NAME" help:"Host name that HTTP requests may be sent to, on every HTTP port, beside IP addresses, localhost, this host's own name and those in addresses of these settings; repeatable (default: none)."`

	Data         string        `default:"./treadle-data" placeholder:"DIR" help:"Directory of the journal, made when missing, or none: jobs live in memory alone (default: ${default})."`
	Sync         string        `enum:"always,interval,never" default:"always" help:"When a change is synced to disk: always (before it is acknowledged), interval (a crash loses at most the last interval) or never (the operating system decides) (default: ${default})."`
	SyncInterval time.Duration `default:"50ms" placeholder:"TIME" help:"Time between commits that nothing waits for (default: ${default})."`
	MinFree      byteSize      `default:"256MiB" placeholder:"SIZE" help:"Free space on the disk of --data below which new jobs are refused, at least 128MiB (default: ${default})."`

	DworkMaxFrame byteSize      `default:"16MiB" placeholder:"SIZE" help:"Largest ZeroMQ frame of the dwork protocol (default: ${default})."`
	DworkMaxSteal int           `default:"65536" placeholder:"N" help:"Most tasks that one Steal is given (default: ${default})."`
	DworkIdle     string        `enum:"exit,notfound" default:"exit" help:"Answer to a Steal when no task is left: exit, which ends workers, or notfound (default: ${default})."`
	DworkStop     string        `enum:"exit,notfound" default:"exit" help:"Answer to a Steal while the server stops: exit, which ends workers, or notfound, which has them go on with the server that is started next (default: ${default})."`
	DworkComplete string        `enum:"any,holder" default:"any" help:"Which worker may complete a task that one of them holds: any, or its holder alone (default: ${default})."`
	DworkRestart  string        `enum:"keep,ready" default:"keep" help:"What becomes of assigned tasks at a restart: keep them with their worker, or make them ready (default: ${default})."`
	DworkLease    time.Duration `default:"0s" placeholder:"TIME" help:"Silence of a worker after which its tasks are ready again; 0s: never (default: ${default})."`
	DworkRemember time.Duration `default:"0s" placeholder:"TIME" help:"How long complete tasks can be looked up; 0s: not at all (default: ${default})."`

	Kts46Timeout      time.Duration `name:"kts46-timeout" default:"5s" placeholder:"TIME" help:"How often a kts46 worker is told to report (default: ${default})."`
	Kts46TimeoutUnit  string        `name:"kts46-timeout-unit" enum:"s,ms" default:"s" help:"Unit in which version 1 is told that: s, which its original worker reads, or ms, as its document says (default: ${default})."`
	Kts46RestartAfter time.Duration `name:"kts46-restart-after" default:"0s" placeholder:"TIME" help:"Silence of a worker after which its task is queued again; 0s: never, because an external supervisor does this (default: ${default})."`
	Kts46MongoDB      string        `name:"kts46-mongodb" placeholder:"URI" help:"MongoDB of the site, as mongodb://HOST:27017, where the original kts46 workers and web interface have projects and jobs (default: none)."`
	Kts46Databases    []string      `name:"kts46-databases" placeholder:"HOST:PORT" help:"Databases that version 2 names to its workers; the original ones use the first (default: those of --kts46-mongodb)."`

	Disbatch     string `placeholder:"FILE" help:"The config.json of a Disbatch site; the server is an execution node of it, and its workers do tasks (default: none)."`
	DisbatchNode string `placeholder:"NAME" help:"Name of that node (default: the host's)."`

	Loops          int        `default:"0" placeholder:"N" help:"Event loops; 0: one fewer than the processors, at least 1 (default: ${default})."`
	Shards         int        `default:"16" placeholder:"N" help:"Shards of the scheduler, each with its own lock (default: ${default})."`
	MaxConnections int        `default:"0" placeholder:"N" help:"Most connections open at once, over all ports; a quarter is set aside in equal shares for the protocols that are served; 0: the limit of open files less the server's own (default: ${default})."`
	MaxFrame       byteSize   `default:"64MiB" placeholder:"SIZE" help:"Largest request in bytes, or with k, m, g for powers of 1024 (default: ${default})."`
	MaxMemory      memorySize `default:"70%" placeholder:"SIZE" help:"Memory that the server may hold before new jobs are refused, as 2GiB, or a part of what the container or the machine has, at most 80%, or off (default: ${default})."`
	MaxOutbound    byteSize   `default:"0" placeholder:"SIZE" help:"Most bytes queued for a peer that does not read; beyond, it is closed; 0: twice the larger of --max-frame and --gloom-max-frame (default: ${default})."`

	HandshakeTimeout time.Duration `default:"10s" placeholder:"TIME" help:"Time in which a new connection must send its handshake, or in Gloom its first byte, as in 500ms, 10s, 2m (default: ${default})."`
	FrameTimeout     time.Duration `default:"100s" placeholder:"TIME" help:"Time a request may stay unfinished (default: ${default})."`
	PeriodicGrace    time.Duration `default:"1s" placeholder:"TIME" help:"Time between a Periodic job's time-out and its return to the queue, so that a worker that ends the job on time can report it; 0s: none (default: ${default})."`
	Drain            time.Duration `default:"10s" placeholder:"TIME" help:"Time a stopping server waits for running jobs and delivers pending replies; 0s: none (default: ${default})."`

	LogLevel  string `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error (default: ${default})."`
	LogFormat string `enum:"text,json" default:"text" help:"Form of the log on standard error: text or json (default: ${default})."`
}

// Run serves until a signal.
func (s *serveCmd) Run(c *cli, con *console) error {
	o, err := s.options()
	if err != nil {
		return err
	}
	if c.file != nil {
		o.Admin.Rules, o.Admin.Cron = c.file.rules, c.file.cron
	}
	switch o.Data {
	case "":
		return &loop.OptionError{Setting: "data", Err: errors.New("it is empty; name a directory, or none")}
	case loop.NoData:
	default:
		// An absolute path, so that the log and errors name a directory that can be found from elsewhere.
		if o.Data, err = filepath.Abs(o.Data); err != nil {
			return &loop.OptionError{Setting: "data", Err: err}
		}
	}
	if o.RunDir != "" {
		if o.RunDir, err = filepath.Abs(o.RunDir); err != nil {
			return &loop.OptionError{Setting: "run-dir", Err: err}
		}
	}
	o.Log = newLog(con.err, s.LogLevel, s.LogFormat)
	if len(o.Admin.Listen) == 0 && o.Data != loop.NoData {
		o.Admin.Listen = adminSocket(o.Data, o.Log)
	}
	tellIgnored(o.Log)
	defer ignoreHangups(o.Log)()
	if o.MaxMemory, err = s.MaxMemory.limit(os.DirFS("/")); err != nil {
		return err
	}
	first, second, stop := signals()
	defer stop()
	context.AfterFunc(first, func() { o.Log.Info("stopping", "drain", s.Drain) })
	context.AfterFunc(second, func() { os.Exit(exitInterrupted) })
	return settingError(loop.Run(first, o))
}

// longestSocket is the longest path that the system takes for a socket.
const longestSocket = len(syscall.RawSockaddrUnix{}.Path) - 1

// adminSocket returns the default address of the operators' interface. A directory with too long a path has none.
func adminSocket(data string, log *slog.Logger) []string {
	path := filepath.Join(data, loop.AdminSocket)
	if len(path) > longestSocket {
		log.Warn("treadle queue, treadle failed and treadle cron cannot reach this server: the path of the socket is too long; name another with --admin", "path", path)
		return off
	}
	return []string{"unix://" + path}
}

// refuseZeros refuses values that are too small to work. To the server a zero means the default, but the flags have
// their defaults already.
func (s *serveCmd) refuseZeros() error {
	for _, t := range []struct {
		setting string
		value   time.Duration
		least   time.Duration
	}{
		{"handshake-timeout", s.HandshakeTimeout, time.Nanosecond},
		{"frame-timeout", s.FrameTimeout, time.Nanosecond},
		{"kts46-timeout", s.Kts46Timeout, time.Nanosecond},
		{"sync-interval", s.SyncInterval, time.Nanosecond},
		{"drain", s.Drain, 0},
		{"dwork-lease", s.DworkLease, 0},
		{"dwork-remember", s.DworkRemember, 0},
		{"kts46-restart-after", s.Kts46RestartAfter, 0},
		{"periodic-grace", s.PeriodicGrace, 0},
	} {
		switch {
		case t.value < 0:
			return &loop.OptionError{Setting: t.setting, Err: fmt.Errorf("%s is negative", spell(t.value))}
		case t.value < t.least:
			return &loop.OptionError{Setting: t.setting, Err: fmt.Errorf("%s is too short", spell(t.value))}
		}
	}
	for _, n := range []struct {
		setting string
		value   int
	}{{"dwork-max-steal", s.DworkMaxSteal}, {"shards", s.Shards}, {"metrics-max-queues", s.MetricsMaxQueues}} {
		if n.value < 1 {
			return &loop.OptionError{Setting: n.setting, Err: fmt.Errorf("%d is below 1", n.value)}
		}
	}
	return nil
}

// leaveOut switches off the protocols that --only does not name. It refuses an address for one of them.
func (s *serveCmd) leaveOut() error {
	if len(s.Only) == 0 {
		return &loop.OptionError{Setting: "only", Err: errors.New("it is empty; name periodic, gloom, dwork or kts46")}
	}
	for _, p := range []struct {
		protocol, setting string
		addresses         *[]string
	}{
		{"periodic", "periodic", &s.Periodic}, {"gloom", "gloom-masters", &s.GloomMasters}, {"gloom", "gloom-slaves", &s.GloomSlaves},
		{"dwork", "dwork", &s.Dwork}, {"kts46", "kts46", &s.Kts46}, {"kts46", "kts46-json", &s.Kts46JSON},
	} {
		if slices.Contains(s.Only, p.protocol) {
			continue
		}
		if given := *p.addresses; len(given) > 0 && !slices.Equal(given, off) {
			err := fmt.Errorf("%s leaves %s out, and --%s gives it an address: name %s here too, or leave the address out", strings.Join(s.Only, ","), p.protocol, p.setting, p.protocol)
			return &loop.OptionError{Setting: "only", Err: err}
		}
		*p.addresses = off
	}
	return nil
}

// off are the addresses of a protocol that is not served.
var off = []string{"off"}

// asked converts a size for the server, which reads a zero as the default and refuses a negative size.
func asked(size byteSize) int {
	if size == 0 {
		return -1
	}
	return int(size)
}

// options converts the flags for the server. A zero means the default there, so a given zero is refused or becomes
// the nearest value.
func (s *serveCmd) options() (loop.Options, error) {
	if err := cmp.Or(s.refuseZeros(), s.leaveOut()); err != nil {
		return loop.Options{}, err
	}
	var node loop.DisbatchOptions
	if s.Disbatch != "" {
		c, err := disbatchConfig(s.Disbatch)
		if err != nil {
			return loop.Options{}, &loop.OptionError{Setting: "disbatch", Err: err}
		}
		runner, err := disbatchRunner(c)
		if err != nil {
			return loop.Options{}, err
		}
		node = loop.DisbatchOptions{Config: c.Path, Node: s.DisbatchNode, Runner: runner}
	}
	return loop.Options{
		Periodic: loop.PeriodicOptions{
			Listen: s.Periodic, Grab: s.PeriodicGrab, CRC: s.PeriodicCRC, Shutdown: s.PeriodicShutdown, Grace: max(s.PeriodicGrace, time.Nanosecond),
		},
		Gloom: loop.GloomOptions{Masters: s.GloomMasters, Slaves: s.GloomSlaves, MaxFrame: asked(s.GloomMaxFrame), JSON: s.GloomJSON},
		Dwork: loop.DworkOptions{
			Listen: s.Dwork, MaxFrame: asked(s.DworkMaxFrame), MaxSteal: s.DworkMaxSteal, Idle: s.DworkIdle,
			Stop: s.DworkStop, Complete: s.DworkComplete, Restart: s.DworkRestart, Lease: s.DworkLease, Remember: s.DworkRemember,
		},
		Kts46: loop.Kts46Options{
			Listen: s.Kts46, JSON: s.Kts46JSON, Timeout: s.Kts46Timeout, TimeoutUnit: s.Kts46TimeoutUnit,
			RestartAfter: s.Kts46RestartAfter, Databases: s.Kts46Databases, MongoDB: s.Kts46MongoDB,
		},
		Disbatch: node,
		Admin:    loop.AdminOptions{Listen: s.Admin},
		Bind:     s.Bind, RunDir: s.RunDir, HTTP: s.HTTP, MetricsMaxQueues: s.MetricsMaxQueues, AllowHosts: s.AllowHost, Pprof: s.Pprof,
		Data: s.Data, Sync: s.Sync, SyncInterval: s.SyncInterval, MinFree: asked(s.MinFree),
		Loops: s.Loops, Shards: s.Shards, MaxConnections: s.MaxConnections, MaxFrame: asked(s.MaxFrame), MaxOutbound: int(s.MaxOutbound),
		HandshakeTimeout: s.HandshakeTimeout, FrameTimeout: s.FrameTimeout, Drain: max(s.Drain, time.Nanosecond),
		Version: version,
	}, nil
}

// newLog returns a logger of a level and format that the flags' enums allow.
func newLog(w io.Writer, level, format string) *slog.Logger {
	o := &slog.HandlerOptions{}
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err == nil {
		o.Level = least
	}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	// JSON keeps numbers for programs; the text has times as the flags do.
	o.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(spell(a.Value.Duration()))
		}
		return a
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// tellIgnored logs which variables of the original's server are set and ignored.
func tellIgnored(log *slog.Logger) {
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

// ignoreHangups logs every SIGHUP until stop is called. Other servers read their settings again on it.
func ignoreHangups(log *slog.Logger) (stop func()) {
	hangups, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-hangups:
				log.Warn("SIGHUP is ignored: settings are read at the start, so restart the server to change them")
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(done)
	}
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
