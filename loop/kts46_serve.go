package loop

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"treadle/codec/kts46"
	"treadle/loop/protocol"
	"treadle/loop/web"
)

// ktsIdleTimeout is how long a connection is kept for its next call: workers report every
// few seconds.
const ktsIdleTimeout = 5 * time.Minute

// maxKtsHeader is plenty for what clients send.
const maxKtsHeader = 16 << 10

// listen opens both versions' addresses; nothing is accepted before serve.
func (h *ktsHub) listen() error {
	o := &h.server.o.Kts46
	for _, p := range []struct {
		protocol  string
		addresses []string
		answer    http.HandlerFunc
	}{{"kts46", o.Listen, h.serveXML}, {"kts46-json", o.JSON, h.serveJSON}} {
		for _, a := range p.addresses {
			l, err := h.server.open(p.protocol, a)
			if err != nil {
				return err
			}
			h.server.listening = append(h.server.listening, protocol.ListeningOn(p.protocol, l))
			h.add(l, p.answer)
		}
	}
	var err error
	if len(h.sockets) > 0 {
		h.site, err = newKtsSite(h, o.MongoDB)
	}
	return err
}

// add has serve answer on one more socket.
func (h *ktsHub) add(l net.Listener, answer http.HandlerFunc) {
	h.sockets = append(h.sockets, l)
	h.servers = append(h.servers, h.newServer(answer))
}

// newServer is net/http's with a bound for everything: a call arrives within
// FrameTimeout, and its answer is written within another after the sync.
func (h *ktsHub) newServer(answer http.HandlerFunc) *http.Server {
	o := &h.server.o
	return &http.Server{
		Handler: h.server.guard.Handler(h.guard(answer), nil), ReadHeaderTimeout: o.HandshakeTimeout, ReadTimeout: o.FrameTimeout,
		WriteTimeout: 2 * o.FrameTimeout, IdleTimeout: ktsIdleTimeout, MaxHeaderBytes: maxKtsHeader,
		ErrorLog: slog.NewLogLogger(h.server.log.Handler(), slog.LevelDebug), // hostile peers cause these lines
	}
}

// guard has a mistake of our own close one connection, and be told of.
func (h *ktsHub) guard(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			why := recover()
			if why == nil {
				return
			}
			if why != http.ErrAbortHandler {
				h.server.log.Error("a kts46 call met a mistake of the server, closing its connection", "path", r.URL.Path, "panic", why, "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}()
		runtime.Gosched() // a peer that asks without a pause would keep a processor for its 10 ms
		answer(w, r)
	}
}

// serve starts what answers, and the supervisor when there is to be one.
func (h *ktsHub) serve() {
	s := h.server
	for i, l := range h.sockets {
		s.workers.Go(func() {
			if err := h.servers[i].Serve(&countedListener{l, s, kts46ID}); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				s.log.Error("kts46 stopped", "error", err)
			}
		})
	}
	if s.o.Kts46.RestartAfter > 0 {
		s.workers.Go(h.supervise)
	}
	if h.site != nil {
		s.workers.Go(h.site.look)
	}
}

// leaseChecks is how often a lease's length is looked for silent workers.
const leaseChecks = 4

// supervise looks for silent workers until the server has stopped.
func (h *ktsHub) supervise() {
	ticker := time.NewTicker(max(h.server.o.Kts46.RestartAfter/leaseChecks, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-h.server.stopped:
			return
		case <-ticker.C:
			_ = h.turn(h.expire) // what fails stops the server
		}
	}
}

// closeSockets stops accepting.
func (h *ktsHub) closeSockets() {
	for _, l := range h.sockets {
		_ = l.Close() // closing twice is no fault
	}
}

// close ends the connections. Nothing is changed by a call from now on.
func (h *ktsHub) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, s := range h.servers {
		_ = s.Close() // it was only to stop
	}
	h.site.close()
}

// answering counts a call that is being answered until the function returned is called.
func (h *ktsHub) answering() (done func()) {
	h.active.Add(1)
	return func() { h.active.Add(-1) }
}

// body reads what a call says. A longer one than a call can be is refused unread; false:
// it was. heard is to be called when the call has been carried out, see hear.
func (h *ktsHub) body(w http.ResponseWriter, r *http.Request) (body []byte, heard func(), ok bool) {
	if r.ContentLength <= kts46.MaxRequest {
		body, heard, err := h.hear(w, http.MaxBytesReader(w, r.Body, kts46.MaxRequest), r.ContentLength)
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
	h.send(w, http.StatusRequestEntityTooLarge, "text/plain", []byte("a call has at most "+size(kts46.MaxRequest).String()+"\n"))
	return nil, nil, false
}

// send writes an answer all the way to the socket.
func (h *ktsHub) send(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	to := io.Writer(w)
	if len(body) > h.server.large() {
		m := h.unread.begin(len(body), h.server.mostUnsent(), func() {
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

// awaitCommit returns when a group is committed, or the journal has failed.
func (s *Server) awaitCommit(group uint64) error {
	s.commits.L.Lock()
	defer s.commits.L.Unlock()
	for s.feed.journal.Committed() < group {
		if f := s.failure.Load(); f != nil {
			return f
		}
		s.commits.Wait()
	}
	return nil
}

// wakeCommits has awaitCommit look again.
func (s *Server) wakeCommits() {
	s.commits.L.Lock()
	defer s.commits.L.Unlock()
	s.commits.Broadcast()
}

// ktsStats counts what happened since the start.
type ktsStats struct {
	requests      map[string]*atomic.Uint64 // by method; the map never changes
	refused       atomic.Uint64
	tooLarge, cut atomic.Uint64
	parsed        atomic.Uint64 // definitions
}

// ktsCounters makes a counter for each method of both versions.
func ktsCounters() map[string]*atomic.Uint64 {
	all := make(map[string]*atomic.Uint64)
	for name := range ktsCalls {
		all[name] = new(atomic.Uint64)
	}
	for name := range ktsRequests {
		all[name] = new(atomic.Uint64)
	}
	return all
}

// projectCount is how many projects are known.
func (h *ktsHub) projectCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.projects)
}

// samples are the protocol's rows of the metrics.
func (h *ktsHub) samples() (all []web.Sample) {
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
