package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

const (
	// maxInline is the output that a task's document may hold, as in the original. The database limits documents to 16
	// MiB.
	maxInline = 15 << 20
	// maxReason bounds the end of a task runner's stderr that becomes the reason of an unfinished task.
	maxReason = 1 << 20
	// shutdownGrace bounds the time in which a stopping executor writes the ends of its tasks.
	shutdownGrace = 10 * time.Second
)

// performer begins tasks, runs their plugins and writes the ends.
type performer struct {
	store      *store.Store
	log        *slog.Logger
	configPath string   // an argument of task runners
	flags      []string // further arguments of 2018 task runners
	tally      *tally
	clock      func() time.Time // wall clock, for timestamps in the database
	retry      *store.Retrier
	grace      time.Duration // shutdownGrace; less in tests
	// keepMTime leaves the time of the claim as the mtime of a finished task.
	keepMTime bool
}

// newPerformer returns a performer on a store.
func newPerformer(site *store.Store, c *config.File, log *slog.Logger) *performer {
	var flags []string
	if c.Quiet {
		flags = append(flags, "--quiet")
	}
	if c.Testing {
		flags = append(flags, "--testing")
	}
	counted := new(tally)
	retry := site.Retrier(log, func() { counted.errors.Add(1) })
	return &performer{store: site, log: log, configPath: c.Path, flags: flags, keepMTime: c.Node.MTime == "claim", tally: counted,
		clock: time.Now, retry: retry, grace: shutdownGrace}
}

// assignment is a claimed task with its plugin.
type assignment struct {
	Task   []byte        `bson:"task"` // document as bytes: a damaged one must not break the pipe
	Plugin config.Plugin `bson:"plugin"`
	Schema store.Schema  `bson:"schema"`
	GFS    config.GFS    `bson:"gfs"`
}

// errNotMine reports that another process has begun or released the task.
var errNotMine = errors.New("the task is not claimed by this node any more")

// perform begins a task, runs it in this process and writes its end. If ctx ends, perform stops the plugin and writes
// that end.
func (p *performer) perform(ctx context.Context, a *assignment) error {
	t := store.DecodeTask(a.Task)
	if a.Plugin.Kind == config.KindTaskRunner {
		return p.runByTaskRunner(ctx, a, &t)
	}
	run := primitive.NewObjectID()
	if err := p.begin(ctx, a, &t, run); err != nil {
		return err
	}
	o := p.execute(ctx, a, &t)
	longer, cancel := withGrace(ctx, p.grace)
	defer cancel()
	if err := p.finish(longer, a, &t, run, o); err != nil {
		return fmt.Errorf("its end with status %d is not written, in the database it runs for ever: %w", o.Status, err)
	}
	return nil
}

// withGrace returns a context that ends the given time after its parent.
func withGrace(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// begin begins a task for a run. It returns errNotMine if the task is not claimed any more.
func (p *performer) begin(ctx context.Context, a *assignment, t *store.Task, run primitive.ObjectID) error {
	begun := false
	err := p.retry.Do(ctx, "beginning task "+t.ID.Hex(), func() (err error) {
		begun, err = p.store.Begin(ctx, t, run)
		return err
	})
	switch {
	case store.TooLarge(err):
		p.log.Error("a task's document has no room for its run, it failed", "task", t.ID.Hex())
		return cmp.Or(p.failWithoutOutput(ctx, a.Schema, t), errNotMine)
	case err == nil && !begun:
		return errNotMine
	}
	return err
}

// failWithoutOutput fails and counts a task whose document has no room for output.
func (p *performer) failWithoutOutput(ctx context.Context, schema store.Schema, t *store.Task) error {
	failed, mtime := false, p.mtime()
	err := p.retry.Do(ctx, "failing task "+t.ID.Hex(), func() (err error) {
		failed, err = p.store.FailWithoutOutput(ctx, t, mtime)
		return err
	})
	if failed {
		p.tally.ended[endKind(store.StatusFailed)].Add(1)
		p.countFinished(ctx, schema, t)
	}
	return err
}

// execute runs a plugin that is a command or built in.
func (p *performer) execute(ctx context.Context, a *assignment, t *store.Task) store.Outcome {
	switch {
	case a.Plugin.Kind == kindDemo:
		return demo(t)
	case a.Plugin.Kind != config.KindExec:
		return failedOutcome(unableToStart, fmt.Errorf("a plugin of the kind %q runs in treadle serve --disbatch only", a.Plugin.Kind))
	}
	text, err := extendedJSON(a.Task)
	if err != nil {
		return failedOutcome(unableToStart, err)
	}
	r, err := executeCommand(ctx, &a.Plugin, t.ID.Hex(), nil, append(text, '\n'))
	switch {
	case err != nil:
		return failedOutcome(unableToStart, err)
	case r.broken != nil:
		return failedOutcome(unableToComplete, fmt.Errorf("%w\n%s", r.broken, utf8Text(r.stderr.kept)))
	}
	stdout, status, ok := statusLine(r.stdout.kept)
	if !ok {
		status = store.StatusSucceeded
		if r.exit != 0 {
			status = store.StatusFailed
		}
	}
	o := store.Outcome{Status: status, Stdout: utf8Text(stdout)}
	notes := ""
	for _, stream := range []struct {
		name string
		cut  int64
	}{{store.FileStdout, r.stdout.cut}, {store.FileStderr, r.stderr.cut}} {
		if stream.cut > 0 {
			notes += fmt.Sprintf("\ntreadle: %d bytes of %s were cut, see max_output\n", stream.cut, stream.name)
		}
	}
	o.Stderr = utf8Text(r.stderr.kept) + notes
	return o
}

// runByTaskRunner runs a task with a task runner of the original, which begins and ends the task itself. It ends a task
// that the task runner leaves unfinished.
func (p *performer) runByTaskRunner(ctx context.Context, a *assignment, t *store.Task) error {
	id := t.ID.Hex()
	if os.Getenv(selfVariable) == id {
		return p.endAbandoned(ctx, a, t,
			failedOutcome(unableToStart, errors.New("its task runner is treadle itself: give the plugin an entry of the kind exec in treadle_plugins")))
	}
	r, err := executeCommand(ctx, &a.Plugin, id, p.taskRunnerFlags(a, id), nil)
	var o store.Outcome
	why := func() string { return utf8Text(r.stderr.kept[max(0, len(r.stderr.kept)-maxReason):]) }
	switch {
	case err != nil:
		o = failedOutcome(unableToStart, err)
	case r.broken != nil:
		o = failedOutcome(unableToComplete, r.broken)
	case r.exit != 0:
		o = failedOutcome(unableToComplete, fmt.Errorf("the task runner %s ended with %d\n%s", a.Plugin.Command[0], r.exit, why()))
	default:
		o = failedOutcome(unableToComplete, fmt.Errorf("the task runner %s ended without finishing the task\n%s", a.Plugin.Command[0], why()))
	}
	longer, cancel := withGrace(ctx, p.grace)
	defer cancel()
	return p.endAbandoned(longer, a, t, o)
}

// taskRunnerFlags returns the arguments of a task runner. A task runner of 2016 takes the name of the plugin, and
// writes output to GridFS unless it gets --nogfs.
func (p *performer) taskRunnerFlags(a *assignment, id string) []string {
	if a.Schema == store.Schema2016 {
		flags := []string{"--config", p.configPath, "--plugin", a.Plugin.Class, "--task", id}
		if a.GFS.Never() {
			flags = append(flags, "--nogfs")
		}
		return flags
	}
	return append([]string{"--config", p.configPath, "--task", id, "--gfs", a.GFS.String()}, p.flags...)
}

// endAbandoned ends and counts a task that its runner has left claimed or running. It counts a finished task too, since
// a runner of the original has not.
func (p *performer) endAbandoned(ctx context.Context, a *assignment, t *store.Task, o store.Outcome) error {
	written := false
	write := func() (err error) {
		written, err = p.store.EndAbandoned(ctx, t, o, p.mtime())
		return err
	}
	err := p.retry.Do(ctx, "ending task "+t.ID.Hex(), write)
	if store.TooLarge(err) { // the payload leaves no room for the reason
		o.Stdout, o.Stderr = "", ""
		err = p.retry.Do(ctx, "ending task "+t.ID.Hex(), write)
	}
	switch {
	case err != nil:
		return err
	case written:
		p.tally.ended[endKind(o.Status)].Add(1)
		p.countFinished(ctx, a.Schema, t)
	default:
		if now, err := p.store.Task(ctx, t.ID); err == nil && now.Status >= store.StatusSucceeded {
			p.tally.ended[endKind(now.Status)].Add(1)
		}
	}
	return nil
}

// mtime returns the mtime of a task that ends now; zero keeps that of its claim.
func (p *performer) mtime() time.Time {
	if p.keepMTime {
		return time.Time{}
	}
	return p.clock()
}

// finish writes the end of a task and counts it. Output goes to GridFS if the setting or its size requires that. If the
// task's document has no room for the rest, finish writes less of it: first all output to GridFS, then the status
// alone.
func (p *performer) finish(ctx context.Context, a *assignment, t *store.Task, run primitive.ObjectID, o store.Outcome) error {
	stdout, stderr := o.Stdout.(string), o.Stderr.(string)
	stdoutToFile, stderrToFile := outgrown(a.GFS, len(stdout), len(stderr))
	if err := p.toFiles(ctx, t, &o, stdoutToFile, stderrToFile); err != nil {
		return err
	}
	finished, mtime := false, p.mtime()
	attempt := func() (err error) {
		finished, err = p.store.Finish(ctx, t, run, o, mtime)
		return err
	}
	write := func() error { return p.retry.Do(ctx, "finishing task "+t.ID.Hex(), attempt) }
	err := write()
	if store.TooLarge(err) {
		if err := p.toFiles(ctx, t, &o, !stdoutToFile && stdout != "", !stderrToFile && stderr != ""); err != nil {
			return err
		}
		err = write()
	}
	if store.TooLarge(err) {
		o.Stdout, o.Stderr = "", ""
		err = write()
	}
	switch {
	case err != nil:
		return err
	case finished:
		p.tally.ended[endKind(o.Status)].Add(1)
		p.countFinished(ctx, a.Schema, t)
	default:
		p.log.Warn("a task was taken from its runner, its result is dropped", "task", t.ID.Hex())
	}
	return nil
}

// outgrown reports which outputs of the given sizes go to GridFS: stderr by its own size, and stdout if the document
// would hold too much with it.
func outgrown(gfs config.GFS, stdout, stderr int) (stdoutToFile, stderrToFile bool) {
	if gfs.Always() {
		return true, true
	}
	stderrToFile = stderr > maxInline
	inline := stdout
	if !stderrToFile {
		inline += stderr
	}
	return inline > maxInline, stderrToFile
}

// toFiles moves outputs of a task to files.
func (p *performer) toFiles(ctx context.Context, t *store.Task, o *store.Outcome, stdout, stderr bool) (err error) {
	for _, stream := range []struct {
		moves bool
		name  string
		text  *any
	}{{stdout, store.FileStdout, &o.Stdout}, {stderr, store.FileStderr, &o.Stderr}} {
		if stream.moves && err == nil {
			*stream.text, err = p.file(ctx, t, stream.name, (*stream.text).(string))
		}
	}
	return err
}

// file writes one output to GridFS. It waits for a database that does not answer.
func (p *performer) file(ctx context.Context, t *store.Task, name, text string) (id primitive.ObjectID, err error) {
	id = primitive.NewObjectID()
	err = p.retry.Do(ctx, "writing "+name+" of task "+t.ID.Hex(), func() error {
		return p.store.WriteFile(ctx, id, t.ID, name, text)
	})
	return id, err
}

// countFinished counts a finished task in its 2016 queue.
func (p *performer) countFinished(ctx context.Context, schema store.Schema, t *store.Task) {
	if schema != store.Schema2016 {
		return
	}
	if err := p.store.CountEnd(ctx, t.Queue, p.retry); err != nil {
		p.log.Warn("the counters of a queue may be off", "queue", t.Queue.Hex(), "error", err.Error())
	}
}
