// Package page serves the pages by which people see and run a server.
//
// The pages are rendered here with html/template and work without JavaScript. They read and change the server only
// through the HTTP API, in the same process (api.go), so that they have no rules of their own.
//
// In reading order: page.go and layout.go carry a request to its page and render it, one file a page collects what it
// shows, format.go writes names, numbers and times, files/ has the templates, the stylesheet and the script.
package page

import (
	"embed"
	"html/template"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"treadle/loop/protocol"
	"treadle/loop/web"
)

// Values of Options.Web.
const (
	ReadWrite = "read-write"
	ReadOnly  = "read-only"
	Off       = "off"
)

// Options are the settings of the pages, as of package setting.
type Options struct {
	Web  string `name:"web" enum:"read-write,read-only,off" default:"read-write" help:"Pages for people on the port of --http: read-write, read-only (what changes something is refused) or off (default: ${default})."`
	Path string `name:"web-path" placeholder:"PATH" help:"Path in front of the pages, as /jobs, for a proxy that passes it on (default: none)."`
	// Payload is read by parseSecrecy.
	Payload string `name:"web-payload" default:"show" placeholder:"show|hide|redact=KEYS" help:"What the pages show of workloads and results: show, hide, or redact=password,card, which leaves out the values of these keys of JSON and hides what is no JSON (default: ${default})."`
	// Docs are the documents, a file docs/NAME.md each, and Topics their names in reading order.
	Docs   fs.FS    `kong:"-"`
	Topics []string `kong:"-"`
}

// Check returns an OptionError when a setting cannot work.
func (o *Options) Check() error {
	if _, ok := parseSecrecy(o.Payload); !ok {
		return protocol.BadOption("web-payload", "%q is neither show, nor hide, nor redact= with keys, as redact=password,card", o.Payload)
	}
	path := strings.TrimSuffix(o.Path, "/")
	if path == "" {
		return nil
	}
	for _, part := range strings.Split(path[1:], "/") {
		if path[0] != '/' || part == "" || part == "." || part == ".." || strings.Trim(part, pathLetters) != "" {
			return protocol.BadOption("web-path", "%q is no path: write it as /jobs, with letters, digits, - and _", o.Path)
		}
	}
	return nil
}

const pathLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// Pages is the pages of one server.
type Pages struct {
	api     api
	root    string // in front of every path; empty or /x
	write   bool
	secrecy secrecy
	docs    func() docs
	assets  map[string]*asset
	tmpl    *template.Template // all templates of files/

	maxAPIConns func() int // see New

	mu       sync.Mutex
	overview cachedOverview
	sparks   map[string]spark // by queue
	notices  notices
	streams  streams
}

// New makes the pages. handler answers the requests of the HTTP API; allow returns why one is refused, connections how
// many connections the API may have.
func New(o Options, handler http.Handler, allow func(*http.Request) error, connections func() int) *Pages {
	s := &Pages{
		api: api{handler, allow}, root: strings.TrimSuffix(o.Path, "/"), write: o.Web != ReadOnly,
		sparks: make(map[string]spark), maxAPIConns: connections,
	}
	s.docs = sync.OnceValue(func() docs { return newDocs(o.Docs, o.Topics, s.root) })
	s.secrecy, _ = parseSecrecy(o.Payload) // Check has seen a wrong one
	s.assets = loadAssets()
	s.tmpl = s.templates()
	return s
}

//go:embed files
var files embed.FS

// pageFunc collects what the template of a page shows.
type pageFunc func(s *Pages, r *http.Request) (*view, error)

// pageFuncs are the pages by their paths.
var pageFuncs = map[string]pageFunc{
	"/{$}":         (*Pages).home,
	"/queues":      (*Pages).queues,
	"/queue":       (*Pages).queue,
	"/jobs":        (*Pages).jobs,
	"/job":         (*Pages).job,
	"/failed":      (*Pages).failed,
	"/connections": (*Pages).connections,
	"/cron":        (*Pages).cron,
	"/dwork":       (*Pages).tasks,
	"/kts46":       (*Pages).projects,
	"/cluster":     (*Pages).cluster,
	"/activity":    (*Pages).activity,

	"/disbatch":       (*Pages).site,
	"/disbatch/tasks": (*Pages).siteTasks,
	"/disbatch/task":  (*Pages).siteTask,

	"/operation":    (*Pages).operation,
	"/confirm":      (*Pages).confirm,
	"/submit":       (*Pages).submit,
	"/settings":     (*Pages).settings,
	"/docs":         (*Pages).documents,
	"/docs/{topic}": (*Pages).document,
}

// Routes returns the pages for the HTTP server.
func (s *Pages) Routes() (all []web.Route) {
	add := func(method, path string, serve http.HandlerFunc) {
		all = append(all, web.Route{Pattern: method + " " + s.root + path, Long: true, Handler: s.guarded(serve), Allow: s.allow})
	}
	for path, page := range pageFuncs {
		add(http.MethodGet, path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, page) })
	}
	add(http.MethodGet, "/assets/{file}", s.serveAsset)
	add(http.MethodGet, "/live", s.live)
	add(http.MethodGet, "/job/{part}", s.download)
	add(http.MethodGet, "/disbatch/text", s.downloadText)
	add(http.MethodPost, "/theme", s.setTheme)
	add(http.MethodPost, "/do/{what}", s.handleForm)
	if s.root != "" {
		add(http.MethodGet, "", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, s.root+"/", http.StatusSeeOther) })
	}
	return all
}

// answerTime is the time for a browser to read a page.
const answerTime = 30 * time.Second

// maxForm bounds the body of a form. The longest names a thousand jobs.
const maxForm = 64 << 10

// guarded bounds what a request of a page may take, and sets what a browser may do with the answer.
func (s *Pages) guarded(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // fails only when the connection is closed
		secure(w.Header())
		serve(w, r)
	}
}

// policy is the Content-Security-Policy of all pages: nothing but the server's own files, no inline script or style.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// secure sets the security headers of every answer.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// allow refuses a request as the API does.
func (s *Pages) allow(w http.ResponseWriter, r *http.Request) bool {
	err := s.api.allow(r)
	if err != nil {
		secure(w.Header())
		w.Header().Set("Connection", "close")
		http.Error(w, err.Error(), http.StatusForbidden)
	}
	return err == nil
}
