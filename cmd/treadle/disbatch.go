package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	siteconfig "treadle/loop/disbatch/config"
	"treadle/loop/disbatch/node"
)

type disbatchCmd struct {
	Node disbatchNodeCmd `cmd:"" help:"Run an execution node: claim tasks and have them done."`
	Task disbatchTaskCmd `cmd:"" help:"Run one claimed task, as the original's task runner does."`
	Web  disbatchWebCmd  `cmd:"" help:"Run a command interface: REST and pages."`

	Plugins     disbatchPluginsCmd     `cmd:"" help:"List the plugins that queues may have."`
	Queues      disbatchQueuesCmd      `cmd:"" help:"Show the queues and how many tasks they have."`
	Status      disbatchQueuesCmd      `cmd:"" help:"The same as queues."`
	Nodes       disbatchNodesCmd       `cmd:"" help:"Show the execution nodes."`
	CreateQueue disbatchCreateQueueCmd `cmd:"" help:"Create a queue."`
	UpdateQueue disbatchUpdateQueueCmd `cmd:"" help:"Change a queue."`
	DeleteQueue disbatchDeleteQueueCmd `cmd:"" help:"Delete a queue, and not its tasks."`
	CreateTask  disbatchCreateTaskCmd  `cmd:"" help:"Create a task."`
	CreateTasks disbatchCreateTasksCmd `cmd:"" help:"Create many tasks."`
	Search      disbatchSearchCmd      `cmd:"" help:"Search tasks."`
}

// disbatchConfig reads a configuration. Its path becomes absolute, because runners are started with it.
func disbatchConfig(path string) (*siteconfig.File, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	c, err := siteconfig.Read(absolute)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// Help implements kong.HelpProvider.
func (disbatchCmd) Help() string {
	return `The database and the configuration are those of Disbatch 4; its execution node, task runner and command interface can be replaced one at a time.

	treadle disbatch node --config /etc/disbatch/config.json
	treadle disbatch task --config /etc/disbatch/config.json --task 571fac85ee63413233049fbd
	treadle disbatch web --config /etc/disbatch/config.json

The other commands talk to a command interface, this one or the original:

	treadle disbatch create-queue demo Disbatch::Plugin::Demo
	treadle disbatch update-queue demo threads 4
	treadle disbatch create-task demo commands a
	treadle disbatch status`
}

type disbatchNodeCmd struct {
	Config    string   `default:"/etc/disbatch/config.json" placeholder:"FILE" help:"The original's config.json (default: ${default})."`
	Node      string   `placeholder:"NAME" help:"Name of the node (default: the host's)."`
	HTTP      string   `name:"http" default:"off" placeholder:"HOST:PORT" help:"Address of /metrics and /healthz, or off (default: ${default})."`
	Pprof     string   `enum:"on,off" default:"off" help:"Whether Go's profiles are served there, too, under /debug/pprof: on or off (default: ${default})."`
	LogLevel  string   `enum:"debug,info,warn,error" default:"info" help:"Least level that is logged: debug, info, warn or error (default: ${default})."`
	LogFormat string   `enum:"text,json" default:"text" help:"Form of the log on standard error: text or json (default: ${default})."`
	AllowHost []string `sep:"none" placeholder:"NAME" help:"Host name that HTTP requests may be sent to, beside IP addresses, localhost, this host's own name and that of --http; repeatable (default: none)."`
}

// Help implements kong.HelpProvider.
func (disbatchNodeCmd) Help() string {
	return `Claims tasks of the queues whose plugins can run here, and has them done by a process of its own, treadle disbatch task --task -. That process goes on when the node ends, until what it runs is finished.

	treadle disbatch node
	treadle disbatch node --config jobs.json --node spare

SIGTERM and SIGINT: no more tasks are claimed, and those that have not begun are given back. Under systemd, set KillMode=process, so that running tasks survive a restart.`
}

// Run serves until a signal.
func (d *disbatchNodeCmd) Run(con *console) error {
	c, err := disbatchConfig(d.Config)
	if err != nil {
		return err
	}
	executor, err := disbatchExecutor(c)
	if err != nil {
		return err
	}
	o := node.Options{Config: c, Name: d.Node, Executor: executor, Log: newLog(con.err, levelOf(d.LogLevel), d.LogFormat)}
	o.AllowHosts = d.AllowHost
	if d.HTTP != "off" {
		o.HTTP, o.Profiles = d.HTTP, d.Pprof == "on"
	}
	defer ignoreHangups(o.Log)()
	n, err := node.New(o)
	if err != nil {
		return settingError(err)
	}
	first, second, stop := signals()
	defer stop()
	context.AfterFunc(second, func() { os.Exit(exitInterrupted) })
	return settingError(n.Run(first))
}

// settingError gives an error about a setting the exit code of a usage error.
func settingError(err error) error {
	var setting *siteconfig.SettingError
	if errors.As(err, &setting) {
		return usageError{err}
	}
	return err
}

// disbatchExecutor returns the command that runs a node's tasks: this program.
func disbatchExecutor(c *siteconfig.File) ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program's own file, which runs the tasks: %w", err)
	}
	return []string{program, "disbatch", "task", "--config", c.Path, "--task", disbatchAll}, nil
}

// disbatchAll in place of a task's id makes the task runner read assignments of a node.
const disbatchAll = "-"

type disbatchTaskCmd struct {
	Config  string `default:"/etc/disbatch/config.json" placeholder:"FILE" help:"The original's config.json (default: ${default})."`
	Task    string `required:"" placeholder:"ID" help:"Id of the task, 24 hexadecimal digits; - reads assignments of a node from standard input (default: none, it must be given)."`
	GFS     string `name:"gfs" placeholder:"V" help:"Whether output goes to GridFS: 0, 1 or auto; 1 without a value (default: what the configuration says)."`
	NoGFS   bool   `name:"nogfs" help:"The same as --gfs 0, as nodes of 2016 say it."`
	Plugin  string `placeholder:"NAME" help:"Plugin of the task where that of its queue is not known here; nodes of 2016 name it (default: that of the queue)."`
	Testing bool   `help:"Nothing: for nodes that run the original's tests."`
	Quiet   bool   `help:"Log errors only."`
}

// Help implements kong.HelpProvider.
func (disbatchTaskCmd) Help() string {
	return `It is called as the original's task runner is, by nodes of 2016 and 2018. A config.json can name it as its task_runner: a link to this program called task_runner, or this program itself.

	treadle disbatch task --config /etc/disbatch/config.json --task 571fac85ee63413233049fbd --gfs auto
	ln -s treadle /usr/bin/task_runner`
}

// Run runs the task, or all tasks of a node.
func (d *disbatchTaskCmd) Run(con *console) error {
	c, err := disbatchConfig(d.Config)
	if err != nil {
		return err
	}
	level := slog.LevelInfo
	if d.Quiet {
		level = slog.LevelError
	}
	log := newLog(con.err, level, "text")
	ctx, second, stop := signals()
	defer stop()
	context.AfterFunc(second, func() { os.Exit(exitInterrupted) })
	if d.Task == disbatchAll {
		return disbatchTasks(ctx, c, con, log)
	}
	o := node.TaskOptions{Task: d.Task, GFS: c.GFS, Plugin: d.Plugin}
	if d.GFS != "" {
		if err = o.GFS.Set(d.GFS); err != nil {
			return badUsage("--gfs: %w", err)
		}
	}
	if d.NoGFS {
		o.GFS = 0 // never
	}
	err = node.RunTask(ctx, c, o, log)
	if errors.Is(err, node.ErrTaskID) {
		return usageError{err}
	}
	return settingError(err)
}

func disbatchTasks(ctx context.Context, c *siteconfig.File, con *console, log *slog.Logger) error {
	err := node.RunTasks(ctx, c, con.in, con.out, log)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil // the node died while it sent a task, which stays claimed until the node starts again
	}
	return settingError(err)
}
