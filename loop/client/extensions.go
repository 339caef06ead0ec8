package client

import (
	"context"

	"treadle/codec/periodic"
)

// Extensions of the protocol: questions to a Treadle, asked with CONFIG_GET. Another server answers
// 0, which means unknown.

// MaxFrame returns the largest request in bytes that the server accepts; 0: unknown.
func (c *Client) MaxFrame(ctx context.Context) (int64, error) {
	n, err := c.ConfigGet(ctx, periodic.KeyMaxFrame)
	return int64(n), err
}

// RemovedNothing reports whether this connection's last Remove or Drop found nothing to remove;
// false: it removed something, or unknown.
func (c *Client) RemovedNothing(ctx context.Context) (bool, error) {
	n, known, err := c.askTreadle(ctx, periodic.KeyRemoved)
	return known && n == 0, err
}

// Loaded returns the number of jobs that this connection's last Load submitted.
func (c *Client) Loaded(ctx context.Context) (jobs int64, known bool, err error) {
	return c.askTreadle(ctx, periodic.KeyLoaded)
}

// Omitted counts the data that a dump cannot contain.
type Omitted struct {
	Tasks    int64 // of dwork and kts46
	Jobs     int64 // of other protocols that wait or run
	Projects int64 // of kts46
	Settings int64 // with another value than their default
}

// Omitted returns the data that this connection's last Dump left out.
func (c *Client) Omitted(ctx context.Context) (omitted Omitted, known bool, err error) {
	for _, each := range []struct {
		key string
		to  *int64
	}{
		{periodic.KeyLeftTasks, &omitted.Tasks}, {periodic.KeyLeftJobs, &omitted.Jobs},
		{periodic.KeyLeftProjects, &omitted.Projects}, {periodic.KeyLeftSettings, &omitted.Settings},
	} {
		if *each.to, known, err = c.askTreadle(ctx, each.key); err != nil || !known {
			return Omitted{}, false, err
		}
	}
	return omitted, true, nil
}

// askTreadle asks for key if the server is a Treadle.
func (c *Client) askTreadle(ctx context.Context, key string) (value int64, known bool, err error) {
	n, err := c.ConfigGet(ctx, periodic.KeyTreadle)
	if err != nil || n == 0 {
		return 0, false, err
	}
	n, err = c.ConfigGet(ctx, key)
	return int64(n), err == nil, err
}
