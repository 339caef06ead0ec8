package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/alecthomas/kong"

	"treadle/loop/client"
	"treadle/loop/setting"
)

type workCmd struct {
	Func       string        `arg:"" help:"Function whose jobs to do."`
	Command    []string      `arg:"" name:"cmd" passthrough:"" help:"Command and arguments, after --; the job's name is added as the last."`
	Thread     int           `default:"1" placeholder:"N" help:"Jobs done at a time (default: ${default})."`
	Data       bool          `help:"Return what the command prints as the job's result (default: it goes to standard output)."`
	NoName     bool          `help:"Do not add the job's name to the command; TREADLE_NAME has it."`
	Verbose    bool          `short:"v" help:"Print a line for each job."`
	Broadcast  bool          `help:"Make FUNC a function whose jobs go to every waiting worker."`
	Timeout    time.Duration `default:"-1s" placeholder:"TIME" help:"Time after which the command and its children are killed and the job has failed; 0s: none; -1s: the job's own time-out, else the server's setting (default: ${default})."`
	RetryAfter time.Duration `name:"retry-secs" default:"0s" placeholder:"TIME" help:"Put a failed job off by this time; 0s: it is tried again at once (default: ${default})."`
	SkipFail   bool          `help:"Count a failed job as done."`
	Stream     bool          `help:"Send what the command prints, while it runs, to clients that treadle recv the job; not with servers of 2018."`
	WorkData   bool          `help:"The command prints lines WORKDATA X, data for clients that treadle recv the job, and at last WORKDONE X, the result, whatever --data says; not with servers of 2018."`
	LaterLine  bool          `help:"An integer as the last line on standard error puts the job off by that many seconds."`
	LockName   string        `placeholder:"NAME" help:"Named lock that a job must have to run; one that cannot have it waits at the server while the worker does others; not with servers of 2018 (default: none)."`
	LockCount  int16         `default:"1" placeholder:"N" help:"Jobs that may have the lock at a time, over all workers (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (workCmd) Help() string {
	return `Runs CMD once a job, with the job's name as the last argument and its workload on standard input. The environment has TREADLE_FUNC, TREADLE_NAME and TREADLE_TIMEOUT, the seconds that the job may take (0: no limit). Exit code 0 is done, any other is failed, and a failed job is tried again at once unless --retry-secs or --skip-fail says otherwise; after a failed job the worker rests for 0.1s to 10s. With --later-line an integer as the last line on standard error, and exit code 0, delays the job by that many seconds.

	treadle work log -- tee -a
	treadle work resize --data --thread 4 -- ./resize.sh
	treadle work fetch --timeout 60 --retry-secs 5m -- curl -fsSO --
	treadle work clean --no-name -- sh -c 'rm -rf -- "/srv/cache/$TREADLE_NAME"'
	treadle work charge --thread 8 --lock-name bank --lock-count 2 -- ./charge.sh
	treadle work build --stream -- make -C
	treadle work resize ./resize.sh --fast

The -- may be left out, as in the last line, where --fast is CMD's.

The client that submits a job chooses its name. A job with a name that begins with - fails, because CMD may take the name for an option, unless CMD ends with -- (as rm --, which then takes every name for a file's) or --no-name leaves it to TREADLE_NAME.

A command is killed, with what it has started, when its job's time-out is over: that of treadle submit --timeout, else the server's (treadle config get timeout). The server gives the job to another worker a second later (its --periodic-grace), and ignores a later result. --timeout N is another limit, and --timeout 0 none; the worker says so when a result has come too late.

With --lock-name a job runs only while it has the lock, which at most --lock-count jobs have at a time. The server keeps a job without the lock until the lock is free. All workers of a lock should name the same count.

With --stream treadle recv FUNC NAME prints the command's output while the job runs. A slow receiver makes the command wait, and the job's time-out goes on meanwhile. Processes that the command leaves running keep the stream open for 5s at most. With --work-data CMD chooses what is sent, a line each: WORKDATA X sends X, WORKDONE X makes X the result. Any other line is the result too, with a newline in front. Output after the result is ignored, and so is the byte after the word.

SIGTERM and SIGINT: no more jobs are taken, running commands finish; a second signal kills them. When the server goes away the worker reconnects; commands that are running then finish, but their jobs are given to others.`
}

// ownTimeout in place of a time means the job's own time-out.
const ownTimeout = -time.Second

// Validate is called by kong.
func (w *workCmd) Validate(ctx *kong.Context) (err error) {
	if w.Command, err = checkCommand(ctx, w.Command, "treadle work echo -- sh -c cat"); err != nil {
		return err
	}
	if w.Timeout != ownTimeout && w.Timeout < 0 {
		return fmt.Errorf("--timeout: %s is negative; -1s is the job's own time-out", setting.FormatDuration(w.Timeout))
	}
	if _, err := wholeSeconds("--retry-secs", w.RetryAfter, 1<<40); err != nil {
		return err
	}
	switch {
	case w.Thread < 1:
		return fmt.Errorf("--thread: %d is below 1", w.Thread)
	case w.Broadcast && w.Thread > 1:
		return errors.New("--broadcast with --thread above 1 would do every job several times")
	case w.Broadcast && (w.Stream || w.WorkData || w.LockName != ""):
		return errors.New("--broadcast with --stream, --work-data or --lock-name: no worker holds a broadcast job")
	case w.WorkData && w.Stream:
		return errors.New("--work-data with --stream: its lines say what is data and what is the result")
	case w.LockCount < 1:
		return fmt.Errorf("--lock-count: %d is below 1", w.LockCount)
	case w.LockCount > 1 && w.LockName == "":
		return errors.New("--lock-count without --lock-name")
	}
	if err := refuseEmpty("FUNC", w.Func); err != nil {
		return err
	}
	return checkNames(w.Func, w.LockName)
}

// Run works until a signal.
func (w *workCmd) Run(c *cli, con *console) error {
	if _, err := exec.LookPath(w.Command[0]); err != nil {
		return fmt.Errorf("cannot run the command: %w", err)
	}
	first, second, stop := signals()
	defer stop()
	o, err := c.options()
	if err != nil {
		return err
	}
	if w.Stream || w.WorkData || w.LockName != "" {
		if c.Framing == framing2018 {
			return badUsage("--stream, --work-data and --lock-name need the framing of today")
		}
		o.Framing = client.CRC
	}
	p := &workerPool{workCmd: w, con: con, host: c.host(), options: o, pause: firstPause, lines: newLines(con, w.Thread)}
	err = p.run(first, second)
	if err == nil && second.Err() != nil {
		return killed{}
	}
	return err
}

// serverLimits are the settings of a server that a worker needs.
type serverLimits struct {
	timeout      time.Duration // of jobs without their own time-out; 0: none
	sendsTimeout bool          // each assignment has its job's time-out
	maxResult    int           // bytes
}

// resultOverhead is the most that WORK_DONE has around a result, names included.
const resultOverhead = 1 << 10

// learn asks the server for its terms.
func (w *workerPool) learn(ctx context.Context, worker *client.Worker) (t serverLimits, err error) {
	t.maxResult = maxResult
	asks := worker.ConfigGet
	if !worker.UsesCRC() { // a worker of 2018 may not ask
		server, err := client.Dial(ctx, w.host, client.Options{})
		if err != nil {
			return t, err
		}
		defer server.Close()
		asks = server.ConfigGet
	}
	seconds, err := asks(ctx, "timeout")
	if err != nil {
		return t, err
	}
	t.timeout = time.Duration(seconds) * time.Second
	// A Treadle puts the time-out into each assignment and tells the largest request.
	most, err := asks(ctx, "max-frame")
	if err == nil && most > 0 {
		t.sendsTimeout = worker.UsesCRC()
		t.maxResult = min(maxResult, max(int(most)-resultOverhead, 1))
	}
	return t, err
}

// runLimit returns how long the command may run for a job, and the job's time-out at the server; 0: no limit.
func (w *workerPool) runLimit(t serverLimits, j *client.Job) (limit, jobTimeout time.Duration) {
	switch {
	case j.Timeout > 0:
		jobTimeout = time.Duration(j.Timeout) * time.Second
	case !t.sendsTimeout:
		jobTimeout = t.timeout
	}
	if w.Timeout == ownTimeout {
		return jobTimeout, jobTimeout
	}
	return w.Timeout, jobTimeout
}

// announce logs which function the worker serves, where, and how long a command may take.
func (w *workerPool) announce(t serverLimits) {
	var text string
	switch {
	case w.Timeout == ownTimeout && t.timeout > 0:
		text = fmt.Sprintf("a command may take %s, unless its job says otherwise, and is then killed", setting.FormatDuration(t.timeout))
	case w.Timeout == ownTimeout:
		text = "a command may take as long as its job says, if it does"
	case w.Timeout == 0:
		text = "a command may take as long as it likes"
	default:
		text = fmt.Sprintf("a command may take %s (--timeout), and is then killed", setting.FormatDuration(w.Timeout))
	}
	w.say("waiting for jobs of %q at %s; %s", w.Func, w.current.Address(), text)
	if w.Timeout != ownTimeout && t.timeout > 0 && (w.Timeout == 0 || w.Timeout > t.timeout) {
		w.say("a job that takes longer than the server's %s, or its own time-out, is handed out again meanwhile, and its result does not count: submit it with a longer --timeout, or treadle config set timeout", setting.FormatDuration(t.timeout))
	}
}
