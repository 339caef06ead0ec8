package loop

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"treadle/loop/kts46"
	"treadle/loop/kts46/store"
)

// Kts46Options are the settings of the kts46 protocols. The zero value of a field means
// its default.
type Kts46Options struct {
	// Listen and JSON list the addresses of XML-RPC and of JSON-RPC, as
	// Options.Periodic does; default tcp://127.0.0.1:46210 and tcp://127.0.0.1:46400.
	Listen, JSON []string
	// Timeout is how often workers are told to report; default 5 s.
	Timeout time.Duration
	// TimeoutUnit is the unit in which workers of version 1 are told: "s" (default), as
	// the original worker reads it, or "ms", as the document says. With milliseconds an
	// original worker sleeps 5,000 s between reports.
	TimeoutUnit string
	// RestartAfter is the silence of a worker after which its task is queued again;
	// default 0, never: supervisors outside see to it.
	RestartAfter time.Duration
	// Databases are the host:port pairs that version 2 names to its workers; default: those
	// of MongoDB.
	Databases []string
	// MongoDB is the URI of the site's MongoDB, where projects and jobs are for the original
	// workers; empty: there is none.
	MongoDB string
}

// Units of Kts46Options.TimeoutUnit.
const (
	KtsSeconds      = "s"
	KtsMilliseconds = "ms"
)

const (
	defaultKtsTimeout = 5 * time.Second
	// minKtsTimeout keeps a worker from being told to report all the time.
	minKtsTimeout = time.Millisecond
	// maxKtsTimeout is what XML-RPC's int has bits for, in milliseconds.
	maxKtsTimeout = (1<<31 - 1) * time.Millisecond
)

func (o *Kts46Options) fillDefaults(host string) {
	if len(o.Listen) == 0 {
		o.Listen = []string{"tcp://" + net.JoinHostPort(host, "46210")}
	}
	if len(o.JSON) == 0 {
		o.JSON = []string{"tcp://" + net.JoinHostPort(host, "46400")}
	}
	setDefault(&o.Timeout, defaultKtsTimeout)
	setDefault(&o.TimeoutUnit, KtsSeconds)
	if len(o.Databases) == 0 && o.MongoDB != "" {
		o.Databases = siteHosts(o.MongoDB)
	}
}

// mongoPort is MongoDB's own.
const mongoPort = "27017"

// siteHosts are the servers of a URI as host:port. Of a bad one, which validate refuses,
// there are none, nor of sockets, which workers elsewhere cannot reach.
func siteHosts(uri string) (all []string) {
	hosts, _ := store.Hosts(uri)
	for _, h := range hosts {
		if strings.Contains(h, "/") {
			continue
		}
		if _, _, err := net.SplitHostPort(h); err != nil {
			h = net.JoinHostPort(strings.Trim(h, "[]"), mongoPort)
		}
		all = append(all, h)
	}
	return all
}

func (o *Kts46Options) validate() error {
	switch {
	case o.Timeout < minKtsTimeout || o.Timeout > maxKtsTimeout:
		return badOption("kts46-timeout", "%v is not between %v and %v", o.Timeout, minKtsTimeout, maxKtsTimeout)
	case o.TimeoutUnit != KtsMilliseconds && o.TimeoutUnit != KtsSeconds:
		return badOption("kts46-timeout-unit", "%q is neither s nor ms", o.TimeoutUnit)
	case o.RestartAfter < 0:
		return badOption("kts46-restart-after", "a time cannot be negative")
	}
	if o.MongoDB != "" {
		if _, err := store.Hosts(o.MongoDB); err != nil {
			return &OptionError{Setting: "kts46-mongodb", Err: err}
		}
	}
	if _, err := o.databases(); err != nil {
		return &OptionError{Setting: "kts46-databases", Err: err}
	}
	return nil
}

func (o *Kts46Options) databases() ([]kts46.Database, error) {
	all := []kts46.Database{}
	for _, d := range o.Databases {
		host, digits, err := net.SplitHostPort(d)
		if err != nil {
			return nil, fmt.Errorf("%q is not host:port: %w", d, err)
		}
		port, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || host == "" {
			return nil, fmt.Errorf("%q is not host:port, as in 127.0.0.1:27017", d)
		}
		all = append(all, kts46.Database{Host: host, Port: uint16(port)})
	}
	return all, nil
}

// options are those of the protocol, and what of the server's it follows.
func (o *Kts46Options) options(s *Server) kts46.Options {
	databases, _ := o.databases() // validated
	unit := time.Second
	if o.TimeoutUnit == KtsMilliseconds {
		unit = time.Millisecond
	}
	return kts46.Options{
		XML: o.Listen, JSON: o.JSON, Timeout: o.Timeout, TimeoutUnit: unit, RestartAfter: o.RestartAfter, Databases: databases, MongoDB: o.MongoDB,
		HandshakeTimeout: s.o.HandshakeTimeout, FrameTimeout: s.o.FrameTimeout, Large: s.largeOutput(), Guard: s.guard,
	}
}
