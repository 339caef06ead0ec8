package loop

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"slices"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/admin"
	"treadle/loop/beanstalk"
	"treadle/loop/disbatch"
	"treadle/loop/dwork"
	"treadle/loop/faktory"
	"treadle/loop/gloom"
	"treadle/loop/journal"
	"treadle/loop/kts46"
	"treadle/loop/page"
	"treadle/loop/periodic"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// The protocols' settings.
type (
	// PeriodicOptions are the options of the Periodic protocol.
	PeriodicOptions = periodic.Options
	// GloomOptions are the options of the Gloom protocol.
	GloomOptions = gloom.Options
	// DworkOptions are the options of the dwork protocol.
	DworkOptions = dwork.Options
	// BeanstalkOptions are the options of the beanstalkd protocol.
	BeanstalkOptions = beanstalk.Options
	// Kts46Options are the options of the kts46 protocols.
	Kts46Options = kts46.Options
	// FaktoryOptions are the options of the Faktory protocol.
	FaktoryOptions = faktory.Options
	// DisbatchOptions are the options of the Disbatch node.
	DisbatchOptions = disbatch.Options
	// AdminOptions are the options of the HTTP API.
	AdminOptions = admin.Options
	// WebOptions are the options of the pages.
	WebOptions = page.Options
)

// PolicyRule is a rule for queues, as AdminOptions.Rules has it.
type PolicyRule = sched.PolicyRule

// ParseSize reads a size in bytes, as rules and flags have it.
func ParseSize(text string) (int64, error) { return sched.ParseSize(text) }

// Configuration is where the settings come from, as AdminOptions.Configuration has it.
type Configuration = admin.Configuration

// CronEntry is a cron entry, as AdminOptions.Cron has it.
type CronEntry = codec.CronEntry

// CheckCronEntry returns an error for an invalid entry, with the key of the configuration file that is wrong.
func CheckCronEntry(e *CronEntry) (key string, err error) { return admin.CheckCron(e) }

// PolicyKeys returns the names of the keys that a rule may have.
func PolicyKeys() (names []string) {
	for _, k := range sched.PolicyKeys() {
		names = append(names, k.Name)
	}
	return names
}

// CheckPolicyRule returns an error for an invalid rule.
func CheckPolicyRule(r PolicyRule) error {
	_, err := sched.NewPolicies([]PolicyRule{r})
	return err
}

// CheckPolicyRules returns the errors of rules that are invalid or contradict each other.
func CheckPolicyRules(rules []PolicyRule) []error {
	table, err := sched.NewPolicies(rules)
	if err != nil {
		return []error{err}
	}
	return table.KeyErrors()
}

// PolicyError is an error of CheckPolicyRules. It names the rule and the key.
type PolicyError = sched.PolicyError

// Defaults of the protocols, for their clients.
const (
	DefaultPeriodic     = "tcp://127.0.0.1:" + periodic.DefaultPort
	DefaultPeriodicUnix = periodic.DefaultUnix
	DefaultGloomMasters = "tcp://127.0.0.1:" + gloom.DefaultMasters
	DefaultGloomSlaves  = "tcp://127.0.0.1:" + gloom.DefaultSlaves
	DefaultDwork        = "tcp://127.0.0.1:" + dwork.DefaultPort
	AdminSocket         = admin.Socket // in the directory of Options.Data
	DefaultKts46        = "tcp://127.0.0.1:" + kts46.DefaultPort
)

// TurnOn gives beanstalkd's protocol, called beanstalk, or Faktory's its default address if it has none. Other
// protocols have theirs without it.
func (o *Options) TurnOn(name string) {
	switch name {
	case "beanstalk":
		protocol.FillAddress(&o.Beanstalk.Listen, o.Bind, beanstalk.DefaultPort)
	case "faktory":
		protocol.FillAddress(&o.Faktory.Listen, o.Bind, faktory.DefaultPort)
	}
}

// fillAddresses fills the default addresses of the protocols in. host is their host.
func (o *Options) fillAddresses(host string) {
	o.Periodic.FillAddresses(host, o.RunDir)
	o.Gloom.FillAddresses(host)
	o.Dwork.FillAddresses(host)
	o.Kts46.FillAddresses(host)
}

// validateProtocols validates the addresses of the protocols.
func (o *Options) validateProtocols() error {
	return errors.Join(o.Periodic.Check(), o.Gloom.Check(), o.Dwork.Check(), o.Kts46.Check(), o.Beanstalk.Check(), o.Faktory.Check(),
		o.Admin.Check(), o.Web.Check())
}

// largestFrame returns the bytes of the largest frame that the event loops read.
func (o *Options) largestFrame() int {
	return max(o.MaxFrame, o.Gloom.MaxFrame, o.Beanstalk.LargestFrame())
}

// newGuard makes the guard of all HTTP ports, which refuses requests that pages of other sites make.
func (o *Options) newGuard() (*web.Guard, error) {
	listen := slices.Concat(o.Kts46.Listen, o.Kts46.JSON, []string{o.HTTP, net.JoinHostPort(o.Bind, "0")})
	guard, err := web.NewGuard(web.GuardOptions{Allow: o.AllowHosts, Listen: listen, Log: o.Log})
	if err != nil {
		return nil, &OptionError{Setting: "allow-host", Err: err}
	}
	return guard, nil
}

// newProtocols makes the protocols, in the order in which they listen, close and show metrics. A new
// protocol is added here and to spaces.
func newProtocols(s *Server) ([]protocol.Protocol, error) {
	o := &s.o
	disbatchProtocol, err := disbatch.New(host{s}, o.Disbatch)
	if err != nil {
		return nil, err
	}
	faktoryProtocol, err := faktory.New(host{s}, o.Faktory)
	if err != nil {
		return nil, err
	}
	kts46Protocol := kts46.New(host{s}, o.Kts46)
	o.Admin.JobSpace, o.Admin.Projects = periodic.Space, kts46Protocol
	if site := disbatchProtocol.View(); site != nil { // an interface with a nil *View is not nil
		o.Admin.Disbatch = site
	}
	adminAPI, err := admin.New(host{s}, o.Admin)
	if err != nil {
		return nil, &OptionError{Setting: "config", Err: err}
	}
	return []protocol.Protocol{
		periodic.New(host{s}, o.Periodic),
		gloom.New(host{s}, o.Gloom),
		dwork.New(host{s}, o.Dwork),
		kts46Protocol,
		beanstalk.New(host{s}, o.Beanstalk),
		faktoryProtocol,
		adminAPI,
		disbatchProtocol, // last: its Close waits for tasks, and the others must not serve meanwhile
	}, nil
}

// spaces is the table of all name spaces of jobs.
var spaces = protocol.TableOf(slices.Concat(
	periodic.Spaces(),
	gloom.Spaces(),
	dwork.Spaces(),
	disbatch.Spaces(),
	kts46.Spaces(),
	beanstalk.Spaces(),
	faktory.Spaces(),
)...)

// rules returns the rules of each name space, and how many milliseconds after its time-out a job is
// released.
func (o *Options) rules() (rules [sched.MaxSpaces]sched.Rules, grace int64) {
	return spaces.Rules(), o.Periodic.Grace.Milliseconds()
}

// protocolsWith ranges over the protocols that implement T.
func protocolsWith[T any](s *Server) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, p := range s.protocols {
			if t, ok := p.(T); ok && !yield(t) {
				return
			}
		}
	}
}

// host implements protocol.Host and admin.Host for a Server.
type host struct{ *Server }

// Sched implements protocol.Host.
func (h host) Sched() *sched.Scheduler { return h.sched }

// Spaces implements admin.Host.
func (h host) Spaces() *protocol.Spaces { return spaces }

// Now implements protocol.Host.
func (h host) Now() sched.Time { return h.now() }

// Log implements protocol.Host.
func (h host) Log() *slog.Logger { return h.o.Log }

// LogLimited implements protocol.Host.
func (h host) LogLimited(level slog.Level, message string, args ...any) {
	if h.logLimit.allow(h.now().Mono) {
		h.o.Log.Log(context.Background(), level, message, args...)
	}
}

// CountRefusal implements protocol.Host.
func (h host) CountRefusal(name string, why protocol.Reason) {
	h.conns.protocols[h.conns.id(name)].refusals[why].Add(1)
}

// CheckCapacity implements protocol.Host.
func (h host) CheckCapacity() error { return h.checkCapacity() }

// Stopping implements protocol.Host.
func (h host) Stopping() bool { return h.stopping.Load() }

// Health implements protocol.Host.
func (h host) Health() protocol.Health {
	ready, text := h.ready()
	health := protocol.Health{Started: h.started.UnixMilli(), Version: h.o.Version, Ready: ready, Text: text, Connections: h.conns.connected()}
	health.CertsExpire = h.tls.firstExpiry()
	if h.node != nil {
		health.Cluster, health.Unreachable = h.o.Cluster.Name, h.node.Unreachable()
	}
	if h.memory != nil {
		health.Memory, health.MemoryLimit = h.memory.used(), h.memory.limit
	}
	if h.journal != nil {
		st := h.journal.stats()
		health.Journal = &protocol.JournalHealth{Unacknowledged: st.Backlog, Bytes: st.Size, Free: st.Free, MinFree: uint64(h.o.MinFree), Sync: h.o.Sync}
	}
	return health
}

// Cluster implements admin.Host.
func (h host) Cluster(ctx context.Context) *codec.Cluster { return h.clusterState(ctx, h.node) }

// RoomFor implements protocol.Host.
func (h host) RoomFor(bytes int) bool { return h.journal.hasRoom(bytes) }

// CommitGroup implements protocol.Host.
func (h host) CommitGroup(queue []byte) (group uint64, wait bool) {
	if h.journal == nil {
		return 0, false // without the hash of the queue's name
	}
	return h.journal.commitGroup(h.sched.ShardOf(queue))
}

// CommitGroupAll implements protocol.Host.
func (h host) CommitGroupAll() (group uint64, wait bool) { return h.journal.commitGroupAll() }

// Committed implements protocol.Host.
func (h host) Committed() uint64 { return h.journal.committed() }

// Flush implements protocol.Host.
func (h host) Flush(acknowledgements int) { h.journal.flush(acknowledgements) }

// FlushLater implements protocol.Host.
func (h host) FlushLater() { h.journal.flushLater() }

// Await implements protocol.Host.
func (h host) Await(group uint64) error { return h.blocking.awaitGroup(group) }

// Wait implements admin.Host.
func (h host) Wait(ctx context.Context, closed, woken <-chan struct{}, limit time.Duration) bool {
	return h.blocking.awaitToken(ctx, closed, woken, limit)
}

// Backup implements admin.Host.
func (h host) Backup() (admin.Backup, error) {
	if h.journal == nil {
		return nil, fmt.Errorf("%w: the server keeps no data (--data none)", admin.ErrNoBackup)
	}
	b, err := h.journal.journal.Backup(time.UnixMilli(h.now().Wall))
	if errors.Is(err, journal.ErrBackupRuns) {
		err = fmt.Errorf("%w: %w", admin.ErrNoBackup, err)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Go implements admin.Host.
func (h host) Go(work func()) { h.blocking.start(work) }

// Yield implements admin.Host.
func (h host) Yield(began time.Time) time.Time { return h.blocking.yield(began) }

// PutSetting implements protocol.Host.
func (h host) PutSetting(key string, value []byte) { h.journal.putSetting(key, value) }

// PutDocument implements protocol.Host.
func (h host) PutDocument(d *protocol.Document) { h.journal.putDocument(d) }

// DropDocument implements protocol.Host.
func (h host) DropDocument(d *protocol.Document) { h.journal.dropDocument(d) }

// NewSink implements protocol.Host.
func (h host) NewSink() protocol.Sink { return &mailSink{h.Server, make([]bool, h.o.Loops)} }

// NewLocalPeer implements protocol.Host.
func (h host) NewLocalPeer(deliver func(*sched.Delivery)) *sched.Peer {
	id := uint64(localLoop)<<loopShift | uint64(len(h.localPeers))
	h.localPeers = append(h.localPeers, deliver)
	return h.sched.NewPeer(sched.SessionID(id))
}

// Omitted implements protocol.Host.
func (h host) Omitted() (n int) {
	for p := range protocolsWith[protocol.Omitted](h.Server) {
		n += p.Omitted()
	}
	return n
}

// Fail implements protocol.Host.
func (h host) Fail(err error) { h.fail(err) }

// Limits implements protocol.Host.
func (h host) Limits() protocol.Limits {
	return protocol.Limits{
		MaxFrame: h.o.MaxFrame, MaxOutbound: h.o.MaxOutbound,
		LargeOutput: h.largeOutput(), MaxUnsent: h.maxUnsent(), PeerMemory: h.peerMemory,
		HandshakeTimeout: h.o.HandshakeTimeout, FrameTimeout: h.o.FrameTimeout, Drain: h.drain(),
	}
}

// Guard implements protocol.Host.
func (h host) Guard() *web.Guard { return h.guard }

// Listen implements protocol.Host.
func (h host) Listen(name, setting, address string) (net.Listener, error) {
	l, err := h.listenOn(setting, address)
	if err != nil {
		return nil, err
	}
	id := h.conns.id(name)
	h.conns.reserveShare(id)
	return &serviceListener{l, h.Server, id}, nil
}

// Quit implements protocol.Host.
func (h host) Quit() { h.quit() }
