//go:build invariants

package node

import (
	"context"
	"net"
	"time"
)

// Surroundings are what a node of a simulation stands in. It is there in test builds only; the
// rest of the node is the same code as ever.
type Surroundings struct {
	// Dial connects to the database, by whatever its address is.
	Dial func(context.Context) (net.Conn, error)
	// Clock is the one on the host's wall: what the database is told.
	Clock func() time.Time
	// Pick chooses one of n.
	Pick func(n int) int
}

// DialContext implements options.ContextDialer.
func (in *Surroundings) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return in.Dial(ctx)
}

// NewIn is New in surroundings.
func NewIn(o Options, in Surroundings) (*Node, error) {
	c := *o.Config
	c.Dial, o.Config = &in, &c
	n, err := New(o)
	if err != nil {
		return nil, err
	}
	n.clock, n.pick = in.Clock, in.Pick
	return n, nil
}
