package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"treadle/codec/periodic"
)

// handBackTimeout bounds returning a job that no call waits for.
const handBackTimeout = 10 * time.Second

// Worker does jobs. Any number of goroutines may call its methods; each Grab is a slot of its own.
// When the connection ends, the server gives the worker's jobs to other workers.
type Worker struct{ conn *conn }

// Assignment is a job assigned to a Worker, which finishes it with Done, Fail or Later.
type Assignment struct {
	Job    Job
	handle []byte // in the form that the server expects back
}

// Close closes the connection.
func (w *Worker) Close() { w.conn.close() }

// Ended is closed when the connection has ended.
func (w *Worker) Ended() <-chan struct{} { return w.conn.ended }

// Address returns the server's address as network://address.
func (w *Worker) Address() string { return w.conn.address }

// UsesCRC reports whether the connection speaks the CRC framing.
func (w *Worker) UsesCRC() bool { return w.conn.framing == periodic.CRC }

// ConfigGet is Client.ConfigGet. The 2018 framing forbids it to workers.
func (w *Worker) ConfigGet(ctx context.Context, key string) (uint32, error) {
	return (&Client{w.conn}).ConfigGet(ctx, key)
}

// Ping returns when the server has read everything sent before.
func (w *Worker) Ping(ctx context.Context) error {
	_, err := w.conn.expect(ctx, periodic.Ping, periodic.Pong, nil)
	return w.conn.describe("ping", err)
}

// CanDo offers to do a function's jobs. It returns when the server has accepted the offer.
func (w *Worker) CanDo(ctx context.Context, function string) error {
	return w.offer(ctx, periodic.CanDo, function)
}

// CantDo withdraws CanDo. It returns when the server has accepted the withdrawal.
func (w *Worker) CantDo(ctx context.Context, function string) error {
	return w.offer(ctx, periodic.CantDo, function)
}

// Broadcast offers to do a function's jobs and makes it a broadcast function, whose jobs go to
// every waiting slot. It returns when the server has accepted the offer.
func (w *Worker) Broadcast(ctx context.Context, function string) error {
	return w.offer(ctx, periodic.Broadcast, function)
}

func (w *Worker) offer(ctx context.Context, cmd periodic.Command, function string) error {
	err := checkName("function", function)
	if err == nil {
		err = w.conn.announce(ctx, cmd, func(dst []byte) []byte { return periodic.AppendStr8String(dst, function) })
	}
	return w.conn.describe(fmt.Sprintf("tell %v %q", cmd, function), err)
}

// Grab waits for a job of the offered functions. After NO_JOB it sends SLEEP and waits for NOOP.
// When ctx ends, the slot stays open at the server: a job that arrives for it is returned as
// failed.
func (w *Worker) Grab(ctx context.Context) (*Assignment, error) {
	for {
		body, err := w.grabOnce(ctx)
		if err == nil && len(body) > 0 && periodic.Command(body[0]) == periodic.NoJob {
			if _, err = w.conn.expect(ctx, periodic.Sleep, periodic.Noop, nil); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, w.conn.describe("grab a job", err)
		}
		a, err := w.conn.parseAssignment(body)
		return a, w.conn.describe("grab a job", err)
	}
}

// grabOnce asks for one job and waits for it. If ctx ends first, it returns the job that was assigned in the meantime,
// if there is one.
func (w *Worker) grabOnce(ctx context.Context) ([]byte, error) {
	waiting := w.conn.begin(&call{skipSuccess: true})
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
	case r := <-waiting.reply: // it arrived in between
		return r.body, nil
	default:
		return nil, err
	}
}

// parseAssignment parses JOB_ASSIGN: a handle and a job in the 2018 framing; in later ones a job
// whose function and name are the handle.
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

// handBack returns a job whose Grab has ended. It runs on the reading goroutine and must not wait
// for the server.
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
		// It fails only when the connection has ended, which returns the job too.
		_ = w.Fail(ctx, a)
	})
}

// Done reports a job as done, with its result. The server sends no confirmation; a Ping behind it
// is one.
func (w *Worker) Done(ctx context.Context, a *Assignment, result []byte) error {
	return w.report(ctx, periodic.WorkDone, a, result)
}

// Fail returns a job, to be done again at once.
func (w *Worker) Fail(ctx context.Context, a *Assignment) error {
	return w.FailWith(ctx, a, nil)
}

// MaxErrorText is how many bytes of an error text a Treadle keeps.
const MaxErrorText = 512

// FailWith is Fail with an error text. A Treadle keeps its last MaxErrorText bytes in the history of the job, if the
// job has one. Other servers ignore it.
func (w *Worker) FailWith(ctx context.Context, a *Assignment, text []byte) error {
	return w.report(ctx, periodic.WorkFail, a, text)
}

// Later returns a job, to be done delay seconds from now, and adds step to its count.
func (w *Worker) Later(ctx context.Context, a *Assignment, delay int64, step int16) error {
	args := binary.BigEndian.AppendUint64(nil, uint64(delay))
	return w.report(ctx, periodic.SchedLater, a, binary.BigEndian.AppendUint16(args, uint16(step)))
}

func (w *Worker) report(ctx context.Context, cmd periodic.Command, a *Assignment, rest []byte) error {
	err := w.conn.send(ctx, w.conn.newID(), cmd, func(dst []byte) []byte {
		return append(append(dst, a.handle...), rest...)
	})
	return w.conn.describe(fmt.Sprintf("report %v of %q %q", cmd, a.Job.Func, a.Job.Name), err)
}
