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

// Guard refuses requests that a browser sends to an HTTP port on behalf of another site's page. A browser sends the
// POST of any page's form to any port of its host. By DNS rebinding, when a name of the page's site suddenly resolves
// to this host, it also shows the answers to the page. So the guard refuses requests that a browser marks as
// cross-site, and requests whose Host is not a known name of this host. Programs other than browsers send no such
// marks.
type Guard struct {
	names    map[string]bool // names of this host, as hostOf returns them
	hostname string
	domain   func() string // returns the hostname with its domain; resolves once
	origin   *http.CrossOriginProtection
	log      *slog.Logger
	logged   atomic.Int64 // Unix second of the last log line
	refused  [len(refusals)]atomic.Uint64
}

// The reasons for a refusal, values of the metric's label.
const (
	foreignHost = iota
	foreignOrigin
)

var refusals = [...]string{foreignHost: "host", foreignOrigin: "origin"}

// GuardOptions name the hosts that requests may be sent to. IP addresses, localhost and the host's own name are always
// allowed.
type GuardOptions struct {
	// Allow are host names without a port, from the setting --allow-host.
	Allow []string
	// Listen are listening addresses, tcp://host:port or host:port. Their hosts are allowed.
	Listen []string
	// Log receives at most one line a second about refused requests; nil discards them.
	Log *slog.Logger
}

// lookupTimeout bounds the only look-up of the host's domain: a request waits for it.
const lookupTimeout = time.Second

var hostName = regexp.MustCompile(`\A[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\z`)

// NewGuard returns a guard. It returns an error for an invalid name in Allow.
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
		host, _, err := net.SplitHostPort(withoutScheme(address))
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

// withoutScheme returns the host and port of tcp://host:port, tls://host:port?cert=FILE or host:port.
func withoutScheme(address string) string {
	_, rest, found := strings.Cut(address, "://")
	if !found {
		rest = address
	}
	rest, _, _ = strings.Cut(rest, "?")
	return rest
}

// normalHost returns the form in which host names are compared.
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
	if host == "" || g.names[host] { // a browser always sends a host
		return true
	}
	address, _, _ := strings.Cut(host, "%") // without the IPv6 zone
	if _, err := netip.ParseAddr(address); err == nil {
		return true // an address is not resolved, so DNS cannot redirect it
	}
	return g.hostname != "" && strings.HasPrefix(host, g.hostname+".") && host == g.domain()
}

// foreign reports whether a browser sends the request for another site's page. Following a link is allowed: only the
// user sees the answer.
func (g *Guard) foreign(r *http.Request) bool {
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return false
	}
	strict := *r
	strict.Method = http.MethodPost // Check lets every GET pass, but some are expensive, such as profiles
	return g.origin.Check(&strict) != nil
}

// foreignMark returns the header by which a request is foreign. Without Sec-Fetch-Site its Origin decides.
func foreignMark(r *http.Request) string {
	mark := "Sec-Fetch-Site"
	if r.Header.Get(mark) == "" {
		mark = "Origin"
	}
	return fmt.Sprintf("%s: %.*q", mark, maxShown, r.Header.Get(mark))
}

// maxShown is how many bytes of a header an error repeats.
const maxShown = 100

// handler passes allowed requests to next. refuse answers the others with status 403 and a remedy; nil answers in plain
// text.
func (g *Guard) handler(next http.Handler, refuse func(w http.ResponseWriter, why string)) http.Handler {
	if refuse == nil {
		refuse = func(w http.ResponseWriter, why string) { http.Error(w, why, http.StatusForbidden) }
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		switch {
		case local != nil && local.Network() == "unix": // no browser can reach it
		case guardedBefore(r):
		case !g.knows(r.Host):
			g.refuse(w, r, foreignHost, refuse, fmt.Sprintf("the request is for the host %.*q, which is not known to be this one: if it is, give its name to --allow-host", maxShown, hostOf(r.Host)))
			return
		case g.foreign(r):
			g.refuse(w, r, foreignOrigin, refuse, fmt.Sprintf("a page of another site (%s) may not send requests here; a proxy in front has to pass on the Host header of its own requests, see --allow-host", foreignMark(r)))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guardedBefore reports whether the guard of another node of the cluster has let the request pass: that node may know
// other names of hosts.
func guardedBefore(r *http.Request) bool {
	c, ok := ConnOf(r).(interface{ Guarded() bool })
	return ok && c.Guarded()
}

func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, reason int, refuse func(http.ResponseWriter, string), why string) {
	g.refused[reason].Add(1)
	now := time.Now().Unix()
	if last := g.logged.Load(); last != now && g.logged.CompareAndSwap(last, now) {
		g.log.Warn("an HTTP request is refused", "remote", r.RemoteAddr, "why", why)
	}
	refuse(w, why)
}

// samples returns the guard's metrics.
func (g *Guard) samples() (all []Sample) {
	for i, reason := range refusals {
		all = append(all, Counter("treadle_http_refused_total", "HTTP requests refused because of the host that they name, or as a page's of another site.",
			g.refused[i].Load()).With("reason", reason))
	}
	return all
}
