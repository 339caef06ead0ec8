package loop

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"

	"treadle/loop/cluster"
	"treadle/loop/dwork"
	"treadle/loop/journal"
	"treadle/loop/web"
)

// ClusterHost is the program in which a node runs.
type ClusterHost interface {
	// Options returns the settings with which the node begins to serve.
	Options() (Options, error)
	// SetServer sets the server of the node when it begins to lead, and nil when its lead has ended.
	SetServer(*Server)
}

// ClusterSocket is the name of a node's socket in the directory of Options.Data, see cluster.Node.ServeRequests.
const ClusterSocket = "cluster.sock"

// clusterSetting is the setting of ClusterOptions.Name.
const clusterSetting = "cluster"

// clusterRun is the run of a node.
type clusterRun struct {
	checked *Server // with the settings at the start of the node; it never runs
	host    ClusterHost
	ports   nodePorts
	node    *cluster.Node
}

// RunCluster runs a node of the cluster of o until ctx ends or the server is shut down. While the node leads it runs a
// server as Run does. Otherwise it forwards the connections to its ports to the leader. It returns as Run does.
func RunCluster(ctx context.Context, o Options, h ClusterHost) error {
	checked, err := newServer(o) // it finds wrong settings before the node starts
	if err != nil {
		return err
	}
	r := &clusterRun{checked: checked, host: h}
	r.ports.openNew = checked.tls.openPort
	defer func() {
		r.ports.close()
		checked.tls.wait(checked.o.Drain)
	}()
	switch err = r.start(ctx); {
	case err != nil && ctx.Err() != nil: // it waited to be added
		return nil
	case err != nil:
		return err
	}
	defer func() { _ = r.node.Close() }() // it has logged its failure
	status, err := openAddress(clusterSetting, "unix://"+filepath.Join(checked.o.Data, ClusterSocket))
	if err != nil {
		return err
	}
	defer func() { _ = status.Close() }() // a second Close is harmless
	go r.node.ServeRequests(status)
	for {
		lead, err := r.awaitLeadership(ctx)
		switch {
		case ctx.Err() != nil && lead != nil:
			lead.ReleaseStore()
			return nil
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		err = r.serveAsLeader(ctx, lead)
		switch {
		case r.node.Err() != nil:
			return &journalError{r.node.Err()}
		case !errors.Is(err, cluster.ErrNotLeader):
			return err
		case ctx.Err() != nil:
			return nil
		}
	}
}

// start starts the node. A wrong setting is an *OptionError.
func (r *clusterRun) start(ctx context.Context) error {
	o := &r.checked.o
	c, err := o.Cluster.options()
	if err != nil {
		return &OptionError{Setting: "peers", Err: err}
	}
	c.Log, c.MaxMessage = o.Log, o.largestFrame()+64<<20 // an entry is a part of a group, which ends with a job
	c.Journal = journal.Options{Dir: o.Data, Log: o.Log}
	if c.Join && o.HTTP != "" {
		stop, err := r.serveWhileJoining(&c)
		if err != nil {
			return err
		}
		defer stop()
	}
	if r.node, err = cluster.Start(ctx, c); err != nil {
		return &OptionError{Setting: clusterSetting, Err: err, Code: exitFailure}
	}
	o.Log.Info("this server is a node of a cluster", "cluster", c.Cluster, "node", c.ID, "peers", strings.Join(o.Cluster.Peers, " "))
	return nil
}

// serveWhileJoining serves probes and metrics while the node waits to be added. stop ends that.
func (r *clusterRun) serveWhileJoining(c *cluster.Options) (stop func(), err error) {
	l, err := r.ports.beginRole().open("http", r.checked.o.httpListens())
	if err != nil {
		return nil, err
	}
	r.checked.setProgress("waiting to be added to the cluster")
	c.OnWait = func(why string) { r.checked.setProgress("waiting to be added to the cluster: " + why) }
	state := func() (bool, string) { return false, *r.checked.progress.Load() }
	noSamples := func() []web.Sample { return nil }
	noConns := func() (func(), error) { return nil, errors.New(*r.checked.progress.Load()) }
	f := r.checked.serveFollower(l, nil, state, noSamples, nil, noConns)
	var served sync.WaitGroup
	served.Go(func() { _ = f.run() }) // only probes miss it
	return func() {
		f.close()
		served.Wait()
	}, nil
}

// awaitLeadership forwards connections to the leader until this node leads.
func (r *clusterRun) awaitLeadership(ctx context.Context) (*cluster.Leadership, error) {
	following, cancel := context.WithCancel(ctx)
	f, err := newForwarder(following, r.node, r.checked, &r.ports)
	if err == nil {
		defer f.wait()
	}
	defer cancel()
	if err != nil {
		return nil, err
	}
	return r.node.AwaitLeadership(ctx)
}

// serveAsLeader runs a server while the node leads. It returns an error that wraps cluster.ErrNotLeader when the lead
// has ended.
func (r *clusterRun) serveAsLeader(ctx context.Context, lead *cluster.Leadership) error {
	defer lead.ReleaseStore()
	o, err := r.host.Options()
	if err != nil {
		return err
	}
	ports := r.ports.beginRole()
	started := o.Started
	o.Started = func(all []Listening) {
		r.ports.closeUnused()
		r.node.SetLocalDialer(ports.dialLocal)
		if started != nil {
			started(all)
		}
	}
	defer r.node.SetLocalDialer(nil)
	o.portsOpen = true
	o.Dwork.Stop = dwork.AnswerNotFound // the work goes on: the next leader has the jobs
	s, err := newServer(o)
	if err != nil {
		return err
	}
	s.journalOpts.Replica, s.journalOpts.Replicator = r.node.Replica(), lead
	s.holdsLease, s.node, s.listenOn, s.tls = lead.Holds, r.node, ports.open, r.checked.tls
	r.host.SetServer(s)
	defer r.host.SetServer(nil)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer stop()
		select {
		case <-ctx.Done():
			r.node.TransferLeadership(context.Background()) // it is bounded in time
		case <-lead.Lost():
		case <-ended:
		}
		select {
		case <-lead.Lost(): // the next leader has the jobs: nothing is left to wait for
			s.drainNanos.Store(0)
		default:
		}
	}()
	err = s.Run(serving)
	close(ended)
	select {
	case <-lead.Lost():
		return cluster.ErrNotLeader
	default:
		return err
	}
}

// mayAnswer reports whether this node still leads. It is called after a reply is computed and before it is sent: a
// process that was stopped for a while may not know yet that another node has led since.
func (s *Server) mayAnswer() bool { return s.holdsLease == nil || s.holdsLease() }

// leadListener listens for HTTP in a cluster. Its connections send nothing after the lead has ended, see mayAnswer.
type leadListener struct {
	net.Listener
	server *Server
}

// Accept implements net.Listener.
func (l *leadListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &leadConn{c.(tcpOrForwarded), l.server}, nil
}

// tcpOrForwarded is a net.TCPConn or a forwardedConn: HTTP listens on TCP, or TLS over it.
type tcpOrForwarded interface {
	net.Conn
	SetWriteBuffer(bytes int) error
}

// leadConn is a connection of leadListener.
type leadConn struct {
	tcpOrForwarded
	server *Server
}

// Guarded reports whether the guard of another node has checked the requests, see web.Guard.
func (c *leadConn) Guarded() bool {
	forwarded, ok := c.tcpOrForwarded.(*forwardedConn)
	return ok && forwarded.byNode
}

// Write implements net.Conn.
func (c *leadConn) Write(b []byte) (int, error) {
	if !c.server.mayAnswer() {
		return 0, errStopping
	}
	return c.tcpOrForwarded.Write(b)
}

// forwardedPort is a port whose connections a follower forwards to the leader.
type forwardedPort struct {
	setting   string
	addresses []string
	// localOnly reports whether only clients of this machine are taken: the leader would mistake others for local
	// ones.
	localOnly bool
}

// forwardedPorts returns the ports of all protocols and of HTTP.
func (s *Server) forwardedPorts() (all []forwardedPort) {
	for _, p := range s.loopPorts() {
		all = append(all, forwardedPort{setting: p.Setting, addresses: p.Addresses})
	}
	all = append(all, forwardedPort{setting: "dwork", addresses: s.o.Dwork.Listen},
		forwardedPort{setting: "kts46", addresses: s.o.Kts46.Listen}, forwardedPort{setting: "kts46-json", addresses: s.o.Kts46.JSON},
		forwardedPort{setting: "admin", addresses: s.o.Admin.Listen, localOnly: true})
	if s.o.HTTP != "" {
		all = append(all, forwardedPort{setting: "http", addresses: []string{s.o.httpListens()}})
	}
	return all
}

// isLocal reports whether a client is of this machine.
func isLocal(c net.Conn) bool {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}
