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

// ClusterHost is the program of a node.
type ClusterHost interface {
	// Options returns the settings with which the node begins to serve.
	Options() (Options, error)
	// Serves is called with the server that the node is from now on, and with nil when it is none.
	Serves(*Server)
}

// ClusterSocket is the name of a node's socket in the directory of Options.Data, see cluster.Node.Serve.
const ClusterSocket = "cluster.sock"

// clusterSetting is the setting of ClusterOptions.Name.
const clusterSetting = "cluster"

// clusterRun is a node that runs.
type clusterRun struct {
	checked *Server // does not run: it has the settings with which the node began
	host    ClusterHost
	ports   heldPorts
	node    *cluster.Node
}

// RunCluster is a node of the cluster of o until ctx ends or the server is shut down. While the node leads, it is a
// server as Run makes it. Otherwise it passes the connections to its ports on to the leader. It returns as Run does.
func RunCluster(ctx context.Context, o Options, h ClusterHost) error {
	checked, err := newServer(o) // finds wrong settings before there is a node
	if err != nil {
		return err
	}
	r := &clusterRun{checked: checked, host: h}
	defer r.ports.close()
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
	go r.node.Serve(status)
	for {
		lead, err := r.follow(ctx)
		switch {
		case ctx.Err() != nil && lead != nil:
			lead.End()
			return nil
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		err = r.lead(ctx, lead)
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
		stop, err := r.showJoining(&c)
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

// showJoining serves HTTP for a node that waits to be added.
func (r *clusterRun) showJoining(c *cluster.Options) (stop func(), err error) {
	l, err := r.ports.begin().open("http", "tcp://"+r.checked.o.HTTP)
	if err != nil {
		return nil, err
	}
	r.checked.setProgress("waiting to be added to the cluster")
	c.OnWait = func(why string) { r.checked.setProgress("waiting to be added to the cluster: " + why) }
	state := func() (bool, string) { return false, *r.checked.progress.Load() }
	none := func() []web.Sample { return nil }
	places := func() (func(), error) { return nil, errors.New(*r.checked.progress.Load()) }
	f := r.checked.serveFollower(l, state, none, nil, places)
	var served sync.WaitGroup
	served.Go(func() { _ = f.run() }) // only probes miss it
	return func() {
		f.close()
		served.Wait()
	}, nil
}

// follow passes connections on until this node leads.
func (r *clusterRun) follow(ctx context.Context) (*cluster.Lead, error) {
	following, cancel := context.WithCancel(ctx)
	p, err := newPasser(following, r.node, r.checked, &r.ports)
	if err == nil {
		defer p.wait()
	}
	defer cancel()
	if err != nil {
		return nil, err
	}
	return r.node.AwaitLead(ctx)
}

// lead serves while the node leads. The error wraps cluster.ErrNotLeader when that has ended.
func (r *clusterRun) lead(ctx context.Context, lead *cluster.Lead) error {
	defer lead.End()
	o, err := r.host.Options()
	if err != nil {
		return err
	}
	ports := r.ports.begin()
	started := o.Started
	o.Started = func(all []Listening) {
		r.ports.closeUnused()
		r.node.Pass(ports.pass)
		if started != nil {
			started(all)
		}
	}
	defer r.node.Pass(nil)
	o.Dwork.Stop = dwork.AnswerNotFound // the work is not over: the next leader has it
	s, err := newServer(o)
	if err != nil {
		return err
	}
	s.journalOpts.Replica, s.journalOpts.Replicator = r.node.Replica(), lead
	s.leads, s.node, s.listenOn = lead.Holds, r.node, ports.open
	r.host.Serves(s)
	defer r.host.Serves(nil)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer stop()
		select {
		case <-ctx.Done():
			r.node.HandOver(context.Background()) // bounded by itself
		case <-lead.Lost():
		case <-ended:
		}
		select {
		case <-lead.Lost(): // the next leader has the jobs: nothing is left to wait for
			s.drains.Store(0)
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

// mayAnswer reports whether a reply still counts that was found out before the call. A process that was stopped for a
// while, and goes on, may not know yet that another node has led since.
func (s *Server) mayAnswer() bool { return s.leads == nil || s.leads() }

// leadListener is the listener of HTTP in a cluster, see mayAnswer.
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
	return &leadConn{c.(tcpOrPassed), l.server}, nil
}

// tcpOrPassed is a net.TCPConn or a passedConn: HTTP listens on TCP alone.
type tcpOrPassed interface {
	net.Conn
	SetWriteBuffer(bytes int) error
}

type leadConn struct {
	tcpOrPassed
	server *Server
}

// Judged reports whether the guard of another node has seen the requests, see web.Guard.
func (c *leadConn) Judged() bool {
	_, passed := c.tcpOrPassed.(*passedConn)
	return passed
}

// Write implements net.Conn.
func (c *leadConn) Write(b []byte) (int, error) {
	if !c.server.mayAnswer() {
		return 0, errStopping
	}
	return c.tcpOrPassed.Write(b)
}

// passPort is a port whose connections a follower passes on.
type passPort struct {
	setting   string
	addresses []string
	// localOnly reports whether clients of other machines are refused: the port is for the owner of the server.
	localOnly bool
}

// passPorts returns the ports of all protocols, and of HTTP.
func (s *Server) passPorts() (all []passPort) {
	for _, p := range s.loopPorts() {
		all = append(all, passPort{setting: p.Setting, addresses: p.Addresses})
	}
	all = append(all, passPort{setting: "dwork", addresses: s.o.Dwork.Listen},
		passPort{setting: "kts46", addresses: s.o.Kts46.Listen}, passPort{setting: "kts46-json", addresses: s.o.Kts46.JSON},
		passPort{setting: "admin", addresses: s.o.Admin.Listen, localOnly: true})
	if s.o.HTTP != "" {
		all = append(all, passPort{setting: "http", addresses: []string{"tcp://" + s.o.HTTP}})
	}
	return all
}

// isLocal reports whether a client is of this machine.
func isLocal(c net.Conn) bool {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	return !ok || a.IP.IsLoopback()
}
