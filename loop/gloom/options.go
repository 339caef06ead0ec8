package gloom

import "treadle/loop/protocol"

// Options are the settings of the protocol, as of package setting. The zero value of a field means its default.
type Options struct {
	// Masters and Slaves list the addresses of the two ports, as of protocol.CheckAddresses.
	Masters  []string `name:"gloom-masters" sep:"none" placeholder:"ADDR" help:"Address of the Gloom protocol for masters, or off; repeatable (default: tcp://127.0.0.1:9998)."`
	Slaves   []string `name:"gloom-slaves" sep:"none" placeholder:"ADDR" help:"Address of the Gloom protocol for slaves, or off; repeatable (default: tcp://127.0.0.1:9999)."`
	MaxFrame int      `name:"gloom-max-frame" type:"size" default:"64MiB" min:"1KiB" max:"2147483647" placeholder:"SIZE" help:"Largest Gloom frame (default: ${default})."`
	JSON     string   `name:"gloom-json" enum:"lax,strict" default:"lax" help:"Raw control characters, as a newline, in strings of Gloom clients: lax reads them as their escapes, as the original does, strict refuses them (default: ${default})."`
}

// The settings with addresses, and the ports of their default addresses.
const (
	settingMasters = "gloom-masters"
	settingSlaves  = "gloom-slaves"
	DefaultMasters = "9998"
	DefaultSlaves  = "9999"
)

// strict is a value of JSON.
const strict = "strict"

// FillAddresses fills the default addresses in. host is the host of the default addresses.
func (o *Options) FillAddresses(host string) {
	protocol.FillAddress(&o.Masters, host, DefaultMasters)
	protocol.FillAddress(&o.Slaves, host, DefaultSlaves)
}

// Check returns a protocol.OptionError when an address cannot work.
func (o *Options) Check() error {
	if err := protocol.CheckAddresses(settingMasters, &o.Masters, protocol.SplitAddress); err != nil {
		return err
	}
	return protocol.CheckAddresses(settingSlaves, &o.Slaves, protocol.SplitAddress)
}
