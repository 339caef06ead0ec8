//go:build invariants

package node

import (
	"context"
	"net"
	"time"
)

// Environment replaces the network, the clock and the random numbers of a node in a simulation. It exists in builds
// with the tag invariants only.
type Environment struct {
	// Dial connects to the database. It ignores the address.
	Dial func(context.Context) (net.Conn, error)
	// Clock is the wall clock of the host, for timestamps in the database.
	Clock func() time.Time
	// Pick returns a number below n.
	Pick func(n int) int
}

// DialContext implements options.ContextDialer.
func (in *Environment) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return in.Dial(ctx)
}

// NewIn is New with a replaced environment.
func NewIn(o Options, in Environment) (*Node, error) {
	c := *o.Config
	c.Dial, o.Config = &in, &c
	n, err := New(o)
	if err != nil {
		return nil, err
	}
	n.clock, n.randomBelow = in.Clock, in.Pick
	return n, nil
}
