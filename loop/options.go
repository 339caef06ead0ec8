package loop

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"treadle/loop/journal"
	"treadle/loop/protocol"
	"treadle/loop/setting"
)

// Defaults and bounds of the server's own settings, beside those in the tags of Options.
const (
	DefaultHTTP     = "127.0.0.1:" + DefaultHTTPPort
	DefaultHTTPPort = "5001"
	NoData          = "none" // jobs live in memory alone

	// maxLoops is the number that the bits of a session id allow, less localLoop.
	maxLoops = 1<<8 - 1
	// reservedFiles is the number of descriptors for listeners, pollers, journal files, HTTP and
	// logs.
	reservedFiles = 128
	// forwardedFiles is the number of descriptors that a connection over TLS takes, and on the leader one forwarded by
	// a follower: that of the client or the follower, and both ends of a pair within the process. On the follower it
	// takes two, over TLS four.
	forwardedFiles = 3
)

// Options are all settings of a server, as of package setting. Each protocol owns its own. Without Explicit the zero
// value of a field means its default.
type Options struct {
	// Explicit reports whether all settings have their values: a zero is a zero.
	Explicit bool `kong:"-"`
	// portsOpen: the node of a cluster has opened the addresses already.
	portsOpen bool

	Bind string `name:"bind" group:"Addresses" default:"127.0.0.1" placeholder:"HOST" help:"Host of every default TCP address (default: ${default})."`
	// RunDir is /tmp by default, where the protocol's clients look for the socket; any user may put one there first.
	RunDir string       `name:"run-dir" group:"Addresses" placeholder:"DIR" help:"Directory of the default socket, periodic.sock, made when missing; no other user can put one there first (default: /tmp)."`
	Admin  AdminOptions `embed:"" group:"Addresses"`
	HTTP   string       `name:"http" group:"Addresses" placeholder:"HOST:PORT" help:"Address of the pages, the HTTP API, /metrics, /livez, /readyz and /healthz, host:port or tls://host:port, or off (default: 127.0.0.1:5001)."`
	// MetricsMaxQueues bounds the queues with a label of their own in the metrics, some 20 lines each.
	MetricsMaxQueues int    `name:"metrics-max-queues" group:"Addresses" default:"500" min:"1" max:"10000" placeholder:"N" help:"Queues with lines of their own in /metrics, at most 10000; all others are summed as _other (default: ${default})."`
	Pprof            string `name:"pprof" group:"Addresses" enum:"on,off" default:"off" help:"Whether Go's profiles are served there, too, under /debug/pprof: on or off (default: ${default})."`

	Web WebOptions `embed:"" group:"Addresses"`
	TLS TLSOptions `embed:"" group:"TLS"`

	AllowHosts []string `name:"allow-host" group:"Addresses" sep:"none" placeholder:"NAME" help:"Host name that HTTP requests may be sent to, on every HTTP port, beside IP addresses, localhost, this host's own name and those in addresses of these settings; repeatable (default: none)."`

	Periodic PeriodicOptions `embed:"" group:"Periodic"`
	Gloom    GloomOptions    `embed:"" group:"Gloom"`
	Dwork    DworkOptions    `embed:"" group:"dwork"`
	Kts46    Kts46Options    `embed:"" group:"kts46"`
	Faktory  FaktoryOptions  `embed:"" group:"Faktory"`
	Disbatch DisbatchOptions `embed:"" group:"Disbatch"`

	Beanstalk BeanstalkOptions `embed:"" group:"beanstalkd"`

	Cluster ClusterOptions `embed:"" group:"Cluster"`

	Data         string        `name:"data" group:"Data" default:"./treadle-data" placeholder:"DIR" help:"Directory of the journal, made when missing, or none: jobs live in memory alone (default: ${default})."`
	Sync         string        `name:"sync" group:"Data" enum:"always,interval,never" default:"always" help:"When a change is synced to disk: always (before it is acknowledged), interval (a crash loses at most the last interval) or never (the operating system decides) (default: ${default})."`
	SyncInterval time.Duration `name:"sync-interval" group:"Data" default:"50ms" min:"1ns" placeholder:"TIME" help:"Time between commits that nothing waits for (default: ${default})."`
	// MinFree is at least journal.LeastFree when there is a journal.
	MinFree int `name:"min-free" group:"Data" type:"size" default:"256MiB" reload:"" placeholder:"SIZE" help:"Free space on the disk of --data below which new jobs are refused, at least 128MiB (default: ${default})."`

	// MaxMemory is how many bytes the server may hold, without garbage, before new jobs are refused; 0: no limit. Go's
	// soft limit of memory must be well above it.
	MaxMemory int64 `kong:"-"`

	Loops int `name:"loops" group:"Limits" default:"0" min:"1" max:"255" placeholder:"N" help:"Event loops; 0: one fewer than the processors, at least 1 (default: ${default})."`
	// Shards has the bound that the bits of a job reference allow.
	Shards int `name:"shards" group:"Limits" default:"16" min:"1" max:"4096" placeholder:"N" help:"Shards of the scheduler, each with its own lock (default: ${default})."`
	// MaxConnections is reserved in part for each protocol that is served, see connShares.
	MaxConnections int `name:"max-connections" group:"Limits" default:"0" reload:"" placeholder:"N" help:"Most connections open at once, over all ports; a quarter is set aside in equal shares for the protocols that are served; 0: the limit of open files less the server's own, in a cluster a third of that (default: ${default})."`
	// MaxAPIConnections keeps clients of the API that leave their connections open from taking all connections of
	// workers.
	MaxAPIConnections int `name:"max-api-connections" group:"Limits" default:"1024" min:"1" reload:"" placeholder:"N" help:"Most connections of --http that use the HTTP API, among those of --max-connections; metrics and probes have places of their own (default: ${default})."`
	// MaxFrame has room for the largest request without a workload, a Job record with two names of 255 bytes. It leaves
	// room for the handle that a job is sent with, in a frame whose size clients read as signed.
	MaxFrame int `name:"max-frame" group:"Limits" type:"size" default:"64MiB" min:"1KiB" max:"2147482623" placeholder:"SIZE" help:"Largest request in bytes, or with k, m, g for powers of 1024 (default: ${default})."`
	// MaxOutbound is by default twice the largest frame, so that a largest result always fits. All peers of a loop
	// together have maxUnreadFactor times that; beyond it, the sessions with the most unread output are closed.
	MaxOutbound int `name:"max-outbound" group:"Limits" type:"size" default:"0" placeholder:"SIZE" help:"Most bytes queued for a peer that does not read; beyond, it is closed; 0: twice the larger of --max-frame and --gloom-max-frame (default: ${default})."`

	HandshakeTimeout time.Duration `name:"handshake-timeout" group:"Limits" default:"10s" min:"1ns" placeholder:"TIME" help:"Time in which a new connection must send its handshake, or in Gloom its first byte, as in 500ms, 10s, 2m (default: ${default})."`
	FrameTimeout     time.Duration `name:"frame-timeout" group:"Limits" default:"100s" min:"1ns" placeholder:"TIME" help:"Time a request may stay unfinished (default: ${default})."`
	Drain            time.Duration `name:"drain" group:"Limits" default:"10s" min:"0s" reload:"" placeholder:"TIME" help:"Time a stopping server waits for running jobs and delivers pending replies; 0s: none (default: ${default})."`

	// Version is logged at the start.
	Version string `kong:"-"`
	// Log receives the server's log; default: discard.
	Log *slog.Logger `kong:"-"`
	// Started, when set, is called once with the open addresses, in the order of the settings. A
	// port of 0 is resolved.
	Started func(listening []Listening) `kong:"-"`
}

// Defaults returns the default of every setting. An empty address list, and a zero that its help explains, depend on
// other settings and the machine.
func Defaults() (o Options) {
	setting.Fill(&o)
	return o
}

// Listening is one open address.
type Listening = protocol.Listening

// OptionError is the error of a setting, in one line.
type OptionError = protocol.OptionError

// Exit codes of a server that fails, beside the code of a wrong setting.
const (
	exitFailure = 1
	exitData    = 3 // the data directory is damaged or cannot be written
)

// Effective returns the settings with their defaults filled in, as a server has them. The error is an *OptionError, or
// joins several, when settings cannot work.
func (o Options) Effective() (Options, error) {
	err := o.validate()
	return o, err
}

// validate fills the defaults in and returns an error as of Effective.
func (o *Options) validate() error {
	o.fillDefaults()
	faults := append(setting.Check(o), o.validateHosts(), o.validateProtocols(), o.validateTLS(), o.validateCluster())
	if err := errors.Join(faults...); err != nil {
		return err
	}
	switch {
	case o.MaxOutbound < o.largestFrame():
		return protocol.BadOption("max-outbound", "%v is below the largest frame, %v: the largest result would never fit",
			journal.Size(o.MaxOutbound).Exact(), journal.Size(o.largestFrame()).Exact())
	case o.Data != NoData && o.MinFree < journal.LeastFree:
		return protocol.BadOption("min-free", "%v is less than the store needs to go on, and to start again, when the disk is full: give it at least %v", journal.Size(o.MinFree).Exact(), journal.Size(journal.LeastFree).Exact())
	}
	return o.validateConnections()
}

// fillDefaults fills in the defaults, also those that depend on other settings and the machine.
func (o *Options) fillDefaults() {
	if !o.Explicit {
		setting.Fill(o)
	}
	host := cmp.Or(o.Bind, "127.0.0.1")
	o.fillAddresses(host)
	o.HTTP = cmp.Or(o.HTTP, net.JoinHostPort(host, DefaultHTTPPort))
	o.Loops = cmp.Or(o.Loops, max(1, runtime.GOMAXPROCS(0)-1))
	o.MaxOutbound = cmp.Or(o.MaxOutbound, 2*o.largestFrame())
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
	} else if _, _, err := protocol.SplitAddress(o.httpListens()); err != nil || strings.HasPrefix(o.HTTP, "tcp://") {
		return protocol.BadOption("http", "%q is neither host:port nor tls://host:port", o.HTTP)
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
	each, own, by := 1, reservedFiles, ""
	if o.Cluster.Name != "" {
		each, by = forwardedFiles, ", by 3, which a connection may take in a cluster"
	}
	if len(o.tlsAddresses()) > 0 {
		each, own, by = max(forwardedFiles, each+1), own+tlsFiles, ", by 3 or in a cluster 4, which a connection over TLS may take"
	}
	room := (int(min(limit.Cur, 1<<20)) - own) / each
	if room < 1 {
		return protocol.BadOption("max-connections", "RLIMIT_NOFILE is %d: the server needs at least %d", limit.Cur, own+each)
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = room
	}
	if o.MaxConnections < 1 || o.MaxConnections > room {
		return protocol.BadOption("max-connections", "%d is not between 1 and %d (RLIMIT_NOFILE %d less %d for the server itself%s)",
			o.MaxConnections, room, limit.Cur, own, by)
	}
	return nil
}
