package web

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Guard refuses what pages of other sites have a browser send to an HTTP port. Such a port may be
// open to every process of a host, and a browser is one: it sends any page's POST of a form there,
// and by DNS rebinding, when a name of the page's site suddenly means this host, it lets the page
// read the answers. So requests that a browser marks as another site's are refused, and those to
// a name that is not known to be this host's. Programs that are no browsers send no such marks.
type Guard struct {
	names    map[string]bool // of this host, as hostOf returns them
	hostname string
	domain   func() string // the hostname with its domain, asked for once
	origin   *http.CrossOriginProtection
	log      *slog.Logger
	logged   atomic.Int64 // Unix second of the last line
	refused  [len(refusals)]atomic.Uint64
}

// The reasons of refusals, for the metrics' label.
const (
	foreignHost = iota
	foreignOrigin
)

var refusals = [...]string{foreignHost: "host", foreignOrigin: "origin"}

// GuardOptions say which host names requests may be sent to, beside IP addresses, localhost and
// the name of the host.
type GuardOptions struct {
	// Allow are host names without a port: the setting --allow-host.
	Allow []string
	// Listen are addresses that are listened on, tcp://host:port or host:port. Their hosts are
	// allowed.
	Listen []string
	// Log receives a line a second at most about refused requests; nil: discard.
	Log *slog.Logger
}

// lookupTimeout bounds the one look-up of the host's own domain: a request waits for it.
const lookupTimeout = time.Second

var hostName = regexp.MustCompile(`\A[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\z`)

// NewGuard returns a guard. An error is about Allow.
func NewGuard(o GuardOptions) (*Guard, error) {
	g := &Guard{names: map[string]bool{"localhost": true}, origin: http.NewCrossOriginProtection(), log: o.Log}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	for _, name := range o.Allow {
		host := normalHost(name)
		if !hostName.MatchString(host) {
			return nil, fmt.Errorf("%q is no host name: give the name alone, as in jobs.example.com", name)
		}
		g.names[host] = true
	}
	for _, address := range o.Listen {
		host, _, err := net.SplitHostPort(strings.TrimPrefix(address, "tcp://"))
		if host = normalHost(host); err == nil && hostName.MatchString(host) && !strings.HasPrefix(address, "unix:") {
			g.names[host] = true
		}
	}
	if name, err := os.Hostname(); err == nil {
		g.hostname = normalHost(name)
		g.names[g.hostname] = true
	}
	g.domain = sync.OnceValue(func() string {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
		defer cancel()
		name, err := net.DefaultResolver.LookupCNAME(ctx, g.hostname)
		if err != nil {
			return ""
		}
		return normalHost(name)
	})
	return g, nil
}

// normalHost is the form in which host names are compared.
func normalHost(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// hostOf returns the host of a Host header, without a port and brackets.
func hostOf(header string) string {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	return normalHost(host)
}

// knows reports whether a Host header names this host.
func (g *Guard) knows(header string) bool {
	host := hostOf(header)
	if host == "" || g.names[host] { // browsers name a host always
		return true
	}
	address, _, _ := strings.Cut(host, "%") // a zone
	if _, err := netip.ParseAddr(address); err == nil {
		return true // no name is in between that could come to mean another host
	}
	return g.hostname != "" && strings.HasPrefix(host, g.hostname+".") && host == g.domain()
}

// foreign reports whether a browser says that a page of another site sends the request. Only a
// link may lead here from there: what is read by following it is shown to the user alone.
func (g *Guard) foreign(r *http.Request) bool {
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return false
	}
	strict := *r
	strict.Method = http.MethodPost // it lets every GET pass: but some cost much, such as profiles
	return g.origin.Check(&strict) != nil
}

// maxShown is how much of a header is repeated in a text.
const maxShown = 100

// handler passes the requests that are not refused on. refuse answers the others, with status
// 403 and what is to be done; nil: as plain text.
func (g *Guard) handler(next http.Handler, refuse func(w http.ResponseWriter, why string)) http.Handler {
	if refuse == nil {
		refuse = func(w http.ResponseWriter, why string) { http.Error(w, why, http.StatusForbidden) }
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		switch {
		case local != nil && local.Network() == "unix": // no browser reaches it
		case !g.knows(r.Host):
			g.refuse(w, r, foreignHost, refuse, fmt.Sprintf("the request is for the host %.*q, which is not known to be this one: if it is, give its name to --allow-host", maxShown, hostOf(r.Host)))
			return
		case g.foreign(r):
			g.refuse(w, r, foreignOrigin, refuse, fmt.Sprintf("a page of another site (Origin: %.*q) may not send requests here; a proxy in front has to pass on the Host header of its own requests, see --allow-host", maxShown, r.Header.Get("Origin")))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, reason int, refuse func(http.ResponseWriter, string), why string) {
	g.refused[reason].Add(1)
	now := time.Now().Unix()
	if last := g.logged.Load(); last != now && g.logged.CompareAndSwap(last, now) {
		g.log.Warn("an HTTP request is refused", "remote", r.RemoteAddr, "why", why)
	}
	refuse(w, why)
}

// samples are the guard's rows of the metrics.
func (g *Guard) samples() (all []Sample) {
	for i, reason := range refusals {
		all = append(all, Sample{Name: "treadle_http_refused_total", Help: "HTTP requests refused because of the host that they name, or as a page's of another site.",
			Counter: true, Label: "reason", LabelValue: reason, Value: float64(g.refused[i].Load())})
	}
	return all
}
