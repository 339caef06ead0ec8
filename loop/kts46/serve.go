package kts46

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
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
	}{{SettingXML, h.o.XML}, {SettingJSON, h.o.JSON}} {
		for _, a := range p.addresses {
			l, err := h.host.Listen(protocolName, p.setting, a)
			if err != nil {
				return nil, err
			}
			h.sockets = append(h.sockets, l)
			h.servers = append(h.servers, h.newServer(p.setting))
			all = append(all, protocol.ListeningOn(p.setting, l))
		}
	}
	if len(h.sockets) > 0 {
		h.site, err = newSite(h, h.o.MongoDB)
	}
	return all, err
}

// newServer is net/http's with a bound for everything.
func (h *Hub) newServer(setting string) *http.Server {
	return &http.Server{
		Handler: h.o.Guard.Handler(h.Handler(setting), nil), ReadHeaderTimeout: h.o.HandshakeTimeout, ReadTimeout: h.o.FrameTimeout,
		WriteTimeout: 2 * h.o.FrameTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(h.host.Log().Handler(), slog.LevelDebug), // hostile peers cause these lines
	}
}

// Handler answers the calls to the addresses of a setting, whatever host they name.
func (h *Hub) Handler(setting string) http.HandlerFunc {
	if setting == SettingJSON {
		return h.guard(h.serveJSON)
	}
	return h.guard(h.serveXML)
}

// guard has a mistake of our own close one connection, and be told of.
func (h *Hub) guard(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			why := recover()
			if why == nil {
				return
			}
			if why != http.ErrAbortHandler {
				h.host.Log().Error("a kts46 call met a mistake of the server, closing its connection", "path", r.URL.Path, "panic", why, "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}()
		runtime.Gosched() // a peer that asks without a pause would keep a processor for its 10 ms
		answer(w, r)
	}
}

// Serve implements protocol.Service.
func (h *Hub) Serve(context.Context) {
	for i, l := range h.sockets {
		h.running.Go(func() {
			if err := h.servers[i].Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
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
	for _, l := range h.sockets {
		_ = l.Close() // closing twice is no fault
	}
}

// Owes implements protocol.Service.
func (h *Hub) Owes() bool { return h.active.Load() > 0 }

// Close implements protocol.Service. Nothing is changed by a call from now on.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.Drain()
	for _, s := range h.servers {
		_ = s.Close() // it was only to stop
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
		m := h.unread.begin(len(body), h.host.MostUnsent(), func() {
			_ = http.NewResponseController(w).SetWriteDeadline(over) // fails only when it is closed
		})
		defer m.leave(false)
		m.answer, to = w, m
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
