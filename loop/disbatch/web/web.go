package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
	"treadle/loop/web"
)

// Options describe a command interface.
type Options struct {
	Config *config.File
	Listen string            // overrides the configuration
	Users  map[string]string // override the configuration
	// AllowHosts are further host names that requests may be sent to.
	AllowHosts []string
	Log        *slog.Logger
	Ready      func(address string) // called with the address when requests are accepted; may be nil
}

// Limits of the command interface.
const (
	defaultListen = "127.0.0.1:8080"
	// maxBody is enough for a hundred thousand tasks with ordinary parameters.
	maxBody = 32 << 20
	// maxPeers is far more than the requests that are answered at once. It is small enough for the header and small
	// body that each connection may hold.
	maxPeers = 1024
	// requestTimeout is enough for the database to accept the largest body.
	requestTimeout = time.Minute
	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeader      = 64 << 10
	// stopTimeout is the time for requests in progress when the server stops.
	stopTimeout = 10 * time.Second
)

// Run serves the command interface until ctx ends. While the database is away, replies contain its error. Run returns a
// SettingError when the database can never be used with these settings.
func Run(ctx context.Context, o Options) error {
	site, err := store.Open(o.Config.Connection(config.ComponentWeb))
	if err != nil {
		return err
	}
	defer site.Close()
	address := cmp.Or(o.Listen, o.Config.Web.Listen, defaultListen)
	guard, err := newGuard(o.AllowHosts, address, o.Log)
	if err != nil {
		return err
	}
	l, err := config.Listen(address, "--listen, or treadle_web: listen")
	if err != nil {
		return err
	}
	c := &commandInterface{config: o.Config, store: site, guard: guard, users: o.Users, log: o.Log}
	if c.users == nil {
		c.users = o.Config.Web.Users
	}
	bound := l.Addr().String()
	o.Log.Info("listening", "protocol", "disbatch", "address", "http://"+bound, "database", o.Config.Database, "users", len(c.users))
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() && len(c.users) == 0 {
		o.Log.Warn("everybody who reaches the address may change queues: set treadle_web: users, or --users", "address", bound)
	}
	if o.Ready != nil {
		o.Ready(bound)
	}
	return c.serve(ctx, l)
}

// serve answers requests on a listener until ctx ends or the database turns out to be unusable.
func (c *commandInterface) serve(ctx context.Context, l net.Listener) error {
	server := c.server(l)
	ctx, end := context.WithCancelCause(ctx)
	var checking sync.WaitGroup
	checking.Go(func() {
		if err := c.store.Retrier(c.log, nil).Usable(ctx); err != nil && ctx.Err() == nil {
			end(err)
		}
	})
	defer checking.Wait()
	defer end(nil)
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- server.Close() })
	if err := server.Serve(); err != nil {
		stop()
		return err
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("requests were cut off: %w", err)
	}
	var unusable *config.SettingError
	if errors.As(context.Cause(ctx), &unusable) {
		return unusable
	}
	return nil
}

// server returns the HTTP server of the command interface.
func (c *commandInterface) server(l net.Listener) *web.Server {
	return web.NewServer(l, web.Config{
		Handler: c.handler(), Guard: c.guard, Log: c.log, MaxHeader: maxHeader, MaxBody: maxBody, MaxConnections: maxPeers, Grace: stopTimeout,
		Header: headerTimeout, Request: requestTimeout, Answer: 2 * requestTimeout, Idle: idleTimeout,
		Refuse: func(w http.ResponseWriter, why string) {
			send(w, newRequestError(http.StatusForbidden, why).reply())
		},
	})
}

// newGuard returns the guard of an address.
func newGuard(allow []string, address string, log *slog.Logger) (*web.Guard, error) {
	guard, err := web.NewGuard(web.GuardOptions{Allow: allow, Listen: []string{address}, Log: log})
	if err != nil {
		return nil, &config.SettingError{Err: fmt.Errorf("--allow-host: %w", err)}
	}
	return guard, nil
}

// commandInterface answers the requests of a site, as the DCI (Disbatch command interface) of the original does.
type commandInterface struct {
	config *config.File
	store  *store.Store
	guard  *web.Guard
	users  map[string]string
	log    *slog.Logger
	logged atomic.Int64 // Unix second of the last logged database error

	mu   sync.Mutex
	seen map[string]sighting // by the node's name
}

// route returns the reply to a request with these parameters.
type route func(r *http.Request, p params) reply

// handler returns the handler of all routes and pages.
func (c *commandInterface) handler() http.Handler {
	mux := http.NewServeMux()
	routes := c.routes()
	routes["GET /info"] = c.getInfo(routes)
	pages := map[string]http.HandlerFunc{
		"GET /tasks": c.tasksPage, "GET /tasks/{id}": c.taskPage,
		"GET /balance": func(w http.ResponseWriter, r *http.Request) { c.balancePage(w, r, nil) },
	}
	for pattern, f := range routes {
		if page := pages[pattern]; page != nil {
			mux.Handle(pattern, c.either(page, f))
		} else {
			mux.Handle(pattern, c.json(f))
		}
	}
	c.pages(mux)
	// Without the last two patterns, /nodes and /queues would redirect every method to /nodes/ and /queues/.
	for _, pattern := range []string{"/", "/nodes", "/queues"} {
		mux.HandleFunc(pattern, void)
	}
	return c.authenticated(bounded(newTransfers(maxHeld), mux))
}

// void is the reply to an unknown path.
func void(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte("This is the void")) // the original's words
}

// routes returns the JSON routes of 4.0, 4.1 and before 4.
func (c *commandInterface) routes() map[string]route {
	return map[string]route{
		"GET /nodes":                    c.getNodes,
		"GET /nodes/{node...}":          c.getNode,
		"POST /nodes/{node...}":         c.postNode,
		"GET /plugins":                  c.getPlugins,
		"GET /queues":                   c.getQueues,
		"GET /queues/{queue...}":        c.getQueue,
		"POST /queues":                  c.postQueues,
		"POST /queues/{queue...}":       c.postQueue,
		"DELETE /queues/{queue...}":     c.deleteQueue,
		"POST /tasks/search":            c.postSearch,
		"POST /tasks/{queue}":           c.postTasks,
		"POST /tasks/{queue}/{from...}": c.postTasksFrom,

		"GET /tasks":      c.getTasks41,
		"GET /tasks/{id}": c.getTask41,
		"POST /tasks":     c.postTasks41,
		"GET /monitoring": c.getMonitoring,
		"GET /balance":    c.getBalance,
		"POST /balance":   c.postBalance,

		"GET /scheduler-json":                      c.getQueues,
		"POST /set-queue-attr-json":                c.legacySetQueueAttr,
		"POST /start-queue-json":                   c.legacyStartQueue,
		"POST /delete-queue-json":                  c.legacyDeleteQueue,
		"GET /queue-prototypes-json":               c.legacyPrototypes,
		"POST /queue-prototypes-json":              c.legacyPrototypes,
		"POST /queue-create-tasks-json":            c.legacyCreateTasks,
		"POST /queue-create-tasks-from-query-json": c.legacyCreateTasksFrom,
		"POST /search-tasks-json":                  c.legacySearch,
	}
}

// json converts a route to a handler.
func (c *commandInterface) json(f route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := readParams(r)
		if err != nil {
			send(w, badRequest("%v", err).reply())
			return
		}
		send(w, f(r, p))
	})
}

// authenticated lets only users in, if there are any.
func (c *commandInterface) authenticated(next http.Handler) http.Handler {
	if len(c.users) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, _ := r.BasicAuth()
		want, known := c.users[name]
		given, right := sha256.Sum256([]byte(password)), sha256.Sum256([]byte(want))
		if same := subtle.ConstantTimeCompare(given[:], right[:]) == 1; same && known {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="disbatch", charset="UTF-8"`)
		send(w, newRequestError(http.StatusUnauthorized, "a user's name and password are required").reply())
	})
}
