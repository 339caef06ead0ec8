package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"treadle/codec/periodic"
)

// endOfData is the last DATA of a stream.
const endOfData = "EOF"

// errPlain is a request that the 2018 framing does not have.
var errPlain = errors.New("the framing of 2018 has no such request")

// flow is where the replies to one request go, one after the other. The reading
// goroutine waits until each is taken, so that the server feels a slow caller.
type flow struct {
	bodies chan []byte
	gone   chan struct{} // closed when nobody takes them any more
}

func (c *conn) pass(f *flow, body []byte) error {
	c.streaming.Store(true)
	defer c.streaming.Store(false)
	select {
	case f.bodies <- body:
	case <-f.gone:
	case <-c.ended:
		return c.reason()
	}
	return nil
}

// following waits for the next reply of f.
func (c *conn) following(ctx context.Context, f *flow) ([]byte, error) {
	select {
	case body := <-f.bodies:
		return body, nil
	case <-ctx.Done():
		return nil, plain(ctx.Err())
	case <-c.ended:
		return nil, c.reason()
	}
}

// Recv writes to w what the workers of a job publish, as it comes, until the job
// is over; the job need not exist yet. While w is slow nothing else is read from
// the connection, and the server makes the worker wait. ErrNoWorker: nobody can do
// the function. Only the CRC framing has it. The server cannot be told that a Recv
// was given up: it goes on sending until the job or the connection ends.
func (c *Client) Recv(ctx context.Context, function, name string, w io.Writer) error {
	return c.Receive(ctx, function, name, func() {}, w)
}

// Receive is Recv that calls begun when the server sends the data from then on.
func (c *Client) Receive(ctx context.Context, function, name string, begun func(), w io.Writer) error {
	err := c.conn.recv(ctx, &Job{Func: function, Name: name}, begun, w)
	return c.conn.fault(fmt.Sprintf("receive the data of %q %q", function, name), err)
}

func (c *conn) recv(ctx context.Context, j *Job, begun func(), w io.Writer) error {
	if c.framing == periodic.Plain {
		return errPlain
	}
	if err := j.check(); err != nil {
		return err
	}
	f := &flow{bodies: make(chan []byte), gone: make(chan struct{})}
	waiting := c.begin(&call{flow: f})
	defer c.forget(waiting)
	defer close(f.gone)
	if err := c.send(ctx, waiting.id, periodic.RecvData, j.appendTo); err != nil {
		return err
	}
	want := periodic.Success
	for {
		body, err := c.following(ctx, f)
		switch {
		case err != nil:
			return err
		case len(body) == 0 || periodic.Command(body[0]) != want:
			return unexpected(body)
		case want == periodic.Success:
			want = periodic.Data
			begun()
			continue
		case string(body[1:]) == endOfData:
			return nil
		}
		if _, err := w.Write(body[1:]); err != nil {
			return err
		}
	}
}

// Publish sends data of a running job to those who Recv it and returns when they
// keep up with it. Only the CRC framing has it.
func (w *Worker) Publish(ctx context.Context, a *Assignment, data []byte) error {
	if string(data) == endOfData { // on its own it would be taken for the end
		return errors.Join(w.publish(ctx, a, data[:1]), w.publish(ctx, a, data[1:]))
	}
	return w.publish(ctx, a, data)
}

func (w *Worker) publish(ctx context.Context, a *Assignment, data []byte) error {
	_, err := w.ask(ctx, periodic.WorkData, periodic.Success, func(dst []byte) []byte {
		return append(append(dst, a.handle...), data...)
	})
	return w.conn.fault(fmt.Sprintf("publish data of %q %q", a.Job.Func, a.Job.Name), err)
}

// Acquire asks for a named lock, which at most count jobs hold at once, for a
// running job. False: the job is this worker's no more; the server gives it out
// again when the lock is free. Only the CRC framing has it.
func (w *Worker) Acquire(ctx context.Context, a *Assignment, lock string, count int16) (bool, error) {
	err := checkName("lock", lock)
	var got []byte
	if err == nil {
		got, err = w.ask(ctx, periodic.Acquire, periodic.Acquired, func(dst []byte) []byte {
			dst = periodic.AppendStr8String(dst, lock)
			return append(binary.BigEndian.AppendUint16(dst, uint16(count)), a.handle...)
		})
	}
	if err == nil && len(got) != 1 {
		err = fmt.Errorf("the server answered %d bytes where 1 was expected", len(got))
	}
	if err != nil {
		return false, w.conn.fault(fmt.Sprintf("acquire the lock %q for %q %q", lock, a.Job.Func, a.Job.Name), err)
	}
	return got[0] == 1, nil
}

// Release gives a lock back before the job that holds it ends; the end does it
// too. Nothing confirms it. Only the CRC framing has it.
func (w *Worker) Release(ctx context.Context, a *Assignment, lock string) error {
	err := checkName("lock", lock)
	if err == nil && w.conn.framing == periodic.Plain {
		err = errPlain
	}
	if err == nil {
		err = w.conn.send(ctx, w.conn.newID(), periodic.Release, func(dst []byte) []byte {
			return append(periodic.AppendStr8String(dst, lock), a.handle...)
		})
	}
	return w.conn.fault(fmt.Sprintf("release the lock %q", lock), err)
}

func (w *Worker) ask(ctx context.Context, cmd, want periodic.Command, args func([]byte) []byte) ([]byte, error) {
	if w.conn.framing == periodic.Plain {
		return nil, errPlain
	}
	return w.conn.expect(ctx, cmd, want, args)
}
