package kts46

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"treadle/loop/kts46/store"
	"treadle/loop/protocol"
)

// Options are the settings of the protocols, as of package setting. The zero value of a field means its default.
type Options struct {
	// Listen and JSON list the addresses of XML-RPC and of JSON-RPC, as of protocol.CheckAddresses.
	Listen []string `name:"kts46" sep:"none" placeholder:"ADDR" help:"Address of the kts46 scheduler's XML-RPC, or off; repeatable (default: tcp://127.0.0.1:46210)."`
	JSON   []string `name:"kts46-json" sep:"none" placeholder:"ADDR" help:"Address of its JSON-RPC, version 2, or off; repeatable (default: tcp://127.0.0.1:46400)."`
	// Timeout is at least a millisecond, so that a worker does not report all the time, and at most what XML-RPC's int
	// holds in milliseconds.
	Timeout time.Duration `name:"kts46-timeout" default:"5s" min:"1ms" max:"596h31m23.647s" placeholder:"TIME" help:"How often a kts46 worker is told to report (default: ${default})."`
	// TimeoutUnit is s or ms. With milliseconds an original worker sleeps 5,000 s between reports.
	TimeoutUnit  string        `name:"kts46-timeout-unit" enum:"s,ms" default:"s" help:"Unit in which version 1 is told that: s, which its original worker reads, or ms, as its document says (default: ${default})."`
	RestartAfter time.Duration `name:"kts46-restart-after" default:"0s" min:"0s" placeholder:"TIME" help:"Silence of a worker after which its task is queued again; 0s: never, because an external supervisor does this (default: ${default})."`
	MongoDB      string        `name:"kts46-mongodb" secret:"" placeholder:"URI" help:"MongoDB of the site, as mongodb://HOST:27017, where the original kts46 workers and web interface have projects and jobs (default: none)."`
	// Databases are host:port pairs.
	Databases []string `name:"kts46-databases" placeholder:"HOST:PORT" help:"Databases that version 2 names to its workers; the original ones use the first (default: those of --kts46-mongodb)."`
}

// The settings that hold addresses.
const (
	SettingXML  = "kts46"      // of version 1
	SettingJSON = "kts46-json" // of version 2
)

// settingMongoDB is the setting MongoDB.
const settingMongoDB = "kts46-mongodb"

// DefaultPort is the port of the default address of XML-RPC.
const DefaultPort = "46210"

const defaultPortJSON = "46400"

// Values of TimeoutUnit.
const (
	seconds      = "s"
	milliseconds = "ms"
)

// FillAddresses fills the default addresses in, and those of the databases. host is the host of the default addresses.
func (o *Options) FillAddresses(host string) {
	protocol.FillAddress(&o.Listen, host, DefaultPort)
	protocol.FillAddress(&o.JSON, host, defaultPortJSON)
	if len(o.Databases) == 0 && o.MongoDB != "" {
		o.Databases = mongoHosts(o.MongoDB)
	}
}

// mongoPort is MongoDB's default port.
const mongoPort = "27017"

// mongoHosts returns the servers of a URI as host:port. It leaves out sockets, which workers on other hosts cannot
// reach. It returns none for a wrong URI, which Check refuses.
func mongoHosts(uri string) (all []string) {
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

// Check returns a protocol.OptionError when a setting cannot work.
func (o *Options) Check() error {
	if o.MongoDB != "" {
		if _, err := store.Hosts(o.MongoDB); err != nil {
			return &protocol.OptionError{Setting: settingMongoDB, Err: err}
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
