package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"treadle/codec/periodic"
)

// handBackTimeout bounds returning a job nobody asked for any more.
const handBackTimeout = 10 * time.Second

// Worker does jobs. Its methods may be called by any number of goroutines: each
// Grab is a slot of its own. Jobs still held when it is closed are given to
// other workers by the server.
type Worker struct{ conn *conn }

// Assignment is a job in the hands of a Worker, to be ended by Done, Fail or
// Later on the Worker it came from.
type Assignment struct {
	Job    Job
	handle []byte // as the server wants it back
}

// Close ends the connection.
func (w *Worker) Close() { w.conn.close() }

// Ended is closed when the connection has ended.
func (w *Worker) Ended() <-chan struct{} { return w.conn.ended }

// Address returns the server's address as network://address.
func (w *Worker) Address() string { return w.conn.address }

// Newest says whether the connection speaks the CRC framing.
func (w *Worker) Newest() bool { return w.conn.framing == periodic.CRC }

// ConfigGet is that of a Client. The framing of 2018 forbids it to workers.
func (w *Worker) ConfigGet(ctx context.Context, key string) (uint32, error) {
	return (&Client{w.conn}).ConfigGet(ctx, key)
}

// Ping returns when the server has read everything sent before.
func (w *Worker) Ping(ctx context.Context) error {
	_, err := w.conn.expect(ctx, periodic.Ping, periodic.Pong, nil)
	return w.conn.fault("ping", err)
}

// CanDo offers to do a function's jobs; it returns when the server knows.
func (w *Worker) CanDo(ctx context.Context, function string) error {
	return w.offer(ctx, periodic.CanDo, function)
}

// CantDo takes CanDo back; it returns when the server knows.
func (w *Worker) CantDo(ctx context.Context, function string) error {
	return w.offer(ctx, periodic.CantDo, function)
}

// Broadcast offers to do a function's jobs and makes it one whose jobs go to
// every waiting slot; it returns when the server knows.
func (w *Worker) Broadcast(ctx context.Context, function string) error {
	return w.offer(ctx, periodic.Broadcast, function)
}

func (w *Worker) offer(ctx context.Context, cmd periodic.Command, function string) error {
	err := checkName("function", function)
	if err == nil {
		err = w.conn.announce(ctx, cmd, func(dst []byte) []byte { return periodic.AppendStr8String(dst, function) })
	}
	return w.conn.fault(fmt.Sprintf("tell %v %q", cmd, function), err)
}

// Grab waits for a job of the functions offered. A server that says NO_JOB is
// asked to say when there is one. A Grab whose ctx ends leaves its slot behind:
// a job that still comes for it is handed back as failed.
func (w *Worker) Grab(ctx context.Context) (*Assignment, error) {
	for {
		body, err := w.grabOnce(ctx)
		if err == nil && len(body) > 0 && periodic.Command(body[0]) == periodic.NoJob {
			if _, err = w.conn.expect(ctx, periodic.Sleep, periodic.Noop, nil); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, w.conn.fault("grab a job", err)
		}
		a, err := w.conn.parseAssignment(body)
		return a, w.conn.fault("grab a job", err)
	}
}

func (w *Worker) grabOnce(ctx context.Context) ([]byte, error) {
	waiting := w.conn.begin(&call{notSuccess: true})
	if err := w.conn.send(ctx, waiting.id, periodic.GrabJob, nil); err != nil {
		w.conn.forget(waiting)
		return nil, err
	}
	r, err := w.conn.await(ctx, waiting)
	if err == nil {
		return r.body, nil
	}
	w.conn.forget(waiting)
	select {
	case r := <-waiting.reply: // it came between the two lines above
		return r.body, nil
	default:
		return nil, err
	}
}

// parseAssignment reads JOB_ASSIGN: in the 2018 framing a handle and a job, in
// later ones a job whose function and name are the handle.
func (c *conn) parseAssignment(body []byte) (*Assignment, error) {
	if len(body) == 0 || periodic.Command(body[0]) != periodic.JobAssign {
		return nil, unexpected(body)
	}
	rest := body[1:]
	a := &Assignment{}
	if c.framing == periodic.Plain {
		handle, after, ok := periodic.Str8(rest)
		if !ok {
			return nil, errors.New("the server sent a job without a handle")
		}
		a.handle = periodic.AppendStr8(nil, handle)
		rest = after
	}
	var j periodic.Job
	if _, err := periodic.ParseJob(rest, &j); err != nil {
		return nil, fmt.Errorf("the server sent a job that cannot be read: %w", err)
	}
	if c.framing == periodic.CRC {
		a.handle = periodic.AppendStr8(periodic.AppendStr8(nil, j.Func), j.Name)
	}
	a.Job = Job{string(j.Func), string(j.Name), append([]byte(nil), j.Workload...), j.SchedAt, j.Count, j.Timeout}
	return a, nil
}

// handBack returns a job that came for a slot nobody waits in any more. It
// runs on the reading goroutine, which must not wait for the server.
func (w *Worker) handBack(body []byte) {
	if len(body) == 0 || periodic.Command(body[0]) != periodic.JobAssign {
		return
	}
	a, err := w.conn.parseAssignment(body)
	if err != nil {
		return
	}
	w.conn.done.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), handBackTimeout)
		defer cancel()
		// A failure here is the connection's end, which returns the job too.
		_ = w.Fail(ctx, a)
	})
}

// Done reports a job as done with a result. Nothing confirms it; Ping does.
func (w *Worker) Done(ctx context.Context, a *Assignment, result []byte) error {
	return w.report(ctx, periodic.WorkDone, a, result)
}

// Fail gives a job back to be done again at once.
func (w *Worker) Fail(ctx context.Context, a *Assignment) error {
	return w.report(ctx, periodic.WorkFail, a, nil)
}

// Later gives a job back to be done delay seconds from now; step is added to
// its count.
func (w *Worker) Later(ctx context.Context, a *Assignment, delay int64, step int16) error {
	args := binary.BigEndian.AppendUint64(nil, uint64(delay))
	return w.report(ctx, periodic.SchedLater, a, binary.BigEndian.AppendUint16(args, uint16(step)))
}

func (w *Worker) report(ctx context.Context, cmd periodic.Command, a *Assignment, rest []byte) error {
	err := w.conn.send(ctx, w.conn.newID(), cmd, func(dst []byte) []byte {
		return append(append(dst, a.handle...), rest...)
	})
	return w.conn.fault(fmt.Sprintf("report %v of %q %q", cmd, a.Job.Func, a.Job.Name), err)
}
