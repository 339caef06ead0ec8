package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/signal"
	"syscall"
	"time"

	"treadle/loop/client"
	"treadle/loop/journal"
	"treadle/loop/setting"
)

// replyTimeout bounds every request except waiting for a job and moving a dump: a working server answers in
// milliseconds.
const replyTimeout = 30 * time.Second

// framing2018 is the value of --framing for servers of 2018.
const framing2018 = "2018"

func (c *cli) options() (client.Options, error) {
	switch {
	case c.CRC && c.Framing == framing2018:
		return client.Options{}, badUsage("--crc with --framing 2018")
	case c.CRC || c.Framing == "crc":
		return client.Options{Framing: client.CRC}, nil
	case c.Framing == framing2018:
		return client.Options{}, nil
	}
	return client.Options{PreferCRC: true}, nil
}

// with calls f with a connection to the server. The context ends with a signal and, unless limit is 0, after limit.
func (c *cli) with(limit time.Duration, f func(context.Context, *client.Client) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	o, err := c.options()
	if err != nil {
		return err
	}
	server, err := client.Dial(ctx, c.host(), o)
	if err != nil {
		return err
	}
	defer server.Close()
	if err = f(ctx, server); errors.As(err, new(*client.RefusedError)) {
		return err
	}
	return server.Explain(ctx, err)
}

// largeJob is the size from which a command asks for the server's --max-frame first: the server hangs up on a job that
// is larger.
const largeJob = 1 << 20

// fits refuses a job that is larger than the server's --max-frame, if the server tells that.
func fits(ctx context.Context, server *client.Client, j *client.Job) error {
	if len(j.Workload) < largeJob {
		return nil
	}
	most, err := server.MaxFrame(ctx)
	if size := len(j.Func) + len(j.Name) + len(j.Workload) + jobOverhead; err == nil && most > 0 && int64(size) > most {
		err = fmt.Errorf("the workload has %v, and the server at %s takes requests of up to %v: raise its --max-frame, or send the name of a file", journal.Size(len(j.Workload)), server.Address(), journal.Size(most))
	}
	return err
}

// perhapsTooLarge adds the probable reason when a server has hung up on a large job.
func perhapsTooLarge(err error, j *client.Job) error {
	if errors.Is(err, client.ErrClosed) && len(j.Workload) >= largeJob {
		return fmt.Errorf("%w, perhaps because it takes no requests of %v", err, journal.Size(len(j.Workload)))
	}
	return err
}

// jobOverhead is the size of a request without names and workload, rounded up.
const jobOverhead = 64

// jobArgs are the arguments that submit and run share.
type jobArgs struct {
	Func     string        `arg:"" help:"Function: which workers do the job (at most 255 bytes)."`
	Name     string        `arg:"" help:"Name of the job, unique within the function (at most 255 bytes)."`
	Workload string        `short:"w" placeholder:"DATA" help:"Workload: the text itself, @FILE for a file's content or @- for standard input (default: empty)."`
	Timeout  time.Duration `default:"0s" placeholder:"TIME" help:"Time a worker may take before the job is given to another; 0s: the server's setting, see treadle config --help (default: ${default})."`
}

// job returns the job of the arguments. It reads the workload from standard input if that is -.
func (j *jobArgs) job(con *console) (*client.Job, error) {
	timeout, err := wholeSeconds("--timeout", j.Timeout, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	if err := checkNames(j.Func, j.Name); err != nil {
		return nil, err
	}
	if err := refuseEmpty("FUNC", j.Func, "NAME", j.Name); err != nil {
		return nil, err
	}
	data, err := readWorkload(j.Workload, con.in)
	return &client.Job{Func: j.Func, Name: j.Name, Workload: data, Timeout: int32(timeout)}, err
}

// refuseEmpty refuses empty arguments. The protocols allow empty names, but they nearly always come from an unset
// variable of a script. It takes pairs of argument name and value.
func refuseEmpty(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			return badUsage("%s is empty", pairs[i])
		}
	}
	return nil
}

func checkNames(names ...string) error {
	for _, name := range names {
		if len(name) > 255 {
			return badUsage("%.20q... has %d bytes; names have at most 255", name, len(name))
		}
	}
	return nil
}

type submitCmd struct {
	jobArgs
	Later time.Duration `default:"0s" placeholder:"TIME" help:"Time from now when the job is due (default: ${default})."`
	JSON  bool          `name:"json" help:"Print what was submitted as JSON."`
}

// Help implements kong.HelpProvider.
func (submitCmd) Help() string {
	return `Returns when the server has the job. FUNC and NAME identify it: a pending job of the same name is replaced, a running job is left alone.

	treadle submit mail alice@example.org -w 'Hello Alice'
	treadle submit resize photo-17 -w @photo.jpg
	date | treadle submit log now -w @-
	treadle submit report weekly --later 1h --timeout 60

A job that runs for longer than --timeout goes to another worker, and the first worker's result is ignored. treadle work kills its command at the time-out. Without --timeout the server's setting counts (treadle config get timeout, 10m by default): give more to jobs that may take longer.`
}

// Run submits the job.
func (s *submitCmd) Run(c *cli, con *console) error {
	later, err := wholeSeconds("--later", s.Later, math.MaxInt64)
	if err != nil {
		return err
	}
	job, err := s.job(con)
	if err != nil {
		return err
	}
	if later > 0 {
		job.SchedAt = time.Now().Unix() + later
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		if err := fits(ctx, server, job); err != nil {
			return err
		}
		if err := server.Submit(ctx, job); err != nil || !s.JSON {
			return perhapsTooLarge(err, job)
		}
		return writeLines(con.out, []client.SubmittedJob{job.Submitted()})
	})
}

type runCmd struct {
	jobArgs
	Wait time.Duration `default:"0s" placeholder:"TIME" help:"Time to wait for the result; 0s: as long as it takes (default: ${default})."`
	Data bool          `help:"Print what the job's worker publishes while it runs, a line Data: X each, and the result as Result: X; not with servers of 2018."`
}

// Help implements kong.HelpProvider.
func (runCmd) Help() string {
	return `Prints the result's bytes as the worker returned them. The job goes on when this command is interrupted.

	treadle run echo first-job -w hello
	treadle run resize photo-17 -w @photo.jpg --wait 30 > small.jpg

A function without workers, a job that fails and a job that is removed are errors with exit code 1. With --framing 2018, and with a server of 2018, the command waits for a worker and through every retry; after two seconds it says when no worker serves FUNC. A server other than Treadle reports these ends as a result "failed", "removed" or "expired".

With --data it prints lines as the original's periodic run: "Data: X" for each piece that the worker publishes, and "Result: X".`
}

// Run waits for the result.
func (r *runCmd) Run(c *cli, con *console) error {
	job, err := r.job(con)
	if err != nil {
		return err
	}
	if r.Wait < 0 {
		return badUsage("--wait: %s is negative", setting.FormatDuration(r.Wait))
	}
	return c.with(r.Wait, func(ctx context.Context, server *client.Client) error {
		if err := fits(ctx, server, job); err != nil {
			return err
		}
		idle := time.AfterFunc(patienceOfUsers, func() { r.sayIdle(server, con) })
		result, err := r.run(ctx, server, job, con)
		idle.Stop()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return r.late(server, err)
		case errors.Is(err, client.ErrNoWorker):
			return fmt.Errorf("%w, and the job was not submitted: start one with treadle work %s -- CMD", err, printable(r.Func))
		case errors.Is(err, client.ErrFailed):
			return fmt.Errorf("%w, took longer than its time-out, or a policy of its queue ended it: treadle job show %q %q says what becomes of it", err, printable(r.Func), printable(r.Name))
		case err != nil:
			return perhapsTooLarge(err, job)
		}
		if r.Data {
			result = fmt.Appendf(nil, "Result: %s\n", result)
		}
		_, err = con.out.Write(result)
		return err
	})
}

// closePatience is how long a job's data may still come after its result.
const closePatience = 5 * time.Second

// run runs the job and, with --data, prints the data that its worker publishes meanwhile.
func (r *runCmd) run(ctx context.Context, server *client.Client, job *client.Job, con *console) ([]byte, error) {
	if !r.Data {
		return server.Run(ctx, job)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	begun, over := make(chan struct{}), make(chan error, 1)
	go func() {
		over <- server.Receive(ctx, r.Func, r.Name, func() { close(begun) }, dataLines{con.out})
	}()
	select {
	case <-begun:
	case err := <-over:
		return nil, err
	}
	result, err := server.Run(ctx, job)
	if err != nil {
		return nil, err
	}
	select {
	case err = <-over:
	case <-time.After(closePatience):
		con.say("the data of %q %q goes on %s after its result: it is not waited for any longer", r.Func, r.Name, setting.FormatDuration(closePatience))
	}
	return result, err
}

// dataLines writes each piece as a line, as the original's command line does.
type dataLines struct{ out io.Writer }

// Write implements io.Writer.
func (d dataLines) Write(p []byte) (int, error) {
	_, err := fmt.Fprintf(d.out, "Data: %s\n", p)
	return len(p), err
}

// patienceOfUsers is how long a command may wait without a line on standard error.
const patienceOfUsers = 2 * time.Second

// queue returns the function's row of the status while another request is still waiting.
func (r *runCmd) queue(server *client.Client) (client.Queue, error) {
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	rows, err := server.Status(ctx)
	for _, row := range rows {
		if row.Func == r.Func {
			return row, nil
		}
	}
	return client.Queue{}, err
}

// statusTimeout bounds a status request beside another request.
const statusTimeout = 5 * time.Second

// sayIdle warns that no worker serves the function, if none does.
func (r *runCmd) sayIdle(server *client.Client, con *console) {
	if q, err := r.queue(server); err == nil && q.Workers == 0 {
		con.say("no worker serves %q: the job is queued until one does (treadle work %s -- CMD)", r.Func, printable(r.Func))
	}
}

// late returns the error for a result that has not come in time: what becomes of the job, and what to do.
func (r *runCmd) late(server *client.Client, err error) error {
	q, failed := r.queue(server)
	switch {
	case failed != nil:
		return err
	case q.Workers == 0:
		return fmt.Errorf("no result of %q %q in %s: no worker serves %q; the job stays queued (treadle work %s -- CMD does it, treadle remove %s %s takes it back)",
			r.Func, r.Name, setting.FormatDuration(r.Wait), r.Func, printable(r.Func), printable(r.Func), printable(r.Name))
	}
	return fmt.Errorf("no result of %q %q in %s: the job goes on without this command; %q has %s, %d running, and %s",
		r.Func, r.Name, setting.FormatDuration(r.Wait), r.Func, counted(q.Jobs, "job"), q.Running, counted(q.Workers, "worker"))
}

type recvCmd struct {
	Func string        `arg:"" help:"Function of the job."`
	Name string        `arg:"" help:"Name of the job."`
	Wait time.Duration `default:"0s" placeholder:"TIME" help:"Time after which to give up; 0s: none (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (recvCmd) Help() string {
	return `Prints what the job's worker publishes from now on, until the job is over; earlier data is not kept. The job need not exist yet, but a worker must serve FUNC: otherwise the exit code is 1. Servers of 2018 do not have the request.

	treadle work build --stream -- make -C
	treadle recv build ./parser & treadle submit build ./parser; wait
	treadle recv build ./parser --wait 60 > build.log`
}

// Run prints the data as it comes. Only the CRC framing has the request.
func (r *recvCmd) Run(c *cli, con *console) error {
	if err := checkNames(r.Func, r.Name); err != nil {
		return err
	}
	if r.Wait < 0 {
		return badUsage("--wait: %s is negative", setting.FormatDuration(r.Wait))
	}
	if c.Framing == framing2018 {
		return badUsage("treadle recv needs the framing of today")
	}
	c.CRC = true
	return c.with(r.Wait, func(ctx context.Context, server *client.Client) error {
		err := server.Recv(ctx, r.Func, r.Name, con.out)
		if errors.Is(err, context.DeadlineExceeded) { // --wait is over; the server is there
			return coded{error: err, code: exitFailure}
		}
		return err
	})
}

type removeCmd struct {
	Func string `arg:"" help:"Function of the job."`
	Name string `arg:"" help:"Name of the job."`
}

// Help implements kong.HelpProvider.
func (removeCmd) Help() string {
	return `A running job is removed too: its worker's report is ignored. A job that does not exist is an error with exit code 4; only a Treadle reports that.

	treadle remove report weekly`
}

// Run removes the job.
func (r *removeCmd) Run(c *cli) error {
	if err := checkNames(r.Func, r.Name); err != nil {
		return err
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		err := server.Remove(ctx, r.Func, r.Name)
		if err != nil {
			return err
		}
		if nothing, err := server.RemovedNothing(ctx); err != nil || nothing {
			return cmp.Or(err, noSuch("no job %q of function %q at %s", r.Name, r.Func, server.Address()))
		}
		return nil
	})
}

type dropCmd struct {
	Func string `arg:"" help:"Function to drop."`
}

// Help implements kong.HelpProvider.
func (dropCmd) Help() string {
	return `A function with workers or running jobs is not dropped: exit code 1. A function that does not exist is exit code 4.

	treadle drop report`
}

// Run drops the function and reads the status: the protocol's reply does not say whether it was dropped.
func (d *dropCmd) Run(c *cli) error {
	if err := checkNames(d.Func); err != nil {
		return err
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		if err := server.Drop(ctx, d.Func); err != nil {
			return err
		}
		nothing, err := server.RemovedNothing(ctx)
		if err != nil {
			return err
		}
		rows, err := server.Status(ctx)
		for _, row := range rows {
			if row.Func == d.Func {
				return fmt.Errorf("cannot drop %q at %s: %s", d.Func, server.Address(), whyKept(row))
			}
		}
		if err == nil && nothing {
			err = noSuch("no function %q at %s", d.Func, server.Address())
		}
		return err
	})
}

// whyKept returns why a function still exists after the request to drop it.
func whyKept(row client.Queue) string {
	switch {
	case row.Workers > 0:
		return fmt.Sprintf("workers serve it (%d)", row.Workers)
	case row.Running > 0:
		return fmt.Sprintf("its jobs are running (%d)", row.Running)
	}
	return "it is used by another protocol, or jobs have come in since"
}

type pingCmd struct{}

// Help implements kong.HelpProvider.
func (pingCmd) Help() string {
	return `Prints the time it took; exit code 3 when there is no answer within 3s.

	treadle ping
	treadle -H unix:///tmp/periodic.sock ping`
}

// pingTimeout bounds connecting, greeting and PING: a program that accepts connections and stays silent is
// no Periodic server.
const pingTimeout = 3 * time.Second

// Run prints the time it took.
func (*pingCmd) Run(c *cli, con *console) error {
	return c.with(pingTimeout, func(ctx context.Context, server *client.Client) error {
		start := time.Now()
		if err := server.Ping(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintf(con.out, "%s answered in %v\n", server.Address(), time.Since(start).Round(time.Microsecond))
		return err
	})
}

type shutdownCmd struct{}

// Help implements kong.HelpProvider.
func (shutdownCmd) Help() string {
	return `Returns when the server has taken the request; it then stops as by SIGTERM. A server with --periodic-shutdown off refuses: exit code 5.

	treadle shutdown`
}

// Run asks the server to stop.
func (*shutdownCmd) Run(c *cli) error {
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		err := server.Shutdown(ctx)
		if errors.Is(err, client.ErrRefused) {
			return coded{error: fmt.Errorf("%v: --periodic-shutdown on allows it", err), code: exitForbidden}
		}
		return err
	})
}
