package page

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	codec "treadle/codec/admin"
)

// view is a page that is to be rendered.
type view struct {
	name   string // of its template
	title  string
	area   string // the path of the area of the menu that it belongs to
	status int    // 0: 200
	data   any    // for the template
	static bool   // it is not updated while it is shown
	reload bool   // without JavaScript it loads itself again
}

// shell is what the frame of every page shows.
type shell struct {
	Title, Theme, Now, Zone, Self string
	Version, Health, HealthText   string
	Menu                          []menuGroup
	Main                          template.HTML
	ReadOnly, Live                bool
	Reload                        bool // it loads itself again until what it shows is over
	Refresh                       int  // seconds; 0: the page does not load itself again
	Notice                        *notice
}

// menuGroup is a group of the menu. Its first has no name.
type menuGroup struct {
	Name  string
	Items []menuItem
}

type menuItem struct {
	Path, Name string
	Here       bool
	Count      string // beside the name; empty: none
	Bad        bool   // the count needs attention

	// shown reports whether the server has what the area shows; nil: every server has it. The area of the page itself
	// is always shown.
	shown func(*codec.Overview) bool
}

// menu are the areas, in order.
var menu = []menuGroup{
	{"", []menuItem{
		{Path: "/", Name: "Overview"}, {Path: "/queues", Name: "Queues"}, {Path: "/jobs", Name: "Jobs"}, {Path: "/failed", Name: "Failed"},
		{Path: "/connections", Name: "Connections"}, {Path: "/cron", Name: "Cron"},
	}},
	{"Protocols", []menuItem{
		{Path: "/dwork", Name: "dwork tasks"}, {Path: "/kts46", Name: "kts46 projects"},
		{Path: "/disbatch", Name: "Disbatch", shown: func(o *codec.Overview) bool { return o.Disbatch }},
	}},
	{"Server", []menuItem{
		{Path: "/cluster", Name: "Cluster", shown: func(o *codec.Overview) bool { return o.Cluster != "" }},
		{Path: "/activity", Name: "Activity"}, {Path: "/settings", Name: "Settings"}, {Path: "/docs", Name: "Documents"},
	}},
}

// serve answers with a page.
func (s *Pages) serve(w http.ResponseWriter, r *http.Request, page pageFunc) {
	text, status := s.render(r, page)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	respond(w, r, status, text)
}

// render returns a page and its status. A page that fails is replaced by the error page.
func (s *Pages) render(r *http.Request, page pageFunc) (text []byte, status int) {
	v, err := s.collect(r, page)
	var main, whole bytes.Buffer
	if err == nil {
		err = s.tmpl.ExecuteTemplate(&main, v.name, v.data)
	}
	if err != nil {
		main.Reset()
		status := statusOf(err)
		v = &view{title: http.StatusText(status), status: status, static: true}
		_ = s.tmpl.ExecuteTemplate(&main, "error", struct {
			Status      int
			Title, Text string
		}{status, v.title, sentence(err.Error())}) // a bytes.Buffer takes everything
	}
	frame := s.shell(r, v)
	frame.Main = template.HTML(main.String()) //nolint:gosec // html/template has made it
	_ = s.tmpl.ExecuteTemplate(&whole, "shell", frame)
	return whole.Bytes(), cmp.Or(v.status, http.StatusOK)
}

// collect collects what a page shows.
func (s *Pages) collect(r *http.Request, page pageFunc) (*view, error) {
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return nil, &apiError{http.StatusBadRequest, "the address cannot be read: " + err.Error()}
	}
	return page(s, r)
}

// shell returns the frame of a page.
func (s *Pages) shell(r *http.Request, v *view) *shell {
	now := time.Now()
	zone, _ := now.Zone()
	f := &shell{
		Title: v.title, Theme: themeOf(r), Now: now.Format(time.TimeOnly), Zone: zone, Self: r.URL.RequestURI(),
		ReadOnly: !s.write, Live: !v.static,
	}
	if v.reload {
		f.Refresh, f.Reload = leastRefresh, true
	} else if n, err := strconv.Atoi(r.URL.Query().Get("refresh")); err == nil && n >= leastRefresh && n <= 3600 {
		f.Refresh = n
	}
	o, err := s.currentOverview(r)
	switch {
	case err != nil:
		f.Health, f.HealthText = "bad", err.Error()
	case !o.Ready:
		f.Health, f.HealthText = "bad", o.Health
	case o.Health != "ok":
		f.Health, f.HealthText = "warn", o.Health
	default:
		f.Health, f.HealthText = "ok", "ready"
	}
	if err != nil {
		o = nil
	} else {
		f.Version = o.Version
	}
	f.Menu, f.Notice = menuOf(v.area, o), s.notices.named(r)
	return f
}

// menuOf returns the menu of a page in an area. o is nil when there is no overview.
func menuOf(area string, o *codec.Overview) (all []menuGroup) {
	for _, group := range menu {
		items := slices.Clone(group.Items)
		group.Items = nil
		for _, item := range items {
			if item.Here = item.Path == area; o != nil {
				item.count(o)
			}
			if item.Here || item.shown == nil || o != nil && item.shown(o) {
				group.Items = append(group.Items, item)
			}
		}
		all = append(all, group)
	}
	return all
}

// count sets what stands beside an area of the menu.
func (m *menuItem) count(o *codec.Overview) {
	if n := len(o.Attention) + o.AttentionMore; m.Path == "/" && n > 0 {
		m.Count, m.Bad = number(n), true
	}
}

// leastRefresh is the least time between two loads of a page by itself, in seconds.
const leastRefresh = 2

// asset is a file of the pages.
type asset struct {
	contentType string
	text, small []byte // as it is, and compressed
}

// assetTypes are the content types of the assets by their extensions.
var assetTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png"}

// loadAssets returns the files by the names under which they are served, which change with their content: a browser may
// keep them for ever.
func loadAssets() map[string]*asset {
	all := make(map[string]*asset)
	entries, err := files.ReadDir("files")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, e := range entries {
		ext := path.Ext(e.Name())
		if assetTypes[ext] == "" {
			continue
		}
		text, err := files.ReadFile("files/" + e.Name())
		if err != nil {
			panic("BUG: " + err.Error())
		}
		sum := sha256.Sum256(text)
		name := strings.TrimSuffix(e.Name(), ext) + "." + base64.RawURLEncoding.EncodeToString(sum[:6]) + ext
		all[name] = &asset{assetTypes[ext], text, compress(text)}
	}
	return all
}

// assetURL returns the path of a file.
func (s *Pages) assetURL(file string) (string, error) {
	ext := path.Ext(file)
	for name := range s.assets {
		if strings.HasPrefix(name, strings.TrimSuffix(file, ext)+".") && path.Ext(name) == ext {
			return s.root + "/assets/" + name, nil
		}
	}
	return "", fs.ErrNotExist
}

// serveAsset answers with a file of the pages.
func (s *Pages) serveAsset(w http.ResponseWriter, r *http.Request) {
	a := s.assets[r.PathValue("file")]
	if a == nil {
		http.Error(w, "there is no such file; load the page again", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	text := a.text
	if takesGzip(r) {
		text = a.small
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // a browser that has gone needs no file
}

var gzips = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// compress returns text as gzip has it.
func compress(text []byte) []byte {
	var b bytes.Buffer
	z := gzips.Get().(*gzip.Writer)
	defer gzips.Put(z)
	z.Reset(&b)
	_, _ = z.Write(text) // a bytes.Buffer takes everything
	_ = z.Close()
	return b.Bytes()
}

func takesGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" && strings.ReplaceAll(weight, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// leastCompressed is the size from which an answer is compressed, in bytes: about one packet.
const leastCompressed = 1400

// respond answers with a text, compressed where the browser takes that.
func respond(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	h := w.Header()
	h.Set("Vary", "Accept-Encoding, Cookie")
	if len(text) >= leastCompressed && takesGzip(r) {
		text = compress(text)
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // a browser that has gone needs no page
}

// themeCookie keeps the theme that a person has chosen.
const themeCookie = "treadle-theme"

// themes are the themes; auto is that of the browser.
var themes = []string{"auto", "light", "dark"}

func themeOf(r *http.Request) string {
	if c, err := r.Cookie(themeCookie); err == nil && slices.Contains(themes, c.Value) {
		return c.Value
	}
	return themes[0]
}

// setTheme keeps the theme that a form has chosen, and goes back to the page of the form.
func (s *Pages) setTheme(w http.ResponseWriter, r *http.Request) {
	theme := r.PostFormValue("theme")
	if !slices.Contains(themes, theme) {
		http.Error(w, "the theme is auto, light or dark", http.StatusBadRequest)
		return
	}
	s.setCookie(w, themeCookie, theme)
	http.Redirect(w, r, s.back(r.PostFormValue("back"), "/"), http.StatusSeeOther)
}

// cookieAge is how long a browser keeps a cookie, in seconds.
const cookieAge = 365 * 24 * 3600

func (s *Pages) setCookie(w http.ResponseWriter, name, value string) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // the port speaks plain HTTP
		Name: name, Value: value, Path: s.root + "/", MaxAge: cookieAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// errNotHere is the error of an address that leads elsewhere.
var errNotHere = errors.New("not a page of this server")

// back returns the address of a page of this server to go back to; other, below the root, when address is none.
func (s *Pages) back(address, other string) string {
	if u, err := s.parsePage(address); err == nil {
		return u.RequestURI()
	}
	return s.root + other
}

// parsePage parses the address of a page of this server.
func (s *Pages) parsePage(address string) (*url.URL, error) {
	u, err := url.ParseRequestURI(address)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, s.root+"/") || strings.HasPrefix(u.Path, "//") || strings.Contains(u.Path, `\`):
		return nil, errNotHere
	}
	return u, nil
}
