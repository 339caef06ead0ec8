package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"treadle/loop/client"
)

// adminHelp ends the help of commands that use the API.
const adminHelp = "These commands use admin.sock in ./treadle-data; -H or TREADLE_ADMIN names another address of --admin, or http://host:port."

// connCmd are the commands for the connections of a server.
type connCmd struct {
	List  connListCmd  `cmd:"" help:"Show the open connections."`
	Close connCloseCmd `cmd:"" help:"Close connections: the jobs of their workers are released."`
	Quiet connQuietCmd `cmd:"" help:"Ask workers of Faktory's protocol to take no more jobs, or to end."`
}

// Help implements kong.HelpProvider.
func (connCmd) Help() string {
	return `A connection is a client or a worker of any protocol. Workers over HTTP have none between their requests: treadle job list state:running shows what they hold.

	treadle conn list
	treadle conn list --protocol gloom --watch
	treadle conn close 1z141z3
	treadle conn quiet 1z141z3 --end

` + adminHelp
}

type connListCmd struct {
	tableFlags
	Protocol string `placeholder:"NAME" help:"Only connections of a protocol, as periodic (default: all)."`
	Limit    int    `default:"1000" placeholder:"N" help:"Show so many connections at most (default: ${default})."`
}

// Run prints the connections.
func (l *connListCmd) Run(c *cli, con *console) error {
	if l.Limit < 1 {
		return badUsage("--limit is at least 1")
	}
	return c.list(con, &l.listFlags, func(ctx context.Context, a *client.Admin, w io.Writer) error {
		all, more, err := readPages(l.Limit, func(after string, n int) ([]client.Connection, string, error) {
			p, err := a.Connections(ctx, l.Protocol, after, n)
			return p.Connections, p.Next, err
		})
		if err != nil {
			return err
		}
		if more {
			con.say("there may be more than %d connections: --limit shows more", l.Limit)
		}
		if l.JSON {
			return writeLines(w, all)
		}
		var rows [][]string
		for i := range all {
			rows = append(rows, connLine(&all[i], time.Now()))
		}
		return l.table(w, "ID PROTOCOL ROLE REMOTE >OPEN >IDLE +>IN +>OUT >UNSENT >ASKS >HOLDS ~QUEUES", rows)
	})
}

// connLine returns the line of a connection in the table.
func connLine(c *client.Connection, now time.Time) []string {
	queues := "-"
	if len(c.Queues) > 0 {
		queues = printable(strings.Join(c.Queues, " "))
	}
	if c.MoreQueues > 0 {
		queues += fmt.Sprintf(" and %d more", c.MoreQueues)
	}
	line := []string{c.ID, c.Protocol, c.Role, printable(c.Remote), age(now.Sub(time.UnixMilli(c.Since))), age(time.Duration(c.Idle) * time.Millisecond)}
	for _, n := range []uint64{c.Received, c.Sent, uint64(c.Unsent), uint64(c.Waiting), uint64(c.Running)} {
		line = append(line, strconv.FormatUint(n, 10))
	}
	return append(line, queues)
}

// age returns a time in whole seconds.
func age(d time.Duration) string { return max(d, 0).Truncate(time.Second).String() }

type connCloseCmd struct {
	ID []string `arg:"" help:"Ids of connections, as treadle conn list shows them."`
}

// Run closes connections, all that it can.
func (c *connCloseCmd) Run(all *cli, con *console) error {
	return all.onConnections(con, c.ID, "is closed", (*client.Admin).CloseConnection)
}

type connQuietCmd struct {
	ID  []string `arg:"" help:"Ids of connections, as treadle conn list shows them. One of a worker process is enough."`
	End bool     `help:"Ask the workers to end, too."`
}

// Run asks workers to stop, all that it can.
func (c *connQuietCmd) Run(all *cli, con *console) error {
	return all.onConnections(con, c.ID, "is asked", func(a *client.Admin, ctx context.Context, id string) error {
		return a.QuietConnection(ctx, id, c.End)
	})
}

// onConnections calls change for each id, and says what was done. It goes on after an error.
func (c *cli) onConnections(con *console, ids []string, done string, change func(*client.Admin, context.Context, string) error) error {
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		var failed error
		for _, id := range ids {
			if err := change(a, ctx, id); err != nil {
				if failed != nil {
					con.fail(failed)
				}
				failed = fmt.Errorf("connection %s: %w", printable(id), err)
				continue
			}
			if _, err := fmt.Fprintf(con.out, "%s %s\n", id, done); err != nil {
				return err
			}
		}
		return failed
	})
}
