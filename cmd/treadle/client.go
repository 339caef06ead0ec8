package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/signal"
	"syscall"
	"time"

	"treadle/loop/client"
)

const (
	// defaultHost is the server's own default, which needs no file to exist.
	defaultHost = "tcp://127.0.0.1:5000"
	// replyTimeout bounds every request but those that wait for a job or move a
	// dump: a server that is alive answers in milliseconds.
	replyTimeout = 30 * time.Second
)

func (c *cli) host() string {
	if c.Host == "" {
		return defaultHost
	}
	return c.Host
}

func (c *cli) options() client.Options {
	if c.CRC {
		return client.Options{Framing: client.CRC}
	}
	return client.Options{}
}

// with calls f with a connection to the server and a context that ends with a
// signal or, unless it is 0, after a time.
func (c *cli) with(limit time.Duration, f func(context.Context, *client.Client) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	server, err := client.Dial(ctx, c.host(), c.options())
	if err != nil {
		return err
	}
	defer server.Close()
	return f(ctx, server)
}

// jobArgs are the arguments that submit and run share.
type jobArgs struct {
	Func     string `arg:"" help:"Function: which workers do the job (at most 255 bytes)."`
	Name     string `arg:"" help:"Name of the job, unique within the function (at most 255 bytes)."`
	Workload string `short:"w" placeholder:"DATA" help:"Workload: the text itself, @FILE for a file's content or @- for standard input (default: empty)."`
	Timeout  int32  `default:"0" placeholder:"SECONDS" help:"Seconds a worker may take before the job is given to another; 0: the server's setting, see treadle config --help (default: ${default})."`
}

func (j *jobArgs) job(con *console) (*client.Job, error) {
	if j.Timeout < 0 {
		return nil, badUsage("--timeout: %d is negative", j.Timeout)
	}
	if err := checkNames(j.Func, j.Name); err != nil {
		return nil, err
	}
	data, err := readWorkload(j.Workload, con.in)
	return &client.Job{Func: j.Func, Name: j.Name, Workload: data, Timeout: j.Timeout}, err
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
	Later int64 `default:"0" placeholder:"SECONDS" help:"Seconds from now when the job is due (default: ${default})."`
}

// Run submits.
func (s *submitCmd) Run(c *cli, con *console) error {
	if s.Later < 0 {
		return badUsage("--later: %d is negative", s.Later)
	}
	job, err := s.job(con)
	if err != nil {
		return err
	}
	if s.Later > 0 {
		now := time.Now().Unix()
		if s.Later > math.MaxInt64-now {
			return badUsage("--later: %d is beyond what the protocol's clock can say", s.Later)
		}
		job.SchedAt = now + s.Later
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		return server.Submit(ctx, job)
	})
}

type runCmd struct {
	jobArgs
	Wait uint32 `default:"0" placeholder:"SECONDS" help:"Seconds to wait for the result; 0: as long as it takes (default: ${default})."`
}

// Run waits for the result.
func (r *runCmd) Run(c *cli, con *console) error {
	job, err := r.job(con)
	if err != nil {
		return err
	}
	return c.with(time.Duration(r.Wait)*time.Second, func(ctx context.Context, server *client.Client) error {
		result, err := server.Run(ctx, job)
		if err != nil {
			return err
		}
		_, err = con.out.Write(result)
		return err
	})
}

type recvCmd struct {
	Func string `arg:"" help:"Function of the job."`
	Name string `arg:"" help:"Name of the job."`
	Wait uint32 `default:"0" placeholder:"SECONDS" help:"Seconds after which to give up; 0: none (default: ${default})."`
}

// Run writes what comes as it comes. Only the CRC framing can.
func (r *recvCmd) Run(c *cli, con *console) error {
	if err := checkNames(r.Func, r.Name); err != nil {
		return err
	}
	c.CRC = true
	return c.with(time.Duration(r.Wait)*time.Second, func(ctx context.Context, server *client.Client) error {
		return server.Recv(ctx, r.Func, r.Name, con.out)
	})
}

type removeCmd struct {
	Func string `arg:"" help:"Function of the job."`
	Name string `arg:"" help:"Name of the job."`
}

// Run removes.
func (r *removeCmd) Run(c *cli) error {
	if err := checkNames(r.Func, r.Name); err != nil {
		return err
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		return server.Remove(ctx, r.Func, r.Name)
	})
}

type dropCmd struct {
	Func string `arg:"" help:"Function to drop."`
}

// Run drops, and looks whether that happened, which the protocol does not say.
func (d *dropCmd) Run(c *cli) error {
	if err := checkNames(d.Func); err != nil {
		return err
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		if err := server.Drop(ctx, d.Func); err != nil {
			return err
		}
		rows, err := server.Status(ctx)
		for _, row := range rows {
			if row.Func == d.Func {
				return fmt.Errorf("cannot drop %q at %s: %s", d.Func, server.Address(), whyKept(row))
			}
		}
		return err
	})
}

// whyKept says why a function is there after it was dropped.
func whyKept(row client.Queue) string {
	switch {
	case row.Workers > 0:
		return fmt.Sprintf("workers serve it (%d)", row.Workers)
	case row.Running > 0:
		return fmt.Sprintf("its jobs are running (%d)", row.Running)
	}
	return "it is used by another protocol, or jobs have come in since"
}

type configCmd struct {
	Get configGetCmd `cmd:"" help:"Print a setting."`
	Set configSetCmd `cmd:"" help:"Change a setting."`
}

type configGetCmd struct {
	Key string `arg:"" help:"Name of the setting, as timeout."`
}

// Run prints.
func (g *configGetCmd) Run(c *cli, con *console) error {
	if err := checkNames(g.Key); err != nil {
		return err
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		value, err := server.ConfigGet(ctx, g.Key)
		if err == nil {
			_, err = fmt.Fprintln(con.out, value)
		}
		return err
	})
}

type configSetCmd struct {
	Key   string `arg:"" help:"Name of the setting, as timeout."`
	Value uint32 `arg:"" help:"New value, in the unit of the setting."`
}

// Run changes, and looks whether that happened, which the protocol does not say.
func (s *configSetCmd) Run(c *cli) error {
	if err := checkNames(s.Key); err != nil {
		return err
	}
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		if err := server.ConfigSet(ctx, s.Key, s.Value); err != nil {
			return err
		}
		value, err := server.ConfigGet(ctx, s.Key)
		if err == nil && value != s.Value {
			err = fmt.Errorf("the server at %s does not know the setting %q", server.Address(), s.Key)
		}
		return err
	})
}

type pingCmd struct{}

// Run prints the time it took.
func (*pingCmd) Run(c *cli, con *console) error {
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		start := time.Now()
		if err := server.Ping(ctx); err != nil {
			return err
		}
		_, err := fmt.Fprintf(con.out, "%s answered in %v\n", server.Address(), time.Since(start).Round(time.Microsecond))
		return err
	})
}

type shutdownCmd struct{}

// Run asks the server to stop.
func (*shutdownCmd) Run(c *cli) error {
	return c.with(replyTimeout, func(ctx context.Context, server *client.Client) error {
		err := server.Shutdown(ctx)
		if errors.Is(err, client.ErrRefused) {
			return fmt.Errorf("%w: --periodic-shutdown on allows it", err)
		}
		return err
	})
}
