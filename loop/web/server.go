package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// Config says what a server answers with, and bounds what its peers may take.
type Config struct {
	Handler http.Handler
	Guard   *Guard                                  // refuses what pages of other sites send
	Refuse  func(w http.ResponseWriter, why string) // answers refused requests, see Guard; nil: as plain text
	Around  func(guarded http.Handler) http.Handler // answers some requests unguarded, passes the others on; nil: none
	Log     *slog.Logger

	Header    time.Duration // for the head of a request to arrive; 0: as Request
	Request   time.Duration // for all of it
	Answer    time.Duration // for the answer to be written, from the end of the head
	Idle      time.Duration // that a connection waits for its next request
	MaxHeader int           // bytes
	MaxBody   int64         // bytes; reading further is a http.MaxBytesError
	Places    int           // connections, see places; 0: the listener bounds them
	Grace     time.Duration // that Close leaves to requests under way
}

// Server answers HTTP on one listener.
type Server struct {
	listener net.Listener
	http     *http.Server
	grace    time.Duration
}

// NewServer returns a server that does not serve yet. It logs the errors that net/http reports of peers at level debug.
func NewServer(l net.Listener, c Config) *Server {
	handler := c.Guard.handler(c.Handler, c.Refuse)
	if c.Around != nil {
		handler = c.Around(handler)
	}
	s := &Server{closingOnce{l, sync.OnceValue(func() error { return l.Close() })}, &http.Server{
		Handler: recovered(http.MaxBytesHandler(handler, c.MaxBody), c.Log), ReadHeaderTimeout: c.Header, ReadTimeout: c.Request,
		WriteTimeout: c.Answer, IdleTimeout: c.Idle, MaxHeaderBytes: c.MaxHeader, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}, c.Grace}
	if c.Places > 0 {
		p := newPlaces(c.Places)
		s.http.ConnContext, s.http.ConnState = p.begin, p.change
	}
	return s
}

// Serve answers until Drain or Close.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Drain lets no new connection in.
func (s *Server) Drain() { _ = s.listener.Close() } // there is nothing to be done about it

// Close ends the server. An error says that requests were cut off.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()
	s.Drain() // net/http does not know of a listener before Serve
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close() // it was only to stop
	}
	return err
}

// closingOnce is a listener that may be closed again.
type closingOnce struct {
	net.Listener
	close func() error
}

// Close implements net.Listener.
func (c closingOnce) Close() error { return c.close() }

// recovered has a mistake of the server end one connection, and be logged.
func recovered(next http.Handler, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			why := recover()
			if why == nil {
				return
			}
			if why != http.ErrAbortHandler {
				log.Error("an HTTP request met a mistake of the server, closing its connection", "path", r.URL.Path, "panic", why, "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler)
		}()
		next.ServeHTTP(w, r)
	})
}
