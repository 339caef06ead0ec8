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

// One separate process runs all commands of a node. It outlives the node: when the node stops or dies, the process finishes its tasks
// and exits. The node sends it assignments over a pipe as BSON documents. The process answers each of them with a report.

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

// RunTasks runs the tasks of a node in a process of its own. It reads assignments from in until EOF, writes reports to out, and
// returns after the last task has ended. It waits for a database that does not answer. If ctx ends, RunTasks reads no more
// assignments, stops the running plugins, fails their tasks, and returns the first error of a task whose end it could not write.
func RunTasks(ctx context.Context, c *config.File, in io.Reader, out io.Writer, log *slog.Logger) error {
	// Survive the end of the node and of its terminal. Catch the signals instead of ignoring them: plugins would inherit the
	// latter, and a pipeline with a closed reader would not end.
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

// runner is the node's side of the process that runs tasks.
type runner struct {
	command  []string // command line of a process that calls RunTasks
	instance instance
	log      *slog.Logger
	tally    *tally

	mu      sync.Mutex
	process *exec.Cmd // nil: not started
	pipe    io.WriteCloser
	waiting map[primitive.ObjectID]chan error

	running sync.WaitGroup // processes that have not ended
}

// errRunnerEnded reports that the process has ended without a report on a task.
var errRunnerEnded = errors.New("the process that runs the tasks of the node ended")

// run sends an assignment to the process and waits for its report. errRunnerEnded leaves open whether the task has begun.
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

// send starts the process if necessary and writes an assignment. The report of the task goes to done.
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

// start starts the process in a session of its own, so that signals to the node do not reach it. The caller holds mu.
func (r *runner) start() error {
	c := exec.Command(r.command[0], r.command[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Stderr = os.Stderr
	c.Env = append(os.Environ(), nodeVariable+"="+r.instance.String())
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
	r.running.Go(func() { r.listen(c, in, out, waiting) })
	return nil
}

// listen passes on the reports of one process until it ends.
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
	_ = in.Close() // a process with an invalid report ends at EOF
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

// detach closes the pipe to the process, which finishes its tasks and exits.
func (r *runner) detach() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		_ = r.pipe.Close() // the process reads EOF in any case
		r.process = nil
	}
}
