package dwork

import (
	"time"

	"treadle/loop/protocol"
)

// Options are the settings of the protocol, as of package setting. The zero value of a field means its default.
type Options struct {
	// Listen lists addresses as of protocol.CheckAddresses.
	Listen   []string `name:"dwork" sep:"none" placeholder:"ADDR" help:"Address of the dwork protocol, or off; repeatable (default: tcp://127.0.0.1:6125)."`
	MaxFrame int      `name:"dwork-max-frame" type:"size" default:"16MiB" min:"1KiB" max:"2147483647" placeholder:"SIZE" help:"Largest ZeroMQ frame of the dwork protocol (default: ${default})."`
	MaxSteal int      `name:"dwork-max-steal" default:"65536" min:"1" placeholder:"N" help:"Most tasks that one Steal is given (default: ${default})."`
	Idle     string   `name:"dwork-idle" enum:"exit,notfound" default:"exit" help:"Answer to a Steal when no task is left: exit, which ends workers, or notfound (default: ${default})."`
	Stop     string   `name:"dwork-stop" enum:"exit,notfound" default:"exit" help:"Answer to a Steal while the server stops: exit, which ends workers, or notfound, which has them go on with the server that is started next (default: ${default})."`
	// Complete is any, as with the reference, or holder.
	Complete string `name:"dwork-complete" enum:"any,holder" default:"any" help:"Which worker may complete a task that one of them holds: any, or its holder alone (default: ${default})."`
	Restart  string `name:"dwork-restart" enum:"keep,ready" default:"keep" help:"What becomes of assigned tasks at a restart: keep them with their worker, or make them ready (default: ${default})."`
	// Lease has no limit as its default, because the protocol has no heartbeat.
	Lease    time.Duration `name:"dwork-lease" default:"0s" min:"0s" placeholder:"TIME" help:"Silence of a worker after which its tasks are ready again; 0s: never (default: ${default})."`
	Remember time.Duration `name:"dwork-remember" default:"0s" min:"0s" placeholder:"TIME" help:"How long complete tasks can be looked up; 0s: not at all (default: ${default})."`
}

// DefaultPort is the port of the default address.
const DefaultPort = "6125"

// AnswerNotFound is a value of Options.Idle and Options.Stop.
const AnswerNotFound = "notfound"

// Values of other settings.
const (
	restartReady   = "ready"
	completeHolder = "holder"
)

// FillAddresses fills the default address in. host is the host of the default address.
func (o *Options) FillAddresses(host string) {
	protocol.FillAddress(&o.Listen, host, DefaultPort)
}

// Check returns a protocol.OptionError when an address cannot work.
func (o *Options) Check() error {
	return protocol.CheckAddresses(name, &o.Listen, protocol.NoTLS("no ZeroMQ client speaks TLS: use tcp:// or unix://, and a tunnel between machines"))
}
