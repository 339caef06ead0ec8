package client

import (
	"context"

	"treadle/codec/periodic"
)

// Questions that a Treadle answers and the protocol does not know: another server answers 0 to each,
// which is not known.

// MaxFrame is the largest request in bytes that the server takes; 0: that is not known.
func (c *Client) MaxFrame(ctx context.Context) (int64, error) {
	n, err := c.ConfigGet(ctx, periodic.KeyMaxFrame)
	return int64(n), err
}

// RemovedNothing says whether this connection's last Remove or Drop had nothing to remove; false: it
// had, or that is not known.
func (c *Client) RemovedNothing(ctx context.Context) (bool, error) {
	n, known, err := c.own(ctx, periodic.KeyRemoved)
	return known && n == 0, err
}

// Loaded is how many jobs this connection's last Load has put in.
func (c *Client) Loaded(ctx context.Context) (jobs int64, known bool, err error) {
	return c.own(ctx, periodic.KeyLoaded)
}

// LeftOut counts what a dump cannot hold.
type LeftOut struct {
	Tasks    int64 // of dwork and kts46
	Jobs     int64 // of Gloom and Disbatch
	Projects int64 // of kts46
	Settings int64 // that have another value than their default
}

// LeftOut is what this connection's last Dump has left out.
func (c *Client) LeftOut(ctx context.Context) (left LeftOut, known bool, err error) {
	for _, each := range []struct {
		key string
		to  *int64
	}{
		{periodic.KeyLeftTasks, &left.Tasks}, {periodic.KeyLeftJobs, &left.Jobs},
		{periodic.KeyLeftProjects, &left.Projects}, {periodic.KeyLeftSettings, &left.Settings},
	} {
		if *each.to, known, err = c.own(ctx, each.key); err != nil || !known {
			return LeftOut{}, false, err
		}
	}
	return left, true, nil
}

// own asks a question, after whether the server knows any.
func (c *Client) own(ctx context.Context, key string) (value int64, known bool, err error) {
	n, err := c.ConfigGet(ctx, periodic.KeyTreadle)
	if err != nil || n == 0 {
		return 0, false, err
	}
	n, err = c.ConfigGet(ctx, key)
	return int64(n), err == nil, err
}
