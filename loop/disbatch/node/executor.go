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

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// One separate process, the executor, runs all commands of a node. It outlives the node: when the node stops or dies,
// the process finishes its tasks and exits. The node sends it assignments over a pipe as BSON documents. The process
// answers each of them with a report.

// report is the result of an assignment.
type report struct {
	Task   primitive.ObjectID `bson:"task"`
	Error  string             `bson:"error"`  // reason why the end of the task is not written; empty: it is
	Counts counts             `bson:"counts"` // of all tasks since the last report
}

// maxAssignment bounds a document on the pipe: a task with its plugin.
const maxAssignment = 17 << 20

// readDocument reads one document from a pipe.
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
	if err := bson.Raw(doc).Validate(); err != nil { // Unmarshal may hang on an invalid document
		return err
	}
	return bson.Unmarshal(doc, into)
}

// RunTasks runs the tasks of a node in a process of its own. It reads assignments from in until EOF, writes reports to
// out, and returns after the last task has ended. It waits for a database that does not answer. If ctx ends, RunTasks
// reads no more assignments, stops the running plugins, fails their tasks, and returns the first error of a task whose
// end it could not write.
func RunTasks(ctx context.Context, c *config.File, in io.Reader, out io.Writer, log *slog.Logger) error {
	// Survive the end of the node and of its terminal. Catch the signals instead of ignoring them: plugins would
	// inherit the latter, and a pipeline with a closed reader would not end.
	gone := make(chan os.Signal, 1)
	signal.Notify(gone, syscall.SIGPIPE, syscall.SIGHUP)
	defer signal.Stop(gone)
	site, err := store.Open(c.Connection(config.ComponentRunner))
	if err != nil {
		return err
	}
	defer site.Close()
	p := newPerformer(site, c, log)
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
			running.Go(func() { w.add(p, store.DecodeTask(a.Task).ID, p.perform(ctx, a)) })
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

// reports writes the reports of a process to its node.
type reports struct {
	mu    sync.Mutex
	out   io.Writer
	first error // first error of a task
}

// add reports the result of a task.
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
		_, _ = w.out.Write(doc) // the node may have ended
	}
}

// executor is the node's side of the process that runs tasks.
type executor struct {
	command  []string // command line of a process that calls RunTasks
	instance instance
	log      *slog.Logger
	tally    *tally

	mu       sync.Mutex
	process  *exec.Cmd // nil: not started
	pipe     io.WriteCloser
	waiting  map[primitive.ObjectID]chan error
	detached bool // it starts no process any more

	running sync.WaitGroup // processes that have not ended
}

// errExecutorEnded reports that the process has ended without a report on a task.
var errExecutorEnded = errors.New("the process that runs the tasks of the node ended")

// errDetached reports that the executor begins no task any more.
var errDetached = errors.New("the node is stopping")

// run sends an assignment to the process and waits for its report. errExecutorEnded leaves open whether the task has
// begun. After errDetached it has not.
func (e *executor) run(id primitive.ObjectID, a *assignment) error {
	doc, err := bson.Marshal(a)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	if err := e.send(id, doc, done); err != nil {
		return err
	}
	return <-done
}

// send starts the process if necessary and writes an assignment. The report of the task goes to done.
func (e *executor) send(id primitive.ObjectID, doc []byte, done chan error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.detached {
		return errDetached
	}
	if e.process == nil {
		if err := e.start(); err != nil {
			return fmt.Errorf("cannot start the process that runs tasks: %w", err)
		}
	}
	e.waiting[id] = done
	if _, err := e.pipe.Write(doc); err != nil {
		delete(e.waiting, id)
		return fmt.Errorf("%w: %w", errExecutorEnded, err)
	}
	return nil
}

// start starts the process in a session of its own, so that signals to the node do not reach it. The caller holds mu.
func (e *executor) start() error {
	c := exec.Command(e.command[0], e.command[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Stderr = os.Stderr
	c.Env = append(os.Environ(), nodeVariable+"="+e.instance.String())
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
	e.process, e.pipe, e.waiting = c, in, waiting
	e.running.Go(func() { e.listen(c, in, out, waiting) })
	return nil
}

// listen passes on the reports of one process until it ends.
func (e *executor) listen(c *exec.Cmd, in io.Closer, out io.Reader, waiting map[primitive.ObjectID]chan error) {
	for {
		var r report
		if err := readDocument(out, &r); err != nil {
			break
		}
		e.tally.add(r.Counts)
		e.mu.Lock()
		done := waiting[r.Task]
		delete(waiting, r.Task)
		e.mu.Unlock()
		switch {
		case done == nil:
		case r.Error != "":
			done <- errors.New(r.Error)
		default:
			done <- nil
		}
	}
	_ = in.Close() // a process with an invalid report ends at EOF
	err := c.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process == c {
		e.process = nil
	}
	for id, done := range waiting {
		delete(waiting, id)
		done <- fmt.Errorf("%w: %v", errExecutorEnded, err)
	}
}

// detach closes the pipe to the process, which finishes its tasks and exits. Later calls of run return errDetached.
func (e *executor) detach() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.detached = true
	if e.process != nil {
		_ = e.pipe.Close() // the process reads EOF in any case
		e.process = nil
	}
}
