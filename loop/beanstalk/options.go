package beanstalk

import (
	codec "treadle/codec/beanstalk"
	"treadle/loop/protocol"
)

// Options are the settings of the protocol, as of package setting. The zero value of a field means its default.
type Options struct {
	// Listen lists addresses as of protocol.CheckAddresses.
	Listen []string `name:"beanstalk" sep:"none" placeholder:"ADDR" help:"Address of the beanstalkd protocol, tcp://host:port or unix:///path, or off; repeatable (default: off)."`
	// MaxJob has the bounds and the default of beanstalkd's -z.
	MaxJob int `name:"beanstalk-max-job" type:"size" default:"65535" min:"1" max:"1073741824" placeholder:"SIZE" help:"Largest job of the beanstalkd protocol; a larger one is answered JOB_TOO_BIG (default: ${default})."`
}

// DefaultPort is the port that clients of the protocol expect.
const DefaultPort = "11300"

// Check returns a protocol.OptionError when an address cannot work.
func (o *Options) Check() error {
	return protocol.CheckAddresses(name, &o.Listen, protocol.SplitAddress)
}

// LargestFrame returns the bytes of the largest request, 0 while nothing listens.
func (o *Options) LargestFrame() int {
	if len(o.Listen) == 0 || o.Listen[0] == "off" {
		return 0
	}
	return codec.MaxLine + o.MaxJob + 2
}
