package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"treadle/codec/periodic"
)

// Client submits jobs and administers a server. Its methods may be called by
// any number of goroutines; each returns when the server has answered, its
// context has ended or the connection has.
type Client struct{ conn *conn }

// Job is one job as the protocol carries it. Func and Name hold at most 255
// bytes each and together identify the job.
type Job struct {
	Func, Name string
	Workload   []byte
	SchedAt    int64 // when it is due, unix seconds; 0: now
	Count      int32 // what SCHED_LATER's steps have added up to
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

// Close ends the connection. Calls that are waiting return an error.
func (c *Client) Close() { c.conn.close() }

// Address returns the server's address as network://address.
func (c *Client) Address() string { return c.conn.address }

// Ping asks for a sign of life.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.conn.expect(ctx, periodic.Ping, periodic.Pong, nil)
	return c.conn.fault("ping", err)
}

// Submit hands a job in. A job of that function and name which is still
// pending is replaced; while it is running, the server ignores the new one.
func (c *Client) Submit(ctx context.Context, j *Job) error {
	err := j.check()
	if err == nil {
		_, err = c.conn.expect(ctx, periodic.SubmitJob, periodic.Success, j.appendTo)
	}
	return c.conn.fault(fmt.Sprintf("submit %q %q", j.Func, j.Name), err)
}

// Run submits a job and waits for its result, for as long as ctx allows; the
// job is not cancelled by the caller's going away. ErrRemoved: the job was removed
// before it was done. In the CRC framing there are ErrFailed, ErrExpired and, without a
// worker, ErrNoWorker. The protocol has texts for the first three, which a Treadle
// is asked about: from another server a result "failed", "removed" or "expired" of the
// CRC framing counts as one of them, and an empty one as a result. In the
// 2018 framing a result is not told apart from UNKNOWN when it is the one byte
// 0x0c: that is reported as ErrRefused.
func (c *Client) Run(ctx context.Context, j *Job) ([]byte, error) {
	what := fmt.Sprintf("run %q %q", j.Func, j.Name)
	if err := j.check(); err != nil {
		return nil, c.conn.fault(what, err)
	}
	w := c.conn.begin(&call{})
	body, err := c.conn.answer(ctx, w, periodic.RunJob, j.appendTo)
	if err != nil {
		return nil, c.conn.fault(what, err)
	}
	result, err := content(body, c.conn.framing == periodic.CRC)
	if err == nil {
		err = c.judge(ctx, w.id, string(result))
	}
	if err != nil {
		return nil, c.conn.fault(what, err)
	}
	return result, nil
}

// end is how a RUN_JOB may have ended without a result, and what a Treadle is asked about it.
type end struct {
	key string
	err error
}

// ends are those that a result may stand for. Until March 2022 an empty one stands for all.
func ends(framing periodic.Framing, result string) []end {
	failed, removed := end{periodic.KeyFailed, ErrFailed}, end{periodic.KeyGone, ErrRemoved}
	switch {
	case result == "" && framing == periodic.Plain:
		return []end{removed}
	case framing == periodic.Plain:
		return nil
	case result == "":
		return []end{failed, removed}
	case result == "failed":
		return []end{failed}
	case result == "expired":
		return []end{{periodic.KeyFailed, ErrExpired}}
	case result == "removed":
		return []end{removed}
	}
	return nil
}

// judge says why the job of a RUN_JOB ended, if its result may be the server's own text.
func (c *Client) judge(ctx context.Context, id uint32, result string) error {
	possible := ends(c.conn.framing, result)
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

// content unwraps a reply that has DATA before its bytes when wrapped: that of
// RUN_JOB in the CRC framing, that of STATUS since 2020. In early 2019 RUN_JOB's
// was not yet wrapped, which shows.
func content(body []byte, wrapped bool) ([]byte, error) {
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

// Status returns a row a function, in the server's order.
func (c *Client) Status(ctx context.Context) ([]Queue, error) {
	body, err := c.conn.ask(ctx, periodic.Status, nil)
	if err == nil {
		body, err = content(body, c.conn.data)
	}
	if err != nil {
		return nil, c.conn.fault("read the status", err)
	}
	rows, err := parseStatus(string(body), numbersOf(c.conn.framing))
	return rows, c.conn.fault("read the status", err)
}

// Remove deletes a job, running or not; one that does not exist is no error.
func (c *Client) Remove(ctx context.Context, function, name string) error {
	err := errors.Join(checkName("function", function), checkName("name", name))
	if err == nil {
		_, err = c.conn.expect(ctx, periodic.RemoveJob, periodic.Success, func(dst []byte) []byte {
			return periodic.AppendStr8String(periodic.AppendStr8String(dst, function), name)
		})
	}
	return c.conn.fault(fmt.Sprintf("remove %q %q", function, name), err)
}

// Drop deletes a function and its pending jobs. The server does nothing while
// the function has workers, and does not say so.
func (c *Client) Drop(ctx context.Context, function string) error {
	err := checkName("function", function)
	if err == nil {
		_, err = c.conn.expect(ctx, periodic.DropFunc, periodic.Success, func(dst []byte) []byte {
			return periodic.AppendStr8String(dst, function)
		})
	}
	return c.conn.fault(fmt.Sprintf("drop %q", function), err)
}

// ConfigGet reads a setting of the server; one it does not know is 0.
func (c *Client) ConfigGet(ctx context.Context, key string) (uint32, error) {
	what := fmt.Sprintf("read the setting %q", key)
	if err := checkName("key", key); err != nil {
		return 0, c.conn.fault(what, err)
	}
	value, err := c.conn.expect(ctx, periodic.ConfigGet, periodic.Config, func(dst []byte) []byte {
		return periodic.AppendStr8String(dst, key)
	})
	if err == nil && len(value) != 4 {
		err = fmt.Errorf("the server answered %d bytes where 4 were expected", len(value))
	}
	if err != nil {
		return 0, c.conn.fault(what, err)
	}
	return binary.BigEndian.Uint32(value), nil
}

// ConfigSet changes a setting of the server; one it does not know is ignored.
func (c *Client) ConfigSet(ctx context.Context, key string, value uint32) error {
	err := checkName("key", key)
	if err == nil {
		_, err = c.conn.expect(ctx, periodic.ConfigSet, periodic.Success, func(dst []byte) []byte {
			return binary.BigEndian.AppendUint32(periodic.AppendStr8String(dst, key), value)
		})
	}
	return c.conn.fault(fmt.Sprintf("change the setting %q", key), err)
}

// Shutdown stops the server as SIGTERM would and returns when it has taken the
// request. ErrRefused: the server does not allow it.
func (c *Client) Shutdown(ctx context.Context) error {
	err := c.conn.announce(ctx, periodic.Shutdown, nil)
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return c.conn.fault("shut the server down", err)
}
