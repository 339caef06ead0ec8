package loop

import (
	"fmt"
	"net/http"
	"time"

	"treadle/loop/admin"
	"treadle/loop/journal"
	"treadle/loop/page"
	"treadle/loop/protocol"
	"treadle/loop/web"
)

// liveLimit is how long the timer or an event loop may be stuck until /livez says so. Both have work once a second.
const liveLimit = 5 * time.Second

// openHTTP opens the HTTP port and serves it. Until the server serves, /readyz says how far the start is, and pages of
// protocols are refused.
func (s *Server) openHTTP() error {
	if s.o.HTTP == "" {
		return nil
	}
	l, err := s.listenOn("http", s.o.httpListens())
	if err != nil {
		return err
	}
	s.httpAddress = "http://" + l.Addr().String()
	if l.Addr().Network() == "tls" {
		s.httpAddress = "https://" + l.Addr().String()
	}
	if s.holdsLease != nil {
		l = &leadListener{l, s}
	}
	routes := []web.Route{web.Probe("/livez", s.live), web.Probe("/readyz", s.readyProbe), web.Probe("/healthz", s.readyProbe)}
	for p := range protocolsWith[protocol.RouteProvider](s) {
		for _, route := range p.Routes() {
			routes = append(routes, s.whenServing(route))
		}
	}
	if s.o.Web.Web != page.Off {
		for operators := range protocolsWith[*admin.API](s) {
			for _, p := range page.New(s.o.Web, operators.Handler(), admin.CheckCaller, s.conns.maxAPIConns).Routes() {
				routes = append(routes, s.whenServing(p))
			}
		}
	}
	if s.o.Pprof == "on" {
		routes = append(routes, web.Profiles()...)
	}
	s.web = web.New(l, s.guard, s.scrape, s.admitOperator, routes...)
	s.goroutines.Go(func() {
		if err := s.web.Serve(); err != nil {
			s.log.Error("HTTP stopped", "error", err)
		}
	})
	return nil
}

// closeHTTP ends openHTTP for a server that does not start.
func (s *Server) closeHTTP() {
	if s.web != nil {
		_ = s.web.Close() // another error is why the server does not start
	}
	s.goroutines.Wait()
}

// admitOperator counts a connection of --http that uses the HTTP API.
func (s *Server) admitOperator() (leave func(), err error) {
	id := s.conns.id(admin.Name)
	return func() { s.conns.removeAPI(id) }, s.conns.tryAddAPI(id)
}

// whenServing returns the route, which refuses requests until the server serves.
func (s *Server) whenServing(route web.Route) web.Route {
	serve := route.Handler
	route.Handler = func(w http.ResponseWriter, r *http.Request) {
		switch {
		case s.serving.Load():
			serve(w, r)
		case route.Long:
			web.RefuseJSON(w, http.StatusServiceUnavailable, *s.progress.Load())
		default:
			http.Error(w, *s.progress.Load(), http.StatusServiceUnavailable)
		}
	}
	return route
}

// setProgress sets what /readyz says about the start.
func (s *Server) setProgress(progress string) { s.progress.Store(&progress) }

// ready returns the state that /readyz shows. A server that refuses new jobs is ready, because its
// workers must reach it.
func (s *Server) ready() (ok bool, text string) {
	failed := s.failure.Load()
	switch {
	case failed != nil:
		return false, "failed: " + failed.Error()
	case s.stopping.Load():
		return false, "stopping"
	case !s.serving.Load():
		return false, *s.progress.Load()
	case s.memory.full():
		return true, fmt.Sprintf("degraded: refusing new jobs: the server holds %v of --max-memory %v", journal.Size(s.memory.used()), journal.Size(s.memory.limit))
	case s.journal.full():
		return true, "degraded: refusing new jobs: the disk of --data has less free space than --min-free"
	}
	return true, "ok"
}

// readyProbe is ready with the role of a node: only a leader serves.
func (s *Server) readyProbe() (ok bool, text string) {
	if ok, text = s.ready(); text == "ok" && s.node != nil {
		text = "ok: leader"
	}
	return ok, text
}

// Live reports whether /livez says that the server is alive. It may be called while Run runs.
func (s *Server) Live() bool {
	ok, _ := s.live()
	return ok
}

// live returns the state that /livez shows: whether a restart would help. A start that takes long and a drain are no
// reason for one.
func (s *Server) live() (ok bool, text string) {
	if !s.serving.Load() || s.stopping.Load() {
		return true, "ok"
	}
	now := s.now().Mono
	if d := time.Duration(now-s.swept.Load()) * time.Millisecond; d > liveLimit {
		return false, fmt.Sprintf("the timer is stuck: it has not run for %v", d)
	}
	for i := range s.reactors {
		if r := s.reactors[i].Load(); r != nil {
			if d := time.Duration(now-r.swept.Load()) * time.Millisecond; d > liveLimit {
				return false, fmt.Sprintf("event loop %d is stuck: it has not turned for %v", i, d)
			}
		}
	}
	return true, "ok"
}
