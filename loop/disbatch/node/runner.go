package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/config"
)

// A node's tasks are run by a process of their own, one for all of them, that goes on when
// the node stops or dies: it finishes what it runs, and ends. The node sends it assignments
// over a pipe, as documents; it answers each with a report.

// report is what became of an assignment.
type report struct {
	Task   primitive.ObjectID `bson:"task"`
	Error  string             `bson:"error"`  // why its end could not be written
	Counts counts             `bson:"counts"` // of all tasks, since the last report
}

// maxAssignment bounds a document on the pipe: a task and some words.
const maxAssignment = 17 << 20

// readDocument reads one document of a pipe.
func readDocument(in io.Reader, into any) error {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size < 5 || size > maxAssignment {
		return fmt.Errorf("a document of %d bytes on the pipe", size)
	}
	doc := make([]byte, size)
	copy(doc, head[:])
	if _, err := io.ReadFull(in, doc[4:]); err != nil {
		return err
	}
	if err := bson.Raw(doc).Validate(); err != nil { // what it finds may keep Unmarshal busy for ever
		return err
	}
	return bson.Unmarshal(doc, into)
}

// RunTasks is the process that runs a node's tasks: it takes assignments from in until that
// ends, reports to out, and returns when the last task is finished. Whatever the database
// does, it waits for it. If ctx ends, it takes no more, ends the plugins that run, writes
// that their tasks failed, and returns; an error then is of a task that could not be written.
func RunTasks(ctx context.Context, c *config.File, in io.Reader, out io.Writer, log *slog.Logger) error {
	// The node may be gone, and its terminal with it; the tasks are to be finished all the same.
	// Not by ignoring the signals: the plugins would inherit that, and a pipeline whose reader has
	// had enough would not end.
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGPIPE, syscall.SIGHUP)
	defer signal.Stop(gone)
	store, err := disbatch.Open(c, config.ComponentRunner)
	if err != nil {
		return err
	}
	defer store.Close()
	p := newPerformer(store, c, log)
	assignments, end := make(chan *assignment), make(chan error, 1)
	go func() {
		for {
			a := new(assignment)
			if err := readDocument(in, a); err != nil {
				end <- err
				return
			}
			select {
			case assignments <- a:
			case <-ctx.Done():
				return
			}
		}
	}()
	var running sync.WaitGroup
	w := &reports{out: out}
	for {
		select {
		case a := <-assignments:
			running.Go(func() { w.add(p, disbatch.DecodeTask(a.Task).ID, p.perform(ctx, a)) })
			continue
		case err = <-end:
		case <-ctx.Done():
			log.Warn("told to end: ending the plugins that run")
			err = io.EOF
		}
		break
	}
	running.Wait()
	switch {
	case err != io.EOF:
		return err
	case ctx.Err() != nil:
		return w.first
	}
	return nil
}

// reports are what a runner tells its node.
type reports struct {
	mu    sync.Mutex
	out   io.Writer
	first error // of a task
}

// add reports what became of a task.
func (w *reports) add(p *performer, task primitive.ObjectID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := report{Task: task, Counts: p.tally.take()}
	if err != nil && err != errNotMine {
		r.Error = err.Error()
		p.log.Error("a task is not finished", "task", task.Hex(), "error", r.Error)
		if w.first == nil {
			w.first = fmt.Errorf("task %s: %w", task.Hex(), err)
		}
	}
	if doc, err := bson.Marshal(r); err == nil {
		_, _ = w.out.Write(doc) // a node that is gone does not miss it
	}
}

// runner is the node's end of that process.
type runner struct {
	command []string // that runs RunTasks
	life    nodeLife
	log     *slog.Logger
	tally   *tally

	mu      sync.Mutex
	process *exec.Cmd // nil: to be started
	pipe    io.WriteCloser
	waiting map[primitive.ObjectID]chan error

	lives sync.WaitGroup // processes that have not ended
}

// errRunnerEnded says that the process ended before it reported on a task.
var errRunnerEnded = errors.New("the process that runs the tasks of the node ended")

// run has the process do an assignment and waits until it has. An error is about the
// process; it may or may not have begun the task.
func (r *runner) run(id primitive.ObjectID, a *assignment) error {
	doc, err := bson.Marshal(a)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	if err := r.send(id, doc, done); err != nil {
		return err
	}
	return <-done
}

func (r *runner) send(id primitive.ObjectID, doc []byte, done chan error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		if err := r.start(); err != nil {
			return fmt.Errorf("cannot start the process that runs tasks: %w", err)
		}
	}
	r.waiting[id] = done
	if _, err := r.pipe.Write(doc); err != nil {
		delete(r.waiting, id)
		return fmt.Errorf("%w: %w", errRunnerEnded, err)
	}
	return nil
}

// start begins the process, in a session of its own: what ends the node does not end it.
func (r *runner) start() error {
	c := exec.Command(r.command[0], r.command[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Stderr = os.Stderr
	c.Env = append(os.Environ(), nodeVariable+"="+r.life.String())
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	waiting := make(map[primitive.ObjectID]chan error)
	r.process, r.pipe, r.waiting = c, in, waiting
	r.lives.Go(func() { r.listen(c, in, out, waiting) })
	return nil
}

// listen hands out the reports of one process until it ends.
func (r *runner) listen(c *exec.Cmd, in io.Closer, out io.Reader, waiting map[primitive.ObjectID]chan error) {
	for {
		var answer report
		if err := readDocument(out, &answer); err != nil {
			break
		}
		r.tally.add(answer.Counts)
		r.mu.Lock()
		done := waiting[answer.Task]
		delete(waiting, answer.Task)
		r.mu.Unlock()
		switch {
		case done == nil:
		case answer.Error != "":
			done <- errors.New(answer.Error)
		default:
			done <- nil
		}
	}
	_ = in.Close() // so that a process that talks nonsense ends
	err := c.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == c {
		r.process = nil
	}
	for id, done := range waiting {
		delete(waiting, id)
		done <- fmt.Errorf("%w: %v", errRunnerEnded, err)
	}
}

// release lets go of the process: it goes on until what it runs is finished.
func (r *runner) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		_ = r.pipe.Close() // the process notices, whatever this says
		r.process = nil
	}
}
