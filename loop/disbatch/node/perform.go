package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/config"
)

const (
	// maxInline is how much output a task's document takes, the original's figure: the
	// database's limit on documents is 16 MiB.
	maxInline = 15 << 20
	// maxReason is how much of what a task runner wrote last says why its task has not ended: more
	// than a person reads.
	maxReason = 1 << 20
	// shutdownGrace is how long a runner that was told to end, and has ended its plugins, goes
	// on trying to write how their tasks ended.
	shutdownGrace = 10 * time.Second
)

// performer begins tasks, runs their plugins and writes their ends.
type performer struct {
	store  *database
	log    *slog.Logger
	config string   // path of the configuration, for runners
	flags  []string // more of them for runners of 2018
	claim  bool     // a finished task keeps the time of its claim
	tally  *tally
	clock  func() time.Time // on the wall, for the database
	retry  *disbatch.Retrier
	last   time.Duration // for the ends of tasks when it is told to end: shutdownGrace, less in tests
}

// assignment is a claimed task and how it is to be run.
type assignment struct {
	Task   []byte          `bson:"task"` // a document, carried as bytes: one that is broken must not break the pipe
	Plugin config.Plugin   `bson:"plugin"`
	Schema disbatch.Schema `bson:"schema"`
	GFS    config.GFS      `bson:"gfs"`
}

// errNotMine says that the task was not there to be begun: somebody else began it, or it
// was given back.
var errNotMine = errors.New("the task is not claimed by this node any more")

// perform begins a task, runs it here and writes its end. If ctx ends, the plugin is told
// to end, and that is written.
func (p *performer) perform(ctx context.Context, a *assignment) error {
	t := disbatch.DecodeTask(a.Task)
	if a.Plugin.Kind == config.KindRunner {
		return p.delegate(ctx, a, &t)
	}
	run := primitive.NewObjectID()
	if err := p.begin(ctx, a, &t, run); err != nil {
		return err
	}
	o := p.execute(ctx, a, &t)
	longer, cancel := outlive(ctx, p.last)
	defer cancel()
	if err := p.finish(longer, a, &t, run, o); err != nil {
		return fmt.Errorf("its end with status %d is not written, in the database it runs for ever: %w", o.status, err)
	}
	return nil
}

// outlive is a context that ends some time after another.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(by, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

func (p *performer) begin(ctx context.Context, a *assignment, t *disbatch.Task, run primitive.ObjectID) error {
	begun := false
	err := p.retry.Do(ctx, "beginning task "+t.ID.Hex(), func() (err error) {
		begun, err = p.store.begin(ctx, t, run)
		return err
	})
	switch {
	case disbatch.TooLarge(err):
		p.log.Error("a task's document has no room for its run, it failed", "task", t.ID.Hex())
		return cmp.Or(p.failBare(ctx, a.Schema, t), errNotMine)
	case err == nil && !begun:
		return errNotMine
	}
	return err
}

// failBare fails a task whose document has no room for more, and counts it.
func (p *performer) failBare(ctx context.Context, schema disbatch.Schema, t *disbatch.Task) error {
	failed, mtime := false, p.mtime()
	err := p.retry.Do(ctx, "failing task "+t.ID.Hex(), func() (err error) {
		failed, err = p.store.failBare(ctx, t, mtime)
		return err
	})
	if failed {
		p.tally.ended[endOf(disbatch.StatusFailed)].Add(1)
		p.count(ctx, schema, t)
	}
	return err
}

// execute runs the plugins that are commands or built in.
func (p *performer) execute(ctx context.Context, a *assignment, t *disbatch.Task) outcome {
	switch {
	case a.Plugin.Kind == kindDemo:
		return demo(t)
	case a.Plugin.Kind != config.KindExec:
		return ended(unableToStart, fmt.Errorf("a plugin of the kind %q runs in treadle serve --disbatch only", a.Plugin.Kind))
	}
	text, err := extended(a.Task)
	if err != nil {
		return ended(unableToStart, err)
	}
	r, err := executeCommand(ctx, &a.Plugin, t.ID.Hex(), nil, append(text, '\n'))
	switch {
	case err != nil:
		return ended(unableToStart, err)
	case r.broken != nil:
		return ended(unableToComplete, fmt.Errorf("%w\n%s", r.broken, utf8Text(r.stderr.kept)))
	}
	stdout, status, ok := statusLine(r.stdout.kept)
	if !ok {
		status = disbatch.StatusSucceeded
		if r.exit != 0 {
			status = disbatch.StatusFailed
		}
	}
	o := outcome{status: status, stdout: utf8Text(stdout)}
	notes := ""
	for _, stream := range []struct {
		name string
		cut  int64
	}{{disbatch.FileStdout, r.stdout.cut}, {disbatch.FileStderr, r.stderr.cut}} {
		if stream.cut > 0 {
			notes += fmt.Sprintf("\ntreadle: %d bytes of %s were cut, see max_output\n", stream.cut, stream.name)
		}
	}
	o.stderr = utf8Text(r.stderr.kept) + notes
	return o
}

// delegate has an original task runner do all of it, and looks after a task that it leaves
// unfinished.
func (p *performer) delegate(ctx context.Context, a *assignment, t *disbatch.Task) error {
	id := t.ID.Hex()
	if os.Getenv(selfVariable) == id {
		return p.crash(ctx, a, t, ended(unableToStart, errors.New("its task runner is treadle itself: give the plugin an entry of the kind exec in treadle_plugins")))
	}
	r, err := executeCommand(ctx, &a.Plugin, id, p.runnerFlags(a, id), nil)
	var o outcome
	why := func() string { return utf8Text(r.stderr.kept[max(0, len(r.stderr.kept)-maxReason):]) }
	switch {
	case err != nil:
		o = ended(unableToStart, err)
	case r.broken != nil:
		o = ended(unableToComplete, r.broken)
	case r.exit != 0:
		o = ended(unableToComplete, fmt.Errorf("the task runner %s ended with %d\n%s", a.Plugin.Command[0], r.exit, why()))
	default:
		o = ended(unableToComplete, fmt.Errorf("the task runner %s ended without finishing the task\n%s", a.Plugin.Command[0], why()))
	}
	longer, cancel := outlive(ctx, p.last)
	defer cancel()
	return p.crash(longer, a, t, o)
}

// runnerFlags are what a task runner is called with. That of 2016 is told the plugin, has no gfs
// but on and off, and writes to GridFS unless it is told not to.
func (p *performer) runnerFlags(a *assignment, id string) []string {
	if a.Schema == disbatch.Schema2016 {
		flags := []string{"--config", p.config, "--plugin", a.Plugin.Class, "--task", id}
		if a.GFS.Never() {
			flags = append(flags, "--nogfs")
		}
		return flags
	}
	return append([]string{"--config", p.config, "--task", id, "--gfs", a.GFS.String()}, p.flags...)
}

// crash ends a task that whoever was to run it has left claimed or running; one that is
// finished stays as it is, and is counted here, because whoever finished it has not.
func (p *performer) crash(ctx context.Context, a *assignment, t *disbatch.Task, o outcome) error {
	crashed := false
	write := func() (err error) {
		crashed, err = p.store.crash(ctx, t, o, p.mtime())
		return err
	}
	err := p.retry.Do(ctx, "ending task "+t.ID.Hex(), write)
	if disbatch.TooLarge(err) { // the payload leaves no room for the reason
		o.stdout, o.stderr = "", ""
		err = p.retry.Do(ctx, "ending task "+t.ID.Hex(), write)
	}
	switch {
	case err != nil:
		return err
	case crashed:
		p.tally.ended[endOf(o.status)].Add(1)
		p.count(ctx, a.Schema, t)
	default:
		if now, err := p.store.Task(ctx, t.ID); err == nil && now.Status >= disbatch.StatusSucceeded {
			p.tally.ended[endOf(now.Status)].Add(1)
		}
	}
	return nil
}

func (p *performer) mtime() time.Time {
	if p.claim {
		return time.Time{}
	}
	return p.clock()
}

// finish writes the end of a task, its output to GridFS if that is asked for or necessary,
// and counts it.
func (p *performer) finish(ctx context.Context, a *assignment, t *disbatch.Task, run primitive.ObjectID, o outcome) error {
	stdout, stderr := o.stdout.(string), o.stderr.(string)
	out, errs := outgrown(a.GFS, len(stdout), len(stderr))
	if err := p.toFiles(ctx, t, &o, out, errs); err != nil {
		return err
	}
	finished, mtime := false, p.mtime()
	write := func() (err error) {
		finished, err = p.store.finish(ctx, t, run, o, mtime)
		return err
	}
	err := p.retry.Do(ctx, "finishing task "+t.ID.Hex(), write)
	if disbatch.TooLarge(err) { // the payload leaves no room
		if err := p.toFiles(ctx, t, &o, !out && stdout != "", !errs && stderr != ""); err != nil {
			return err
		}
		err = p.retry.Do(ctx, "finishing task "+t.ID.Hex(), write)
	}
	if disbatch.TooLarge(err) { // nor for the ids of files: then the status alone
		o.stdout, o.stderr = "", ""
		err = p.retry.Do(ctx, "finishing task "+t.ID.Hex(), write)
	}
	switch {
	case err != nil:
		return err
	case finished:
		p.tally.ended[endOf(o.status)].Add(1)
		p.count(ctx, a.Schema, t)
	default:
		p.log.Warn("a task was taken from its runner, its result is dropped", "task", t.ID.Hex())
	}
	return nil
}

// outgrown says of outputs of so many bytes which go to GridFS: stderr by its own size, and stdout if
// what stays in the document would be too much. An empty one stays.
func outgrown(gfs config.GFS, stdout, stderr int) (out, errs bool) {
	if gfs.Always() {
		return true, true
	}
	errs = stderr > maxInline
	if !errs {
		stdout += stderr
	}
	return stdout > maxInline, errs
}

// toFiles puts outputs of a task into files.
func (p *performer) toFiles(ctx context.Context, t *disbatch.Task, o *outcome, out, errs bool) (err error) {
	for _, stream := range []struct {
		moves bool
		name  string
		text  *any
	}{{out, disbatch.FileStdout, &o.stdout}, {errs, disbatch.FileStderr, &o.stderr}} {
		if stream.moves && err == nil {
			*stream.text, err = p.file(ctx, t, stream.name, (*stream.text).(string))
		}
	}
	return err
}

// file writes one stream to GridFS, whole, however often the database goes away.
func (p *performer) file(ctx context.Context, t *disbatch.Task, name, text string) (id primitive.ObjectID, err error) {
	id = primitive.NewObjectID()
	err = p.retry.Do(ctx, "writing "+name+" of task "+t.ID.Hex(), func() error {
		return p.store.WriteFile(ctx, id, t.ID, name, text)
	})
	return id, err
}

// count notes a finished task in a queue of 2016.
func (p *performer) count(ctx context.Context, schema disbatch.Schema, t *disbatch.Task) {
	if schema != disbatch.Schema2016 {
		return
	}
	if err := p.store.AddCounts(ctx, t.Queue, -1, 0); err != nil {
		// Whether it was counted is not known: have the node count anew.
		err = p.retry.Do(ctx, "counting anew", func() error { return p.store.forgetCounts(ctx, t.Queue) })
		if err != nil {
			p.log.Warn("the counters of a queue may be off", "queue", t.Queue.Hex(), "error", err.Error())
		}
	}
}

// ErrTaskID says that something is no id of a task.
var ErrTaskID = errors.New("not the 24 hexadecimal digits of a task's id")

// TaskOptions are what a task runner is told.
type TaskOptions struct {
	Task   string // its id
	GFS    config.GFS
	Plugin string // in place of the queue's, if that is not known here
}

// RunTask does what the original's task runner does for one claimed task: it begins it,
// runs its plugin and writes its end.
func RunTask(ctx context.Context, c *config.File, o TaskOptions, log *slog.Logger) error {
	id, err := primitive.ObjectIDFromHex(strings.TrimSpace(o.Task))
	if err != nil {
		return fmt.Errorf("--task %s: %w", o.Task, ErrTaskID)
	}
	store, err := disbatch.Open(c, config.ComponentRunner)
	if err != nil {
		return err
	}
	defer store.Close()
	p := newPerformer(store, c, log)
	var t disbatch.Task
	var q disbatch.Queue
	err = p.retry.Connect(ctx, "reading task "+id.Hex(), func() (err error) {
		if t, err = store.Task(ctx, id); err == nil {
			q, err = store.Queue(ctx, t.Queue.Hex())
		}
		if errors.Is(err, disbatch.ErrNotFound) {
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case t.ID.IsZero():
		return fmt.Errorf("task %s: %w", id.Hex(), disbatch.ErrNotFound)
	case q.ID.IsZero():
		return fmt.Errorf("queue %s of task %s: %w", t.Queue.Hex(), id.Hex(), disbatch.ErrNotFound)
	case t.Status != disbatch.StatusClaimed:
		return fmt.Errorf("task %s has status %d: only a claimed one, -1, can be run", id.Hex(), t.Status)
	}
	own := *c
	own.TaskRunner = "" // that is this program
	plugin, err := pluginOf(&own, q.Plugin, q.Schema, nil)
	if err != nil && o.Plugin != "" {
		plugin, err = pluginOf(&own, o.Plugin, q.Schema, nil)
	}
	a := &assignment{Task: t.Raw, Plugin: plugin, Schema: q.Schema, GFS: o.GFS}
	if err != nil {
		run := primitive.NewObjectID()
		if berr := p.begin(ctx, a, &t, run); berr != nil {
			return berr
		}
		return p.finish(ctx, a, &t, run, ended(unableToStart, err))
	}
	return p.perform(ctx, a)
}

func newPerformer(store *disbatch.Store, c *config.File, log *slog.Logger) *performer {
	var flags []string
	if c.Quiet {
		flags = append(flags, "--quiet")
	}
	if c.Testing {
		flags = append(flags, "--testing")
	}
	counted := new(tally)
	retry := store.Retrier(log, func() { counted.errors.Add(1) })
	return &performer{store: newDatabase(store), log: log, config: c.Path, flags: flags, claim: c.Node.MTime == "claim", tally: counted, clock: time.Now, retry: retry, last: shutdownGrace}
}
