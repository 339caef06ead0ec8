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

// Limits bound what the peers of a server take.
type Limits struct {
	Header    time.Duration // for the head of a request to arrive; 0: as Request
	Request   time.Duration // for all of it
	Answer    time.Duration // for the answer to be written, from the end of the head
	Idle      time.Duration // that a connection waits for its next request
	MaxHeader int           // bytes
	Places    int           // connections, see Places; 0: the listener bounds them
	Grace     time.Duration // that Close leaves to requests under way
}

// Server answers HTTP on one listener.
type Server struct {
	listener net.Listener
	http     *http.Server
	grace    time.Duration
}

// NewServer returns a server in its limits. What net/http has to say of its peers is logged at level debug.
func NewServer(l net.Listener, handler http.Handler, most Limits, log *slog.Logger) *Server {
	s := &Server{closingOnce{l, sync.OnceValue(func() error { return l.Close() })}, &http.Server{
		Handler: recovered(handler, log), ReadHeaderTimeout: most.Header, ReadTimeout: most.Request, WriteTimeout: most.Answer,
		IdleTimeout: most.Idle, MaxHeaderBytes: most.MaxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}, most.Grace}
	if most.Places > 0 {
		Places(s.http, most.Places)
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

// Over is a deadline that has passed.
var Over = time.Unix(1, 0)
