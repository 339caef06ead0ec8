package loop

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"treadle/loop/disbatch/hub"
	"treadle/loop/journal"
	"treadle/loop/periodic"
	"treadle/loop/protocol"
	"treadle/loop/web"
)

// Defaults and bounds of the settings. Each bound has its reason beside it.
const (
	DefaultPeriodicUnix = "unix:///tmp/periodic.sock"
	DefaultGloomMasters = "tcp://127.0.0.1:9998"
	DefaultGloomSlaves  = "tcp://127.0.0.1:9999"
	DefaultDwork        = "tcp://127.0.0.1:6125"
	DefaultKts46        = "tcp://127.0.0.1:46210"
	DefaultHTTP         = "127.0.0.1:5001"
	DefaultData         = "./treadle-data"
	NoData              = "none" // jobs live in memory alone
	DefaultMinFree      = 256 << 20
	DefaultMaxFrame     = 64 << 20
	DefaultDrain        = 10 * time.Second
	// DefaultGrace is about what the reference's rule in whole seconds and its sweep give. Workers
	// that kill a command at its time-out report that 30 to 70 ms later; if the job has been handed
	// out again by then, perhaps to them, they end the new run, and two go on side by side.
	DefaultGrace  = time.Second
	DefaultShards = 16

	// minFrame keeps room for the largest request without a workload: a Job
	// record with two 255-byte names.
	minFrame = 1 << 10
	// maxFrame leaves room for what a job is sent out with, its handle, in a
	// frame whose size clients read as signed.
	maxFrame = math.MaxInt32 - minFrame
	// maxShards is what a job reference has bits for.
	maxShards = 1 << 12
	// maxLoops is what a session id has bits for, less one number for parties that are on
	// no loop.
	maxLoops = 1<<8 - 1
	// reservedFiles are the descriptors the server needs beside its
	// connections: listeners, pollers, journal files, HTTP, logs.
	reservedFiles = 128
)

// Grab says how a Periodic worker's GRAB_JOB is answered when no job is ready.
type Grab string

// The two readings of the protocol, see protocols/periodic.md section 4.
const (
	// GrabHold keeps the request and answers it with the next job.
	GrabHold Grab = "hold"
	// GrabDocument answers NO_JOB at once and wakes a sleeping worker by NOOP.
	GrabDocument Grab = "document"
)

// Values of GloomJSON: the JSON that Gloom clients may send.
const (
	// GloomLax takes raw control characters inside strings for their escapes, as the original does.
	GloomLax = "lax"
	// GloomStrict refuses them.
	GloomStrict = "strict"
)

// Options are all settings of a server. The zero value of a field means its
// default; validate fills the defaults in and refuses what cannot work.
type Options struct {
	// Periodic lists the addresses of the Periodic protocol, each
	// tcp://host:port or unix:///path, behind which ?crc=2020 is a PeriodicCRC of
	// its own. Empty means the two defaults; the one word "off" means none.
	Periodic []string
	// Bind replaces the host of every default TCP address.
	Bind string
	// RunDir is a directory for the default socket, made when missing; default: /tmp, where the
	// protocol's clients look for it and where any user may have put one first.
	RunDir string
	// PeriodicGrab is GrabHold (default) or GrabDocument.
	PeriodicGrab Grab
	// PeriodicCRC is the era whose replies clients of the CRC framing get: "2019-02",
	// "2019", "2020", "2023" (default) or "2026".
	PeriodicCRC string
	// PeriodicShutdown says whether SHUTDOWN from a client stops the server:
	// "on" (default) or "off", which answers UNKNOWN.
	PeriodicShutdown string
	// PeriodicGrace is how long after a Periodic job's time-out it is handed out
	// again; default 1 s, less than a millisecond is none.
	PeriodicGrace time.Duration
	// GloomMasters and GloomSlaves list the addresses of the Gloom protocol's two
	// ports, as Periodic does.
	GloomMasters, GloomSlaves []string
	// GloomMaxFrame caps one Gloom frame in bytes; default 64 MiB.
	GloomMaxFrame int
	// GloomJSON is GloomLax (default) or GloomStrict.
	GloomJSON string
	// Dwork are the settings of the dwork protocol.
	Dwork DworkOptions
	// Kts46 are the settings of the kts46 protocols.
	Kts46 Kts46Options
	// Disbatch are the settings of the Disbatch node inside of the server.
	Disbatch DisbatchOptions
	// HTTP is the host:port of metrics and health, or "off".
	HTTP string
	// Pprof says whether Go's profiles are there, too: "on" or "off" (default).
	Pprof string
	// AllowHosts are the host names that HTTP requests may be sent to, on every HTTP port,
	// beside IP addresses, localhost, the host's own name and the hosts of addresses in these
	// settings.
	AllowHosts []string

	// Data is the directory of the journal, default ./treadle-data, or NoData.
	Data string
	// Sync says when a change counts as durable: "always" (default) before it is
	// acknowledged, "interval" at most SyncInterval later, "never" when the system
	// gets to it.
	Sync string
	// SyncInterval is the time between commits that nothing waits for; default 50 ms.
	SyncInterval time.Duration
	// MinFree is how many bytes must be free on the disk of Data for new jobs to be
	// taken in; default 256 MiB, at least journal.LeastFree.
	MinFree int

	// Loops is the number of event loops; default max(1, GOMAXPROCS-1).
	Loops int
	// Shards is the number of scheduler shards; default 16.
	Shards int
	// MaxConnections caps open connections over all ports; default: the
	// descriptor limit less what the server itself needs. A part of them is set
	// aside for the protocols that are served, see shares.
	MaxConnections int
	// MaxFrame caps one request in bytes; default 64 MiB.
	MaxFrame int
	// MaxOutbound caps the bytes queued for a peer that does not read, beyond
	// which it is closed; default twice the largest frame, so that one
	// largest result always fits. For all peers of a loop together it is four
	// times that: beyond, those for whom most waits are closed.
	MaxOutbound int

	// HandshakeTimeout closes a connection that has not said who it is, or, where
	// there is no handshake, anything; default 10 s.
	HandshakeTimeout time.Duration
	// FrameTimeout closes a connection whose frame stays unfinished; default
	// 100 s.
	FrameTimeout time.Duration
	// Drain is how long a stopping server goes on delivering what is owed;
	// default 10 s.
	Drain time.Duration

	// Version is named in the start line.
	Version string
	// Log receives the server's log; default: discard.
	Log *slog.Logger
	// Started, when set, is called once with the addresses that are listening,
	// in the order of the settings (port 0 resolved).
	Started func(listening []Listening)
}

// DisbatchOptions are the settings of the Disbatch node inside of the server.
type DisbatchOptions struct {
	// Config is the original's config.json; empty means no node.
	Config string
	// Node is the node's name, default the host's.
	Node string
	// Runner is the command of the process that runs tasks which are commands; without
	// it only tasks of functions are done.
	Runner []string
}

func (o *Options) disbatch() hub.Options {
	return hub.Options{Config: o.Disbatch.Config, Node: o.Disbatch.Node, Runner: o.Disbatch.Runner, Drain: o.Drain}
}

// Listening is one open address.
type Listening = protocol.Listening

// OptionError is a setting that cannot work: cmd prints it as one line.
type OptionError = protocol.OptionError

// Exit codes of a server that does not start, or stops by itself, beside that of an OptionError.
const (
	exitFailure = 1
	exitData    = 3 // what is on disk is damaged, or cannot be written
)

func badOption(setting, format string, args ...any) error {
	return &OptionError{Setting: setting, Err: fmt.Errorf(format, args...)}
}

// size spells a setting in bytes. A negative one is a 0 that was asked for: 0 itself means the default.
func size(n int) journal.Size { return journal.Size(max(n, 0)) }

// validate fills defaults in place and refuses values that cannot work.
func (o *Options) validate() error {
	o.fillDefaults()
	if err := o.validateAddresses(); err != nil {
		return err
	}
	switch {
	case o.PeriodicGrab != GrabHold && o.PeriodicGrab != GrabDocument:
		return badOption("periodic-grab", "%q is neither hold nor document", o.PeriodicGrab)
	case !periodic.Known(o.PeriodicCRC):
		return badOption("periodic-crc", "%q %s", o.PeriodicCRC, noEra)
	case o.PeriodicShutdown != "on" && o.PeriodicShutdown != "off":
		return badOption("periodic-shutdown", "%q is neither on nor off", o.PeriodicShutdown)
	case o.Pprof != "on" && o.Pprof != "off":
		return badOption("pprof", "%q is neither on nor off", o.Pprof)
	case o.Loops < 1 || o.Loops > maxLoops:
		return badOption("loops", "%d is not between 1 and %d", o.Loops, maxLoops)
	case o.Shards < 1 || o.Shards > maxShards:
		return badOption("shards", "%d is not between 1 and %d", o.Shards, maxShards)
	case o.MaxFrame < minFrame || o.MaxFrame > maxFrame:
		return badOption("max-frame", "%v is not between %v and %v", size(o.MaxFrame), size(minFrame), size(maxFrame))
	case o.GloomMaxFrame < minFrame || o.GloomMaxFrame > math.MaxInt32:
		return badOption("gloom-max-frame", "%v is not between %v and %v", size(o.GloomMaxFrame), size(minFrame), size(math.MaxInt32))
	case o.GloomJSON != GloomLax && o.GloomJSON != GloomStrict:
		return badOption("gloom-json", "%q is neither lax nor strict", o.GloomJSON)
	case o.MaxOutbound < max(o.MaxFrame, o.GloomMaxFrame):
		return badOption("max-outbound", "%v is below the largest frame, %v: the largest result would never fit", size(o.MaxOutbound), size(max(o.MaxFrame, o.GloomMaxFrame)))
	case o.SyncInterval < 0:
		return badOption("sync-interval", "a time cannot be negative")
	case o.Data != NoData && o.MinFree < journal.LeastFree:
		return badOption("min-free", "%v is less than the store needs to go on, and to start again, when the disk is full: give it at least %v", size(o.MinFree), size(journal.LeastFree))
	case o.HandshakeTimeout < 0:
		return badOption("handshake-timeout", "a time cannot be negative")
	case o.FrameTimeout < 0:
		return badOption("frame-timeout", "a time cannot be negative")
	case o.Drain < 0:
		return badOption("drain", "a time cannot be negative")
	case o.PeriodicGrace < 0:
		return badOption("periodic-grace", "a time cannot be negative")
	}
	if err := o.Dwork.validate(); err != nil {
		return err
	}
	if err := o.Kts46.validate(); err != nil {
		return err
	}
	return o.validateConnections()
}

func (o *Options) fillDefaults() {
	host := "127.0.0.1"
	if o.Bind != "" {
		host = o.Bind
	}
	if len(o.Periodic) == 0 {
		socket := DefaultPeriodicUnix
		if o.RunDir != "" {
			socket = "unix://" + filepath.Join(o.RunDir, filepath.Base(DefaultPeriodicUnix))
		}
		o.Periodic = []string{"tcp://" + net.JoinHostPort(host, "5000"), socket}
	}
	if len(o.GloomMasters) == 0 {
		o.GloomMasters = []string{"tcp://" + net.JoinHostPort(host, "9998")}
	}
	if len(o.GloomSlaves) == 0 {
		o.GloomSlaves = []string{"tcp://" + net.JoinHostPort(host, "9999")}
	}
	setDefault(&o.GloomMaxFrame, DefaultMaxFrame)
	setDefault(&o.GloomJSON, GloomLax)
	if len(o.Dwork.Listen) == 0 {
		o.Dwork.Listen = []string{"tcp://" + net.JoinHostPort(host, "6125")}
	}
	o.Dwork.fillDefaults()
	o.Kts46.fillDefaults(host)
	setDefault(&o.HTTP, net.JoinHostPort(host, "5001"))
	setDefault(&o.PeriodicGrab, GrabHold)
	setDefault(&o.PeriodicCRC, "2023")
	setDefault(&o.PeriodicShutdown, "on")
	setDefault(&o.Pprof, "off")
	setDefault(&o.Data, DefaultData)
	setDefault(&o.Sync, "always")
	setDefault(&o.SyncInterval, 50*time.Millisecond)
	setDefault(&o.MinFree, DefaultMinFree)
	setDefault(&o.Loops, max(1, runtime.GOMAXPROCS(0)-1))
	setDefault(&o.Shards, DefaultShards)
	setDefault(&o.MaxFrame, DefaultMaxFrame)
	setDefault(&o.MaxOutbound, 2*max(o.MaxFrame, o.GloomMaxFrame))
	setDefault(&o.HandshakeTimeout, 10*time.Second)
	setDefault(&o.FrameTimeout, 100*time.Second)
	setDefault(&o.Drain, DefaultDrain)
	setDefault(&o.PeriodicGrace, DefaultGrace)
	setDefault(&o.Version, "devel")
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o *Options) validateAddresses() error {
	if _, err := netip.ParseAddr(o.Bind); err != nil && strings.ContainsAny(o.Bind, ":[]/") {
		return badOption("bind", "%q is no host: write a name or an IP address alone", o.Bind)
	}
	for _, p := range []struct {
		setting   string
		addresses *[]string
	}{{"periodic", &o.Periodic}, {"gloom-masters", &o.GloomMasters}, {"gloom-slaves", &o.GloomSlaves}, {"dwork", &o.Dwork.Listen}, {"kts46", &o.Kts46.Listen}, {"kts46-json", &o.Kts46.JSON}} {
		if len(*p.addresses) == 1 && (*p.addresses)[0] == "off" {
			*p.addresses = nil
		}
		for _, a := range *p.addresses {
			if a == "off" {
				return badOption(p.setting, "\"off\" stands beside other addresses; give it alone, or leave it out")
			}
			if p.setting == "periodic" {
				var crc string
				if a, crc = o.eraOf(a); crc != o.PeriodicCRC && !periodic.Known(crc) {
					return badOption(p.setting, "%s: the era %q of ?crc= %s", a, crc, noEra)
				}
			}
			if _, _, err := splitAddress(a); err != nil {
				return &OptionError{Setting: p.setting, Err: err}
			}
		}
	}
	if o.HTTP == "off" {
		o.HTTP = ""
	} else if _, _, err := net.SplitHostPort(o.HTTP); err != nil {
		return badOption("http", "%q is not host:port: %w", o.HTTP, err)
	}
	return nil
}

// newGuard returns what refuses the requests of pages of other sites.
func (o *Options) newGuard() (*web.Guard, error) {
	listen := slices.Concat(o.Kts46.Listen, o.Kts46.JSON, []string{o.HTTP, net.JoinHostPort(o.Bind, "0")})
	guard, err := web.NewGuard(web.GuardOptions{Allow: o.AllowHosts, Listen: listen, Log: o.Log})
	if err != nil {
		return nil, &OptionError{Setting: "allow-host", Err: err}
	}
	return guard, nil
}

// noEra is what is wrong with an era.
const noEra = "is none of 2019-02, 2019, 2020, 2023, 2026"

// eraOf splits a Periodic address in the address proper and the era of its CRC framing.
func (o *Options) eraOf(a string) (address, crc string) {
	address, crc, found := strings.Cut(a, "?crc=")
	if !found {
		crc = o.PeriodicCRC
	}
	return address, crc
}

// periodic is what the protocol is told of the settings.
func (o *Options) periodic(projects func() int) periodic.Options {
	p := periodic.Options{
		Era: o.PeriodicCRC, Document: o.PeriodicGrab == GrabDocument, Shutdown: o.PeriodicShutdown == "on",
		Grace: o.PeriodicGrace, FrameTimeout: o.FrameTimeout, MaxFrame: o.MaxFrame, Projects: projects,
	}
	for _, a := range o.Periodic {
		address, era := o.eraOf(a)
		p.Addresses = append(p.Addresses, periodic.Address{Address: address, Era: era})
	}
	return p
}

// splitAddress turns tcp://host:port or unix:///path into what net.Listen takes.
func splitAddress(a string) (network, address string, err error) {
	network, address, ok := strings.Cut(a, "://")
	switch {
	case !ok || (network != "tcp" && network != "unix"):
		return "", "", fmt.Errorf("%q is neither tcp://host:port nor unix:///path", a)
	case network == "unix" && !strings.HasPrefix(address, "/"):
		return "", "", fmt.Errorf("%q: the socket's path must be absolute, as in unix:///run/periodic.sock", a)
	case network == "tcp":
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return "", "", fmt.Errorf("%q: %w", a, err)
		}
		if host == "*" { // ZeroMQ's word for every address
			address = ":" + port
		}
	}
	return network, address, nil
}

// validateConnections raises the soft descriptor limit as far as it goes and
// keeps the cap below it: running out of descriptors must never be how a
// server learns that it is full.
func (o *Options) validateConnections() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if limit.Cur < limit.Max {
		limit.Cur = limit.Max
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			return os.NewSyscallError("setrlimit", err)
		}
	}
	room := int(min(limit.Cur, 1<<20)) - reservedFiles
	if room < 1 {
		return badOption("max-connections", "RLIMIT_NOFILE is %d: the server needs at least %d", limit.Cur, reservedFiles+1)
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = room
	}
	if o.MaxConnections < 1 || o.MaxConnections > room {
		return badOption("max-connections", "%d is not between 1 and %d (RLIMIT_NOFILE %d less %d for the server itself)",
			o.MaxConnections, room, limit.Cur, reservedFiles)
	}
	return nil
}
