package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"treadle/codec/periodic"
)

// endOfData is the last DATA of a stream.
const endOfData = "EOF"

// errNeedsCRC reports a request that the 2018 framing does not have.
var errNeedsCRC = errors.New("the framing of 2018 does not have this request")

// replyStream passes on the replies to one request. The reading goroutine waits until the caller takes
// each, so a slow caller slows the server down.
type replyStream struct {
	bodies    chan []byte
	abandoned chan struct{} // closed when the caller takes no further chunk
}

func (c *conn) deliver(f *replyStream, body []byte) error {
	c.streaming.Store(true)
	defer c.streaming.Store(false)
	select {
	case f.bodies <- body:
	case <-f.abandoned:
	case <-c.ended:
		return c.reason()
	}
	return nil
}

// nextReply waits for the next reply of f.
func (c *conn) nextReply(ctx context.Context, f *replyStream) ([]byte, error) {
	select {
	case body := <-f.bodies:
		return body, nil
	case <-ctx.Done():
		return nil, simplify(ctx.Err())
	case <-c.ended:
		return nil, c.reason()
	}
}

// Recv writes to w what the workers of a job publish, as it arrives, until the job ends. The job
// need not exist yet. While w blocks, nothing else is read from the connection, and the server
// delays the worker. ErrNoWorker: no worker offers the function. Recv needs the CRC framing. When
// ctx ends, the server continues to send until the job or the connection ends, because the protocol
// has no cancellation.
func (c *Client) Recv(ctx context.Context, function, name string, w io.Writer) error {
	return c.Receive(ctx, function, name, func() {}, w)
}

// Receive is Recv with a function that is called when the server has accepted the request.
func (c *Client) Receive(ctx context.Context, function, name string, begun func(), w io.Writer) error {
	err := c.conn.recv(ctx, &Job{Func: function, Name: name}, begun, w)
	return c.conn.describe(fmt.Sprintf("receive the data of %q %q", function, name), err)
}

// recv runs a job and writes the data that its worker sends to w. It calls begun when the first data arrives. It needs
// the CRC framing.
func (c *conn) recv(ctx context.Context, j *Job, begun func(), w io.Writer) error {
	if c.framing == periodic.Plain {
		return errNeedsCRC
	}
	if err := j.check(); err != nil {
		return err
	}
	f := &replyStream{bodies: make(chan []byte), abandoned: make(chan struct{})}
	waiting := c.begin(&call{replies: f})
	defer c.forget(waiting)
	defer close(f.abandoned)
	if err := c.send(ctx, waiting.id, periodic.RecvData, j.appendTo); err != nil {
		return err
	}
	want := periodic.Success
	for {
		body, err := c.nextReply(ctx, f)
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

// Publish sends data of a running job to its receivers and returns when they keep up. It needs the
// CRC framing.
func (w *Worker) Publish(ctx context.Context, a *Assignment, data []byte) error {
	if string(data) == endOfData { // alone it would mean the end of the stream
		return errors.Join(w.publish(ctx, a, data[:1]), w.publish(ctx, a, data[1:]))
	}
	return w.publish(ctx, a, data)
}

func (w *Worker) publish(ctx context.Context, a *Assignment, data []byte) error {
	_, err := w.ask(ctx, periodic.WorkData, periodic.Success, func(dst []byte) []byte {
		return append(append(dst, a.handle...), data...)
	})
	return w.conn.describe(fmt.Sprintf("publish data of %q %q", a.Job.Func, a.Job.Name), err)
}

func (w *Worker) ask(ctx context.Context, cmd, want periodic.Command, args func([]byte) []byte) ([]byte, error) {
	if w.conn.framing == periodic.Plain {
		return nil, errNeedsCRC
	}
	return w.conn.expect(ctx, cmd, want, args)
}
