package kts46

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	codec "treadle/codec/kts46"
	"treadle/loop/protocol"
	"treadle/loop/web"
)

// idleTimeout is how long a connection is kept for its next call: workers report every
// few seconds.
const idleTimeout = 5 * time.Minute

// maxHeader is plenty for what clients send.
const maxHeader = 16 << 10

// Listen implements protocol.Service: it opens both versions' addresses, and the site's MongoDB.
func (h *Hub) Listen() (all []protocol.Listening, err error) {
	for _, p := range []struct {
		setting   string
		addresses []string
	}{{SettingXML, h.o.Listen}, {SettingJSON, h.o.JSON}} {
		for _, a := range p.addresses {
			l, err := h.host.Listen(protocolName, p.setting, a)
			if err != nil {
				return nil, err
			}
			h.servers = append(h.servers, h.newServer(l, p.setting))
			all = append(all, protocol.ListeningOn(p.setting, l))
		}
	}
	if len(h.servers) > 0 {
		h.site, err = newSite(h, h.o.MongoDB)
	}
	return all, err
}

// newServer answers the calls to an address of a setting.
func (h *Hub) newServer(l net.Listener, setting string) *web.Server {
	return web.NewServer(l, h.o.Guard.Handler(h.Handler(setting), nil), web.Limits{
		Header: h.o.HandshakeTimeout, Request: h.o.FrameTimeout, Answer: 2 * h.o.FrameTimeout, Idle: idleTimeout, MaxHeader: maxHeader,
	}, h.host.Log())
}

// Handler answers the calls to the addresses of a setting, whatever host they name.
func (h *Hub) Handler(setting string) http.HandlerFunc {
	answer := h.serveXML
	if setting == SettingJSON {
		answer = h.serveJSON
	}
	return func(w http.ResponseWriter, r *http.Request) {
		runtime.Gosched() // a peer that asks without a pause would keep a processor for its 10 ms
		answer(w, r)
	}
}

// Serve implements protocol.Service.
func (h *Hub) Serve(context.Context) {
	for _, s := range h.servers {
		h.running.Go(func() {
			if err := s.Serve(); err != nil {
				h.host.Log().Error("kts46 stopped", "error", err)
			}
		})
	}
	if h.o.RestartAfter > 0 {
		h.running.Go(h.supervise)
	}
	if h.site != nil {
		h.running.Go(h.site.look)
	}
}

// supervise looks for silent workers until Close.
func (h *Hub) supervise() {
	ticker := time.NewTicker(max(h.o.RestartAfter/silenceChecks, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-h.done:
			return
		case <-ticker.C:
			h.Expire()
		}
	}
}

// Drain implements protocol.Service: calls that have come are answered, on connections that there are.
func (h *Hub) Drain() {
	for _, s := range h.servers {
		s.Drain()
	}
}

// Owes implements protocol.Service.
func (h *Hub) Owes() bool { return h.active.Load() > 0 }

// Close implements protocol.Service. Nothing is changed by a call from now on.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, s := range h.servers {
		_ = s.Close() // whoever was owed an answer has had the server's time to drain
	}
	h.site.close()
	close(h.done)
	h.running.Wait()
}

// answering counts a call that is being answered until the function returned is called.
func (h *Hub) answering() (done func()) {
	h.active.Add(1)
	return func() { h.active.Add(-1) }
}

// body reads what a call says. A longer one than a call can be is refused unread; false:
// it was. heard is to be called when the call has been carried out, see hear.
func (h *Hub) body(w http.ResponseWriter, r *http.Request) (body []byte, heard func(), ok bool) {
	if r.ContentLength <= codec.MaxRequest {
		body, heard, err := h.hear(w, http.MaxBytesReader(w, r.Body, codec.MaxRequest), r.ContentLength)
		if err == nil {
			return body, heard, true
		}
		if !errors.As(err, new(*http.MaxBytesError)) {
			h.stats.cut.Add(1)
			panic(http.ErrAbortHandler) // nobody is there to answer
		}
	}
	h.stats.tooLarge.Add(1)
	w.Header().Set("Connection", "close")
	h.send(w, http.StatusRequestEntityTooLarge, "text/plain", []byte(fmt.Sprintf("a call has at most %dMiB\n", codec.MaxRequest>>20)))
	return nil, nil, false
}

// send writes an answer all the way to the socket.
func (h *Hub) send(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	to := io.Writer(w)
	if len(body) > h.o.Large {
		m := &moving{answer: w, Holding: h.unread.Begin(len(body), nil, func() {
			_ = http.NewResponseController(w).SetWriteDeadline(web.Over) // fails only when it is closed
		})}
		defer m.End()
		to = m
	}
	w.WriteHeader(status)
	_, err := to.Write(body)
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		h.stats.cut.Add(1)
	}
}

// stats counts what happened since the start.
type stats struct {
	requests      map[string]*atomic.Uint64 // by method; the map never changes
	refused       atomic.Uint64
	tooLarge, cut atomic.Uint64
	parsed        atomic.Uint64 // definitions
}

// requestCounters makes a counter for each method of both versions.
func requestCounters() map[string]*atomic.Uint64 {
	all := make(map[string]*atomic.Uint64)
	for name := range xmlMethods {
		all[name] = new(atomic.Uint64)
	}
	for name := range jsonMethods {
		all[name] = new(atomic.Uint64)
	}
	return all
}

// Samples implements protocol.Protocol.
func (h *Hub) Samples() (all []web.Sample) {
	for name, n := range h.stats.requests {
		if n := n.Load(); n > 0 {
			s := web.Counter("treadle_kts46_requests_total", "Calls of the kts46 protocols.", n)
			s.Label, s.LabelValue = "method", name
			all = append(all, s)
		}
	}
	if h.site != nil {
		all = append(all, web.Counter("treadle_kts46_mongodb_failures_total", "Calls of the MongoDB of kts46 that have failed.", h.site.failures.Load()))
	}
	h.mu.Lock()
	held, projects, jobs := len(h.holdings()), len(h.projects), h.entries-len(h.projects)
	h.mu.Unlock()
	return append(all,
		web.Gauge("treadle_kts46_projects", "Projects known.", projects),
		web.Gauge("treadle_kts46_jobs", "Jobs of projects, done ones included.", jobs),
		web.Gauge("treadle_kts46_held_tasks", "Tasks that a worker holds.", held),
		web.Counter("treadle_kts46_definitions_parsed_total", "Definitions of jobs parsed: by addJob, and at the start those of an older version.", h.stats.parsed.Load()),
		web.Counter("treadle_kts46_refused_total", "Calls answered with a fault or an error.", h.stats.refused.Load()),
		web.Counter("treadle_kts46_too_large_total", "Calls refused unread for their length.", h.stats.tooLarge.Load()),
		web.Counter("treadle_kts46_cut_total", "Calls whose rest never came, and answers that could not be sent.", h.stats.cut.Load()),
	)
}
