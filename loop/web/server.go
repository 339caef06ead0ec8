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

// Config describes a server and limits what its peers may use.
type Config struct {
	Handler http.Handler
	Guard   *Guard                                  // refuses requests from other sites' pages
	Refuse  func(w http.ResponseWriter, why string) // answers refused requests, see Guard; nil: in plain text
	Around  func(guarded http.Handler) http.Handler // handles some requests without the guard, passes on the rest; nil: none
	Log     *slog.Logger

	Header         time.Duration // to read the head of a request; 0: Request
	Request        time.Duration // to read a whole request
	Answer         time.Duration // to write an answer, from the end of the head
	Idle           time.Duration // between two requests of a connection
	MaxHeader      int           // bytes
	MaxBody        int64         // bytes; reading more fails with http.MaxBytesError; 0: the handlers limit it
	MaxConnections int           // see connections; 0: the listener limits them
	Grace          time.Duration // for Close to wait for requests in progress
	// Admit counts a connection that Admit, the function, takes out of MaxConnections; leave ends that. Its error names
	// the setting of the limit that is reached. It is called under a lock. nil: every connection stays within
	// MaxConnections.
	Admit func() (leave func(), err error)
}

// Server answers HTTP on one listener.
type Server struct {
	listener net.Listener
	http     *http.Server
	grace    time.Duration
}

// NewServer returns a server that does not serve yet. It logs net/http's errors about peers at level debug.
func NewServer(l net.Listener, c Config) *Server {
	handler := c.Guard.handler(c.Handler, c.Refuse)
	if c.Around != nil {
		handler = c.Around(handler)
	}
	if c.MaxBody > 0 {
		handler = http.MaxBytesHandler(handler, c.MaxBody)
	}
	s := &Server{closingOnce{l, sync.OnceValue(func() error { return l.Close() })}, &http.Server{
		Handler: recovered(handler, c.Log), ReadHeaderTimeout: c.Header, ReadTimeout: c.Request,
		WriteTimeout: c.Answer, IdleTimeout: c.Idle, MaxHeaderBytes: c.MaxHeader, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}, c.Grace}
	s.http.ConnContext = withConn
	if c.MaxConnections > 0 {
		limit := newConnections(c.MaxConnections, c.Admit)
		s.http.ConnState = limit.change
		s.http.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return withConn(limit.begin(ctx, c), c) }
	}
	return s
}

// Serve answers requests until Drain or Close.
func (s *Server) Serve() error {
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Drain stops accepting connections.
func (s *Server) Drain() { _ = s.listener.Close() } // net/http closes it again

// Close ends the server. It returns an error when it cut off requests.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()
	s.Drain() // net/http does not know the listener before Serve
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close() // Shutdown's error says enough
	}
	return err
}

// closingOnce is a listener that can be closed again.
type closingOnce struct {
	net.Listener
	close func() error
}

// Close implements net.Listener.
func (c closingOnce) Close() error { return c.close() }

// recovered closes the connection of a request whose handler panics, and logs the panic.
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
