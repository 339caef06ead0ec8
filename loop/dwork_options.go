package loop

import (
	"math"
	"time"

	"treadle/loop/dwork"
)

// DworkOptions are the settings of the dwork protocol. The zero value of a field means
// its default.
type DworkOptions struct {
	// Listen lists the addresses, as Options.Periodic does; default
	// tcp://127.0.0.1:6125.
	Listen []string
	// MaxFrame caps one ZeroMQ frame in bytes; default 16 MiB.
	MaxFrame int
	// MaxSteal caps the tasks handed out by one reply; default 65536.
	MaxSteal int
	// Idle says what a Steal is answered when no task is left: "exit" (default), which
	// ends the reference's workers, or "notfound".
	Idle string
	// Stop says what a Steal is answered while the server stops: "exit" (default), which ends the
	// reference's workers, or "notfound": they ask again, of the server that is started next.
	Stop string
	// Complete says which location may complete an assigned task: "any" (default), as with the
	// reference, or the task's "holder" alone.
	Complete string
	// Restart says what becomes of assigned tasks when the server starts again: "keep"
	// (default) leaves them with their worker's location, "ready" hands them out again.
	Restart string
	// Lease is how long a worker that holds tasks may be silent before they are ready
	// again; default 0, for ever: the protocol has no sign of life.
	Lease time.Duration
	// Remember is how long complete tasks can be looked up; default 0, not at all.
	Remember time.Duration
}

// Words of the settings.
const (
	DworkExit     = "exit"
	DworkNotFound = "notfound"
	DworkKeep     = "keep"
	DworkReady    = "ready"
	DworkAny      = "any"
	DworkHolder   = "holder"
)

const (
	defaultDworkFrame = 16 << 20
	defaultMaxSteal   = 65536
)

func (o *DworkOptions) fillDefaults() {
	setDefault(&o.MaxFrame, defaultDworkFrame)
	setDefault(&o.MaxSteal, defaultMaxSteal)
	setDefault(&o.Idle, DworkExit)
	setDefault(&o.Stop, DworkExit)
	setDefault(&o.Complete, DworkAny)
	setDefault(&o.Restart, DworkKeep)
}

func (o *DworkOptions) validate() error {
	switch {
	case o.MaxFrame < minFrame || o.MaxFrame > math.MaxInt32:
		return badOption("dwork-max-frame", "%v is not between %v and %v", size(o.MaxFrame), size(minFrame), size(math.MaxInt32))
	case o.MaxSteal < 1:
		return badOption("dwork-max-steal", "%d is below 1", o.MaxSteal)
	case o.Idle != DworkExit && o.Idle != DworkNotFound:
		return badOption("dwork-idle", "%q is neither exit nor notfound", o.Idle)
	case o.Stop != DworkExit && o.Stop != DworkNotFound:
		return badOption("dwork-stop", "%q is neither exit nor notfound", o.Stop)
	case o.Complete != DworkAny && o.Complete != DworkHolder:
		return badOption("dwork-complete", "%q is neither any nor holder", o.Complete)
	case o.Restart != DworkKeep && o.Restart != DworkReady:
		return badOption("dwork-restart", "%q is neither keep nor ready", o.Restart)
	case o.Lease < 0:
		return badOption("dwork-lease", "a time cannot be negative")
	case o.Remember < 0:
		return badOption("dwork-remember", "a time cannot be negative")
	}
	return nil
}

// dwork is what the protocol is told of the settings.
func (o *Options) dwork() dwork.Options {
	return dwork.Options{
		Listen: o.Dwork.Listen, MaxFrame: o.Dwork.MaxFrame, MaxSteal: o.Dwork.MaxSteal,
		IdleNotFound: o.Dwork.Idle == DworkNotFound, StopNotFound: o.Dwork.Stop == DworkNotFound,
		HolderCompletes: o.Dwork.Complete == DworkHolder, Release: o.Dwork.Restart == DworkReady,
		Lease: o.Dwork.Lease, Remember: o.Dwork.Remember,
		MaxConnections: o.MaxConnections, MaxOutbound: o.MaxOutbound,
		HandshakeTimeout: o.HandshakeTimeout, FrameTimeout: o.FrameTimeout,
	}
}
