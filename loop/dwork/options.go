package dwork

import (
	"cmp"
	"math"
	"net"
	"time"

	"treadle/loop/protocol"
)

// Options are the settings of the protocol. The zero value of a field means its default.
type Options struct {
	// Listen lists the addresses, as of protocol.CheckAddresses; default tcp://127.0.0.1:6125.
	Listen []string
	// MaxFrame bounds one ZeroMQ frame in bytes; default 16 MiB.
	MaxFrame int
	// MaxSteal bounds the tasks of one reply; default 65536.
	MaxSteal int
	// Idle is the answer to a Steal when no task is left: "exit" (default), which ends the reference's
	// workers, or "notfound".
	Idle string
	// Stop is the answer to a Steal while the server stops: "exit" (default), or "notfound", with which
	// workers ask the next server again.
	Stop string
	// Complete says which location may complete an assigned task: "any" (default), as with the
	// reference, or the task's "holder" alone.
	Complete string
	// Restart says where assigned tasks are after a restart: "keep" (default) leaves them with their
	// worker's location, "ready" hands them out again.
	Restart string
	// Lease is how long a worker that holds tasks may be silent before they are ready again;
	// default 0, no limit, because the protocol has no heartbeat.
	Lease time.Duration
	// Remember is how long a Lookup finds complete tasks; default 0, not at all.
	Remember time.Duration
}

// Values of the settings.
const (
	answerExit     = "exit"     // of Idle and Stop
	answerNotFound = "notfound" // of Idle and Stop
	restartKeep    = "keep"
	restartReady   = "ready"
	completeAny    = "any"
	completeHolder = "holder"
)

// DefaultPort is the port of the default address.
const DefaultPort = "6125"

const (
	defaultMaxFrame = 16 << 20
	defaultMaxSteal = 65536
)

// FillDefaults fills the defaults in. host is the host of the default address.
func (o *Options) FillDefaults(host string) {
	if len(o.Listen) == 0 {
		o.Listen = []string{"tcp://" + net.JoinHostPort(host, DefaultPort)}
	}
	o.MaxFrame = cmp.Or(o.MaxFrame, defaultMaxFrame)
	o.MaxSteal = cmp.Or(o.MaxSteal, defaultMaxSteal)
	o.Idle = cmp.Or(o.Idle, answerExit)
	o.Stop = cmp.Or(o.Stop, answerExit)
	o.Complete = cmp.Or(o.Complete, completeAny)
	o.Restart = cmp.Or(o.Restart, restartKeep)
}

// Validate returns a protocol.OptionError when a setting cannot work.
func (o *Options) Validate() error {
	if err := protocol.CheckMaxFrame("dwork-max-frame", o.MaxFrame, math.MaxInt32); err != nil {
		return err
	}
	switch {
	case o.MaxSteal < 1:
		return protocol.BadOption("dwork-max-steal", "%d is below 1", o.MaxSteal)
	case o.Idle != answerExit && o.Idle != answerNotFound:
		return protocol.BadOption("dwork-idle", "%q is neither exit nor notfound", o.Idle)
	case o.Stop != answerExit && o.Stop != answerNotFound:
		return protocol.BadOption("dwork-stop", "%q is neither exit nor notfound", o.Stop)
	case o.Complete != completeAny && o.Complete != completeHolder:
		return protocol.BadOption("dwork-complete", "%q is neither any nor holder", o.Complete)
	case o.Restart != restartKeep && o.Restart != restartReady:
		return protocol.BadOption("dwork-restart", "%q is neither keep nor ready", o.Restart)
	case o.Lease < 0:
		return protocol.BadOption("dwork-lease", "a time cannot be negative")
	case o.Remember < 0:
		return protocol.BadOption("dwork-remember", "a time cannot be negative")
	}
	return protocol.CheckAddresses(name, &o.Listen, protocol.SplitAddress)
}
