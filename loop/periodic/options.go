package periodic

import (
	"cmp"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"treadle/loop/protocol"
)

// Options are the settings of the protocol. The zero value of a field means its default.
type Options struct {
	// Listen lists the addresses, as of protocol.CheckAddresses, each with ?crc=2020 behind it if
	// it has a CRC of its own; default tcp://127.0.0.1:5000 and DefaultUnix.
	Listen []string
	// Grab is the answer to a GRAB_JOB when no job is ready: "hold" (default) waits for a job,
	// "document" answers NO_JOB at once and wakes a sleeping worker by NOOP.
	Grab string
	// CRC is the era whose replies clients of the CRC framing get: "2019-02", "2019", "2020",
	// "2023" (default) or "2026".
	CRC string
	// Shutdown says whether SHUTDOWN from a client stops the server: "on" (default) or "off",
	// which answers UNKNOWN.
	Shutdown string
	// Grace is how long after a job's time-out it is handed out again; default DefaultGrace, less
	// than a millisecond is none.
	Grace time.Duration
}

// DefaultPort is the port of the default TCP address.
const DefaultPort = "5000"

// DefaultUnix is the default address of the unix socket.
const DefaultUnix = "unix:///tmp/periodic.sock"

// DefaultGrace is about the delay that the reference's rule in whole seconds and its sweep give.
// Workers that kill a command at its time-out report so 30 to 70 ms later. If the job has been handed
// out again by then, perhaps to them, they end the new run, and two go on side by side.
const DefaultGrace = time.Second

const (
	defaultCRC   = "2023"
	grabHold     = "hold"
	grabDocument = "document"
	on           = "on"
	off          = "off"
)

// FillDefaults fills the defaults in. host is the host of the default TCP address, and dir the
// directory of the default socket; empty: that of DefaultUnix.
func (o *Options) FillDefaults(host, dir string) {
	if len(o.Listen) == 0 {
		socket := DefaultUnix
		if dir != "" {
			socket = "unix://" + filepath.Join(dir, filepath.Base(DefaultUnix))
		}
		o.Listen = []string{"tcp://" + net.JoinHostPort(host, DefaultPort), socket}
	}
	o.Grab = cmp.Or(o.Grab, grabHold)
	o.CRC = cmp.Or(o.CRC, defaultCRC)
	o.Shutdown = cmp.Or(o.Shutdown, on)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
}

// Validate returns a protocol.OptionError when a setting cannot work.
func (o *Options) Validate() error {
	switch {
	case o.Grab != grabHold && o.Grab != grabDocument:
		return protocol.BadOption("periodic-grab", "%q is neither hold nor document", o.Grab)
	case eras[o.CRC] == nil:
		return protocol.BadOption("periodic-crc", "%q %s", o.CRC, noEra)
	case o.Shutdown != on && o.Shutdown != off:
		return protocol.BadOption("periodic-shutdown", "%q is neither on nor off", o.Shutdown)
	case o.Grace < 0:
		return protocol.BadOption("periodic-grace", "a time cannot be negative")
	}
	return protocol.CheckAddresses(name, &o.Listen, func(a string) (string, string, error) {
		address, era := o.cutEra(a)
		if eras[era] == nil {
			return "", "", fmt.Errorf("%s: the era %q of ?crc= %s", address, era, noEra)
		}
		return protocol.SplitAddress(address)
	})
}

// noEra ends the error of a wrong era.
const noEra = "is none of 2019-02, 2019, 2020, 2023, 2026"

// cutEra splits an address of Listen into the address proper and its era.
func (o *Options) cutEra(a string) (address, era string) {
	address, era, found := strings.Cut(a, "?crc=")
	if !found {
		era = o.CRC
	}
	return address, era
}
