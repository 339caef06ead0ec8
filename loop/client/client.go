package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"treadle/codec/periodic"
)

// Client submits jobs and administers a server. Any number of goroutines may call its methods. A
// method returns when the server has answered, when its context ends or when the connection ends.
type Client struct{ conn *conn }

// Job is one Periodic job. Func and Name, of at most 255 bytes each, identify it.
type Job struct {
	Func, Name string
	Workload   []byte
	SchedAt    int64 // due time in unix seconds; 0: now
	Count      int32 // sum of the steps of SCHED_LATER
	Timeout    int32 // seconds a run may take; 0: the server's setting
}

func (j *Job) check() error {
	return errors.Join(checkName("function", j.Func), checkName("name", j.Name))
}

func (j *Job) appendTo(dst []byte) []byte {
	return periodic.AppendJob(dst, &periodic.Job{
		Func: []byte(j.Func), Name: []byte(j.Name), Workload: j.Workload,
		SchedAt: j.SchedAt, Count: j.Count, Timeout: j.Timeout,
	})
}

// Close closes the connection. Waiting calls return an error.
func (c *Client) Close() { c.conn.close() }

// Address returns the server's address as network://address.
func (c *Client) Address() string { return c.conn.address }

// Ping sends a PING and waits for the PONG.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.conn.expect(ctx, periodic.Ping, periodic.Pong, nil)
	return c.conn.describe("ping", err)
}

// Submit submits a job. It replaces a pending job of that function and name; while that job is
// running, the server ignores the new one.
func (c *Client) Submit(ctx context.Context, j *Job) error {
	err := j.check()
	if err == nil {
		_, err = c.conn.expect(ctx, periodic.SubmitJob, periodic.Success, j.appendTo)
	}
	return c.conn.describe(fmt.Sprintf("submit %q %q", j.Func, j.Name), err)
}

// Run submits a job and waits for its result until ctx ends, which does not cancel the job.
// ErrRemoved: the job was removed before it was done. The CRC framing also has ErrFailed,
// ErrExpired and, without a worker, ErrNoWorker. On the wire ErrRemoved, ErrFailed and ErrExpired
// look like results, so Run asks a Treadle for the cause. With another server, a CRC result
// "failed", "removed" or "expired" counts as that error and an empty result as a result. In the
// 2018 framing a result that is the byte 0x0c looks like UNKNOWN and is reported as ErrRefused.
func (c *Client) Run(ctx context.Context, j *Job) ([]byte, error) {
	what := fmt.Sprintf("run %q %q", j.Func, j.Name)
	if err := j.check(); err != nil {
		return nil, c.conn.describe(what, err)
	}
	w := c.conn.begin(&call{})
	body, err := c.conn.answer(ctx, w, periodic.RunJob, j.appendTo)
	if err != nil {
		return nil, c.conn.describe(what, err)
	}
	result, err := unwrapData(body, c.conn.framing == periodic.CRC)
	if err == nil {
		err = c.explainEnd(ctx, w.id, string(result))
	}
	if err != nil {
		return nil, c.conn.describe(what, err)
	}
	return result, nil
}

// failedEnd is an end of a RUN_JOB without a result, and the question that confirms it.
type failedEnd struct {
	key string
	err error
}

// possibleEnds returns the ends that a result may stand for. Servers until March 2022 send an empty result
// for all of them.
func possibleEnds(framing periodic.Framing, result string) []failedEnd {
	failed, removed := failedEnd{periodic.KeyFailed, ErrFailed}, failedEnd{periodic.KeyGone, ErrRemoved}
	switch {
	case result == "" && framing == periodic.Plain:
		return []failedEnd{removed}
	case framing == periodic.Plain:
		return nil
	case result == "":
		return []failedEnd{failed, removed}
	case result == "failed":
		return []failedEnd{failed}
	case result == "expired":
		return []failedEnd{{periodic.KeyFailed, ErrExpired}}
	case result == "removed":
		return []failedEnd{removed}
	}
	return nil
}

// explainEnd returns the error for which the job of a RUN_JOB ended, or nil when the result is a
// worker's.
func (c *Client) explainEnd(ctx context.Context, id uint32, result string) error {
	possible := possibleEnds(c.conn.framing, result)
	if possible == nil {
		return nil
	}
	known, err := c.ConfigGet(ctx, periodic.KeyTreadle)
	switch {
	case err != nil:
		return err
	case known == 0 && result == "":
		return nil
	case known == 0:
		return possible[0].err
	}
	for _, e := range possible {
		ended, err := c.ConfigGet(ctx, e.key)
		if err != nil {
			return err
		}
		if ended == id {
			return e.err
		}
	}
	return nil
}

// unwrapData unwraps a reply. A wrapped reply has DATA before its bytes: RUN_JOB's in the CRC framing,
// STATUS's since 2020. A RUN_JOB reply of early 2019 is not wrapped, which its first byte tells.
func unwrapData(body []byte, wrapped bool) ([]byte, error) {
	switch {
	case isUnknown(body):
		return nil, ErrRefused
	case !wrapped || len(body) == 0:
		return body, nil
	case periodic.Command(body[0]) == periodic.Data:
		return body[1:], nil
	case isNoWorker(body):
		return nil, ErrNoWorker
	}
	return body, nil
}

// Status returns one row a function, in the server's order.
func (c *Client) Status(ctx context.Context) ([]Queue, error) {
	body, err := c.conn.ask(ctx, periodic.Status, nil)
	if err == nil {
		body, err = unwrapData(body, c.conn.data)
	}
	if err != nil {
		return nil, c.conn.describe("read the status", err)
	}
	rows, err := parseStatus(string(body), statusForm(c.conn.framing))
	return rows, c.conn.describe("read the status", err)
}

// Remove deletes a job, also while it runs. An unknown job is no error.
func (c *Client) Remove(ctx context.Context, function, name string) error {
	err := errors.Join(checkName("function", function), checkName("name", name))
	if err == nil {
		_, err = c.conn.expect(ctx, periodic.RemoveJob, periodic.Success, func(dst []byte) []byte {
			return periodic.AppendStr8String(periodic.AppendStr8String(dst, function), name)
		})
	}
	return c.conn.describe(fmt.Sprintf("remove %q %q", function, name), err)
}

// Drop deletes a function and its pending jobs. While the function has workers, the server ignores
// the request without an error.
func (c *Client) Drop(ctx context.Context, function string) error {
	err := checkName("function", function)
	if err == nil {
		_, err = c.conn.expect(ctx, periodic.DropFunc, periodic.Success, func(dst []byte) []byte {
			return periodic.AppendStr8String(dst, function)
		})
	}
	return c.conn.describe(fmt.Sprintf("drop %q", function), err)
}

// ConfigGet returns a setting of the server; 0 for an unknown setting.
func (c *Client) ConfigGet(ctx context.Context, key string) (uint32, error) {
	what := fmt.Sprintf("read the setting %q", key)
	if err := checkName("key", key); err != nil {
		return 0, c.conn.describe(what, err)
	}
	value, err := c.conn.expect(ctx, periodic.ConfigGet, periodic.Config, func(dst []byte) []byte {
		return periodic.AppendStr8String(dst, key)
	})
	if err == nil && len(value) != 4 {
		err = fmt.Errorf("the server answered %d bytes where 4 were expected", len(value))
	}
	if err != nil {
		return 0, c.conn.describe(what, err)
	}
	return binary.BigEndian.Uint32(value), nil
}

// ConfigSet changes a setting of the server. The server ignores an unknown setting.
func (c *Client) ConfigSet(ctx context.Context, key string, value uint32) error {
	err := checkName("key", key)
	if err == nil {
		_, err = c.conn.expect(ctx, periodic.ConfigSet, periodic.Success, func(dst []byte) []byte {
			return binary.BigEndian.AppendUint32(periodic.AppendStr8String(dst, key), value)
		})
	}
	return c.conn.describe(fmt.Sprintf("change the setting %q", key), err)
}

// Shutdown stops the server as SIGTERM does and returns when the server has accepted the request.
// ErrRefused: its settings forbid it.
func (c *Client) Shutdown(ctx context.Context) error {
	err := c.conn.announce(ctx, periodic.Shutdown, nil)
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return c.conn.describe("shut the server down", err)
}
