package gloom

import (
	"cmp"
	"math"
	"net"

	"treadle/loop/protocol"
)

// Options are the settings of the protocol. The zero value of a field means its default.
type Options struct {
	// Masters and Slaves list the addresses of the two ports, as of protocol.CheckAddresses; default
	// tcp://127.0.0.1:9998 and tcp://127.0.0.1:9999.
	Masters, Slaves []string
	// MaxFrame bounds one frame in bytes; default 64 MiB.
	MaxFrame int
	// JSON says how raw control characters inside strings are read: "lax" (default) takes them for
	// their escapes, as the original does, "strict" refuses them.
	JSON string
}

// The settings with addresses, and the ports of their default addresses.
const (
	settingMasters = "gloom-masters"
	settingSlaves  = "gloom-slaves"
	DefaultMasters = "9998"
	DefaultSlaves  = "9999"
)

const (
	defaultMaxFrame = 64 << 20
	lax             = "lax"
	strict          = "strict"
)

// FillDefaults fills the defaults in. host is the host of the default addresses.
func (o *Options) FillDefaults(host string) {
	if len(o.Masters) == 0 {
		o.Masters = []string{"tcp://" + net.JoinHostPort(host, DefaultMasters)}
	}
	if len(o.Slaves) == 0 {
		o.Slaves = []string{"tcp://" + net.JoinHostPort(host, DefaultSlaves)}
	}
	o.MaxFrame = cmp.Or(o.MaxFrame, defaultMaxFrame)
	o.JSON = cmp.Or(o.JSON, lax)
}

// Validate returns a protocol.OptionError when a setting cannot work.
func (o *Options) Validate() error {
	if err := protocol.CheckMaxFrame("gloom-max-frame", o.MaxFrame, math.MaxInt32); err != nil {
		return err
	}
	if o.JSON != lax && o.JSON != strict {
		return protocol.BadOption("gloom-json", "%q is neither lax nor strict", o.JSON)
	}
	if err := protocol.CheckAddresses(settingMasters, &o.Masters, protocol.SplitAddress); err != nil {
		return err
	}
	return protocol.CheckAddresses(settingSlaves, &o.Slaves, protocol.SplitAddress)
}
