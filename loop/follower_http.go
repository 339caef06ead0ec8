package loop

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
	"time"

	"treadle/loop/admin"
	"treadle/loop/cluster"
	"treadle/loop/page"
	"treadle/loop/web"
)

// followerHTTP is the HTTP port of a node that does not lead. Probes and metrics are of the node itself. It forwards
// all other requests to the leader, with connections of their own for each client's connection: the leader knows the
// client by its connection. While no leader serves, the node answers for the cluster itself.
type followerHTTP struct {
	web   *web.Server
	state func() (ok bool, text string)
	dial  func(ctx context.Context, client cluster.Client) (net.Conn, error)
	proxy httputil.ReverseProxy
	api   http.Handler // what the node answers of the API without a leader
	site  *page.Pages  // the page that it has without a leader; nil: --web off
}

// answerReadTime is the time for a client to read a piece of an answer of the leader.
const answerReadTime = 30 * time.Second

// leaderIdle is how long an unused connection to the leader is kept for the next request of its client.
const leaderIdle = 30 * time.Second

// serveFollower makes the server of the HTTP port; run serves. state is that of /readyz. dial connects to the leader;
// nil with node: the node has not joined yet. admit is web.Config.Admit.
func (s *Server) serveFollower(l net.Listener, node *cluster.Node, state func() (bool, string), samples func() []web.Sample,
	dial func(context.Context, cluster.Client) (net.Conn, error), admit func() (leave func(), err error),
) *followerHTTP {
	f := &followerHTTP{state: state, dial: dial, api: s.apiWithoutLeader(node, state)}
	if s.o.Web.Web != page.Off {
		f.site = page.New(s.o.Web, f.api, admin.CheckCaller, s.conns.maxAPIConns)
	}
	f.proxy = httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "leader", r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery // unchanged
		},
		Transport:     f,
		FlushInterval: -1, // the events of a stream are sent one by one
		ErrorHandler:  refuseUnforwarded,
		ErrorLog:      slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	routes := []web.Route{
		web.Probe("/livez", func() (bool, string) { return true, "ok" }), web.Probe("/readyz", state), web.Probe("/healthz", state),
		{Pattern: "/", Long: true, Handler: f.forward, Allow: allowForwarded},
	}
	if s.o.Pprof == "on" {
		routes = append(routes, web.Profiles()...)
	}
	own := func() []web.Sample {
		ok, _ := state()
		return slices.Concat(s.basicSamples(ok), samples(), s.tls.samples())
	}
	f.web = web.New(&clientListener{l, f}, s.guard, own, admit, routes...)
	return f
}

// run serves until close.
func (f *followerHTTP) run() error { return f.web.Serve() }

// close ends run. Requests that it cuts off end as at a restart.
func (f *followerHTTP) close() { _ = f.web.Close() } // nothing is lost with it

// clientListener gives each accepted connection a transport to the leader.
type clientListener struct {
	net.Listener
	follower *followerHTTP
}

// Accept implements net.Listener.
func (l *clientListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	client := &httpClient{tcpOrForwarded: c.(tcpOrForwarded)}
	client.leader = &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return l.follower.connect(ctx, client) },
		MaxIdleConnsPerHost: 1, IdleConnTimeout: leaderIdle, DisableCompression: true, ExpectContinueTimeout: time.Second,
	}
	return client, nil
}

// httpClient is the connection of a client, with the transport for its requests to the leader.
type httpClient struct {
	tcpOrForwarded
	leader *http.Transport
}

// Close implements net.Conn.
func (c *httpClient) Close() error {
	c.leader.CloseIdleConnections()
	return c.tcpOrForwarded.Close()
}

// notForwardedError is the error of a request that did not reach the leader.
type notForwardedError struct{ error }

// Unwrap returns the cause.
func (e notForwardedError) Unwrap() error { return e.error }

// connect connects to the leader for a client.
func (f *followerHTTP) connect(ctx context.Context, client *httpClient) (net.Conn, error) {
	if f.dial == nil {
		return nil, notForwardedError{errors.New("this node has not joined its cluster yet")}
	}
	c, err := f.dial(ctx, clientOf(client.tcpOrForwarded))
	if err != nil {
		return nil, notForwardedError{err}
	}
	return c, nil
}

// RoundTrip implements http.RoundTripper with the transport of the client's connection.
func (f *followerHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	return web.ConnOf(r).(*httpClient).leader.RoundTrip(r) // clientListener has made it
}

// allowForwarded implements web.Page.Allow. It refuses a request that the leader would refuse from a client of its own.
func allowForwarded(w http.ResponseWriter, r *http.Request) bool {
	err := admin.CheckCaller(r)
	if err != nil {
		w.Header().Set("Connection", "close")
		web.RefuseJSON(w, http.StatusForbidden, err.Error())
	}
	return err == nil
}

// clusterPath is the request of the API that a node answers itself while no leader serves.
const clusterPath = "/api/v1/cluster"

// apiWithoutLeader answers requests of the API while no leader serves: that for the cluster, and others with why.
func (s *Server) apiWithoutLeader(node *cluster.Node, state func() (bool, string)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+clusterPath, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.clusterState(r.Context(), node)) // a client that has gone needs no answer
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		_, text := state()
		text, _, _ = strings.Cut(text, ";") // the state of the cluster says more about each node
		web.RefuseJSON(w, http.StatusServiceUnavailable, text)
	})
	return mux
}

// alone returns how the node itself answers a request while no leader serves: one for the cluster, or for a page. It
// returns nil for others, which wait for a leader, and while one serves.
func (f *followerHTTP) alone(r *http.Request) (serve http.HandlerFunc) {
	if r.Method == http.MethodGet && r.URL.Path == clusterPath {
		serve = f.api.ServeHTTP
	} else if f.site != nil {
		serve = f.site.Away(r)
	}
	if serve == nil {
		return nil
	}
	if ok, _ := f.state(); ok {
		return nil
	}
	return serve
}

// forward forwards a request. The leader bounds the time of the request, and this node the time in which its answer is
// unread.
func (f *followerHTTP) forward(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	if serve := f.alone(r); serve != nil {
		_ = out.SetWriteDeadline(time.Now().Add(answerReadTime)) // fails only when the connection is closed
		serve(w, r)
		return
	}
	_, _ = out.SetReadDeadline(time.Time{}), out.SetWriteDeadline(time.Time{}) // they fail only when the connection is closed
	f.proxy.ServeHTTP(&forwardedAnswer{w, out}, r)
}

// forwardedAnswer is an answer of the leader on its way to the client.
type forwardedAnswer struct {
	http.ResponseWriter
	out *http.ResponseController
}

// Unwrap is for http.ResponseController.
func (a *forwardedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Write implements http.ResponseWriter.
func (a *forwardedAnswer) Write(b []byte) (int, error) {
	_ = a.out.SetWriteDeadline(time.Now().Add(answerReadTime)) // fails only when the connection is closed
	return a.ResponseWriter.Write(b)
}

// refuseUnforwarded answers a request that did not reach the leader. A request that may have reached the leader gets no
// answer: its connection ends, as when a single server is killed.
func refuseUnforwarded(w http.ResponseWriter, _ *http.Request, err error) {
	var not notForwardedError
	if !errors.As(err, &not) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Retry-After", "1")
	web.RefuseJSON(w, http.StatusServiceUnavailable, not.Error())
}

// clientOf returns the client at the other end of a connection to this node.
func clientOf(c net.Conn) cluster.Client {
	if uid, ok := web.UserOf(c); ok {
		return cluster.Client{Network: "unix", User: &uid}
	}
	a := c.RemoteAddr()
	if a.Network() == "unix" {
		return cluster.Client{Network: "unix"}
	}
	address := a.String()
	if at, err := netip.ParseAddrPort(address); err == nil {
		address = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
	}
	return cluster.Client{Network: a.Network(), Address: address}
}
