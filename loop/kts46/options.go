package kts46

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"treadle/loop/kts46/store"
	"treadle/loop/protocol"
)

// Options are the settings of the protocols. The zero value of a field means its default.
type Options struct {
	// Listen and JSON list the addresses of XML-RPC and of JSON-RPC, as of
	// protocol.CheckAddresses; default tcp://127.0.0.1:46210 and tcp://127.0.0.1:46400.
	Listen, JSON []string
	// Timeout is how often workers are told to report; default 5 s.
	Timeout time.Duration
	// TimeoutUnit is the unit in which version 1 tells its workers: "s" (default), as the
	// original worker reads it, or "ms", as the document says. With milliseconds an
	// original worker sleeps 5,000 s between reports.
	TimeoutUnit string
	// RestartAfter is the silence of a worker after which its task is queued again; default 0,
	// never, because supervisors outside restart tasks.
	RestartAfter time.Duration
	// Databases are the host:port pairs that version 2 names to its workers; default: those of
	// MongoDB.
	Databases []string
	// MongoDB is the URI of the site's MongoDB, where the original workers have projects and jobs;
	// empty: there is none.
	MongoDB string
}

// Values of TimeoutUnit.
const (
	seconds      = "s"
	milliseconds = "ms"
)

// The settings that hold addresses.
const (
	SettingXML  = "kts46"      // of version 1
	SettingJSON = "kts46-json" // of version 2
)

// DefaultPort is the port of the default address of XML-RPC.
const DefaultPort = "46210"

const (
	defaultPortJSON = "46400"
	defaultTimeout  = 5 * time.Second
	// minTimeout keeps a worker from reporting all the time.
	minTimeout = time.Millisecond
	// maxTimeout is the largest that XML-RPC's int holds in milliseconds.
	maxTimeout = (1<<31 - 1) * time.Millisecond
)

// FillDefaults fills the defaults in. host is the host of the default addresses.
func (o *Options) FillDefaults(host string) {
	if len(o.Listen) == 0 {
		o.Listen = []string{"tcp://" + net.JoinHostPort(host, DefaultPort)}
	}
	if len(o.JSON) == 0 {
		o.JSON = []string{"tcp://" + net.JoinHostPort(host, defaultPortJSON)}
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.TimeoutUnit = cmp.Or(o.TimeoutUnit, seconds)
	if len(o.Databases) == 0 && o.MongoDB != "" {
		o.Databases = siteHosts(o.MongoDB)
	}
}

// mongoPort is MongoDB's default port.
const mongoPort = "27017"

// siteHosts returns the servers of a URI as host:port. It leaves out sockets, which workers on other
// hosts cannot reach. It returns none for a wrong URI, which Validate refuses.
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

// Validate returns a protocol.OptionError when a setting cannot work.
func (o *Options) Validate() error {
	switch {
	case o.Timeout < minTimeout || o.Timeout > maxTimeout:
		return protocol.BadOption("kts46-timeout", "%v is not between %v and %v", o.Timeout, minTimeout, maxTimeout)
	case o.TimeoutUnit != milliseconds && o.TimeoutUnit != seconds:
		return protocol.BadOption("kts46-timeout-unit", "%q is neither s nor ms", o.TimeoutUnit)
	case o.RestartAfter < 0:
		return protocol.BadOption("kts46-restart-after", "a time cannot be negative")
	}
	if o.MongoDB != "" {
		if _, err := store.Hosts(o.MongoDB); err != nil {
			return &protocol.OptionError{Setting: "kts46-mongodb", Err: err}
		}
	}
	if _, err := o.databases(); err != nil {
		return &protocol.OptionError{Setting: "kts46-databases", Err: err}
	}
	if err := protocol.CheckAddresses(SettingXML, &o.Listen, protocol.SplitAddress); err != nil {
		return err
	}
	return protocol.CheckAddresses(SettingJSON, &o.JSON, protocol.SplitAddress)
}

// Database is a database in the form of version 2.
type Database struct {
	Host string `json:"host"`
	Port uint16 `json:"port"`
}

// databases parses Databases. The list is never nil: JSON has it as [].
func (o *Options) databases() ([]Database, error) {
	all := []Database{}
	for _, d := range o.Databases {
		host, digits, err := net.SplitHostPort(d)
		if err != nil {
			return nil, fmt.Errorf("%q is not host:port: %w", d, err)
		}
		port, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || host == "" {
			return nil, fmt.Errorf("%q is not host:port, as in 127.0.0.1:27017", d)
		}
		all = append(all, Database{Host: host, Port: uint16(port)})
	}
	return all, nil
}
