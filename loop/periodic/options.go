package periodic

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"treadle/loop/protocol"
)

// Options are the settings of the protocol, as of package setting. The zero value of a field means its default.
type Options struct {
	// Listen lists addresses as of protocol.CheckAddresses, each with ?crc=2020 behind it if it has a CRC of its own.
	Listen []string `name:"periodic" sep:"none" placeholder:"ADDR" help:"Address of the Periodic protocol, tcp://host:port or unix:///path (mode 0660), or off; repeatable (default: tcp://127.0.0.1:5000 and unix:///tmp/periodic.sock)."`
	// Grab is hold or document. With document NO_JOB is the answer at once, and NOOP wakes a sleeping worker.
	Grab string `name:"periodic-grab" enum:"hold,document" default:"hold" help:"Answer to a worker's GRAB_JOB when no job is ready: hold it until there is one, or NO_JOB as the document says: hold or document (default: ${default})."`
	CRC  string `name:"periodic-crc" enum:"2019-02,2019,2020,2023,2026" default:"2023" help:"Version of the protocol in which clients of the CRC framing are answered: 2019-02, 2019, 2020, 2023 or 2026; an address of --periodic may have its own, as in tcp://:5001?crc=2020 (default: ${default})."`
	// Shutdown is on or off. With off the answer to SHUTDOWN is UNKNOWN.
	Shutdown string `name:"periodic-shutdown" enum:"on,off" default:"on" help:"Whether a client's SHUTDOWN stops the server: on or off (default: ${default})."`
	// Grace is about the delay that the reference's rule in whole seconds and its sweep give. Workers that kill a
	// command at its time-out report so 30 to 70 ms later. If the job has been handed out again by then, perhaps to
	// them, they end the new run, and two continue side by side. Less than a millisecond means no grace.
	Grace time.Duration `name:"periodic-grace" default:"1s" min:"0s" placeholder:"TIME" help:"Time between a Periodic job's time-out and its return to the queue, so that a worker that ends the job on time can report it; 0s: none (default: ${default})."`
}

// DefaultPort is the port of the default TCP address.
const DefaultPort = "5000"

// DefaultUnix is the default address of the unix socket.
const DefaultUnix = "unix:///tmp/periodic.sock"

// Values of the settings.
const (
	grabDocument = "document" // of Grab
	on           = "on"       // of Shutdown
)

// FillAddresses fills the default addresses in. host is the host of the default TCP address, and dir the
// directory of the default socket; empty: that of DefaultUnix.
func (o *Options) FillAddresses(host, dir string) {
	if len(o.Listen) == 0 {
		socket := DefaultUnix
		if dir != "" {
			socket = "unix://" + filepath.Join(dir, filepath.Base(DefaultUnix))
		}
		o.Listen = []string{"tcp://" + net.JoinHostPort(host, DefaultPort), socket}
	}
}

// Check returns a protocol.OptionError when an address cannot work.
func (o *Options) Check() error {
	return protocol.CheckAddresses(name, &o.Listen, func(a string) (string, string, error) {
		address, version := o.cutVersion(a)
		if wireVersions[version] == nil {
			return "", "", fmt.Errorf("%s: the version %q of ?crc= %s", address, version, noVersion)
		}
		return protocol.SplitAddress(address)
	})
}

// noVersion ends the error of a wrong version.
const noVersion = "is none of 2019-02, 2019, 2020, 2023, 2026"

// Addresses returns the addresses of Listen without their versions.
func (o *Options) Addresses() (all []string) {
	for _, a := range o.Listen {
		address, _ := o.cutVersion(a)
		all = append(all, address)
	}
	return all
}

// cutVersion splits an address of Listen into the address proper and its version.
func (o *Options) cutVersion(a string) (address, version string) {
	address, query, _ := strings.Cut(a, "?")
	values, err := url.ParseQuery(query)
	if err != nil || !values.Has("crc") {
		return a, o.CRC
	}
	version = values.Get("crc")
	if values.Del("crc"); len(values) > 0 {
		address += "?" + values.Encode()
	}
	return address, version
}
