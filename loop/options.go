package loop

import (
	"cmp"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"treadle/loop/journal"
	"treadle/loop/protocol"
)

// Defaults and bounds of the server's own settings.
const (
	DefaultHTTP     = "127.0.0.1:" + DefaultHTTPPort
	DefaultHTTPPort = "5001"
	DefaultData     = "./treadle-data"
	NoData          = "none" // jobs live in memory alone
	DefaultMinFree  = 256 << 20
	DefaultMaxFrame = 64 << 20
	DefaultDrain    = 10 * time.Second
	DefaultShards   = 16

	// maxFrame leaves room for the handle that a job is sent with, in a frame whose size clients
	// read as signed.
	maxFrame = math.MaxInt32 - protocol.MinFrame
	// maxShards is the number that the bits of a job reference allow.
	maxShards = 1 << 12
	// maxLoops is the number that the bits of a session id allow, less ownLoop.
	maxLoops = 1<<8 - 1
	// reservedFiles is the number of descriptors for listeners, pollers, journal files, HTTP and
	// logs.
	reservedFiles = 128
)

// Options are all settings of a server. The zero value of a field means its default. Each protocol
// owns its own.
type Options struct {
	Periodic PeriodicOptions
	Gloom    GloomOptions
	Dwork    DworkOptions
	Kts46    Kts46Options
	Disbatch DisbatchOptions
	Admin    AdminOptions

	// Bind replaces the host of every default TCP address.
	Bind string
	// RunDir is a directory for the default socket, made when missing. The default is /tmp, where
	// the protocol's clients look for it; any user may put one there first.
	RunDir string
	// HTTP is the host:port of metrics and health, or "off".
	HTTP string
	// MetricsMaxQueues is how many queues have lines of their own in the metrics, default
	// DefaultMaxQueues. All others are summed.
	MetricsMaxQueues int
	// Pprof says whether HTTP serves Go's profiles, too: "on" or "off" (default).
	Pprof string
	// AllowHosts are more host names that requests on all HTTP ports may name. IP addresses,
	// localhost, the host's own name and the hosts of addresses in these settings are allowed
	// anyway.
	AllowHosts []string

	// Data is the directory of the journal, default ./treadle-data, or NoData.
	Data string
	// Sync says when a change is on disk: "always" (default) before it is acknowledged,
	// "interval" at most SyncInterval later, "never" when the system writes it.
	Sync string
	// SyncInterval is the time between commits that nothing waits for; default 50 ms.
	SyncInterval time.Duration
	// MinFree is the free space in bytes on the disk of Data below which new jobs are refused;
	// default 256 MiB, at least journal.LeastFree.
	MinFree int
	// MaxMemory is how many bytes the server may hold, without garbage, before new jobs are refused; 0: no limit. Go's
	// soft limit of memory must be well above it.
	MaxMemory int64

	// Loops is the number of event loops; default max(1, GOMAXPROCS-1).
	Loops int
	// Shards is the number of scheduler shards; default 16.
	Shards int
	// MaxConnections bounds the open connections of all ports; default: the descriptor limit less
	// reservedFiles. A part is reserved for each protocol that is served, see connShares.
	MaxConnections int
	// MaxFrame bounds one request in bytes; default 64 MiB.
	MaxFrame int
	// MaxOutbound bounds the unread output of a peer in bytes. The default is twice the largest
	// frame, so that a largest result always fits. All peers of a loop together have
	// maxUnreadFactor times that; beyond it, the sessions with the most unread output are closed.
	MaxOutbound int

	// HandshakeTimeout closes a new connection without a handshake, or without a byte where the
	// protocol has none; default 10 s.
	HandshakeTimeout time.Duration
	// FrameTimeout closes a connection whose request stays unfinished; default 100 s.
	FrameTimeout time.Duration
	// Drain is how long a stopping server waits for running jobs and unsent replies; default 10 s.
	Drain time.Duration

	// Version is logged at the start.
	Version string
	// Log receives the server's log; default: discard.
	Log *slog.Logger
	// Started, when set, is called once with the open addresses, in the order of the settings. A
	// port of 0 is resolved.
	Started func(listening []Listening)
}

// Listening is one open address.
type Listening = protocol.Listening

// OptionError is the error of a setting, in one line.
type OptionError = protocol.OptionError

// Exit codes of a server that fails, beside that of a wrong setting.
const (
	exitFailure = 1
	exitData    = 3 // the data directory is damaged or cannot be written
)

// size returns a setting in bytes for messages. A flag of 0 is -1 in Options, since 0 means the default.
func size(n int) journal.Size { return journal.Size(max(n, 0)) }

// validate fills the defaults in and returns an OptionError when a setting cannot work.
func (o *Options) validate() error {
	o.fillDefaults()
	if err := o.validateHosts(); err != nil {
		return err
	}
	if err := o.validateProtocols(); err != nil {
		return err
	}
	if err := protocol.CheckMaxFrame("max-frame", o.MaxFrame, maxFrame); err != nil {
		return err
	}
	switch {
	case o.Pprof != "on" && o.Pprof != "off":
		return protocol.BadOption("pprof", "%q is neither on nor off", o.Pprof)
	case o.MetricsMaxQueues < 1 || o.MetricsMaxQueues > maxMetricsQueues:
		return protocol.BadOption("metrics-max-queues", "%d is not between 1 and %d", o.MetricsMaxQueues, maxMetricsQueues)
	case o.Loops < 1 || o.Loops > maxLoops:
		return protocol.BadOption("loops", "%d is not between 1 and %d", o.Loops, maxLoops)
	case o.Shards < 1 || o.Shards > maxShards:
		return protocol.BadOption("shards", "%d is not between 1 and %d", o.Shards, maxShards)
	case o.MaxOutbound < o.largestFrame():
		return protocol.BadOption("max-outbound", "%v is below the largest frame, %v: the largest result would never fit", size(o.MaxOutbound), size(o.largestFrame()))
	case o.SyncInterval < 0:
		return protocol.BadOption("sync-interval", "a time cannot be negative")
	case o.Data != NoData && o.MinFree < journal.LeastFree:
		return protocol.BadOption("min-free", "%v is less than the store needs to go on, and to start again, when the disk is full: give it at least %v", size(o.MinFree), size(journal.LeastFree))
	case o.MaxMemory < 0:
		return protocol.BadOption("max-memory", "%d is negative", o.MaxMemory)
	case o.HandshakeTimeout < 0:
		return protocol.BadOption("handshake-timeout", "a time cannot be negative")
	case o.FrameTimeout < 0:
		return protocol.BadOption("frame-timeout", "a time cannot be negative")
	case o.Drain < 0:
		return protocol.BadOption("drain", "a time cannot be negative")
	}
	return o.validateConnections()
}

func (o *Options) fillDefaults() {
	host := "127.0.0.1"
	if o.Bind != "" {
		host = o.Bind
	}
	o.fillProtocolDefaults(host)
	o.HTTP = cmp.Or(o.HTTP, net.JoinHostPort(host, DefaultHTTPPort))
	o.MetricsMaxQueues = cmp.Or(o.MetricsMaxQueues, DefaultMaxQueues)
	o.Pprof = cmp.Or(o.Pprof, "off")
	o.Data = cmp.Or(o.Data, DefaultData)
	o.Sync = cmp.Or(o.Sync, "always")
	o.SyncInterval = cmp.Or(o.SyncInterval, 50*time.Millisecond)
	o.MinFree = cmp.Or(o.MinFree, DefaultMinFree)
	o.Loops = cmp.Or(o.Loops, max(1, runtime.GOMAXPROCS(0)-1))
	o.Shards = cmp.Or(o.Shards, DefaultShards)
	o.MaxFrame = cmp.Or(o.MaxFrame, DefaultMaxFrame)
	o.MaxOutbound = cmp.Or(o.MaxOutbound, 2*o.largestFrame())
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, 10*time.Second)
	o.FrameTimeout = cmp.Or(o.FrameTimeout, 100*time.Second)
	o.Drain = cmp.Or(o.Drain, DefaultDrain)
	o.Version = cmp.Or(o.Version, "devel")
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
}

func (o *Options) validateHosts() error {
	if _, err := netip.ParseAddr(o.Bind); err != nil && strings.ContainsAny(o.Bind, ":[]/") {
		return protocol.BadOption("bind", "%q is no host: write a name or an IP address alone", o.Bind)
	}
	if o.HTTP == "off" {
		o.HTTP = ""
	} else if _, _, err := net.SplitHostPort(o.HTTP); err != nil {
		return protocol.BadOption("http", "%q is not host:port: %w", o.HTTP, err)
	}
	return nil
}

// validateConnections raises the soft descriptor limit to the hard one and keeps MaxConnections below
// it, so that a full server never runs out of descriptors.
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
		return protocol.BadOption("max-connections", "RLIMIT_NOFILE is %d: the server needs at least %d", limit.Cur, reservedFiles+1)
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = room
	}
	if o.MaxConnections < 1 || o.MaxConnections > room {
		return protocol.BadOption("max-connections", "%d is not between 1 and %d (RLIMIT_NOFILE %d less %d for the server itself)",
			o.MaxConnections, room, limit.Cur, reservedFiles)
	}
	return nil
}
