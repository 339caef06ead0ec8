package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"treadle/loop/client"
)

type auditCmd struct {
	tableFlags
	Limit int `default:"100" placeholder:"N" help:"Show so many changes at most, the newest first (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (auditCmd) Help() string {
	return `The last 1000 changes through the API, by these commands and by programs: when, who, from where, what, of how many jobs, and why. The log has the same as lines "audit". USER is the user of the process that asked on admin.sock, as the system knows it, BY is who the request says; of a request over TCP nobody knows the user. AGENT, of -o wide, is the program that asked, as it names itself.

	treadle audit --limit 10
	treadle audit --json | jq -r 'select(.by == "ana") | .request + " " + .target'`
}

// Run prints the changes.
func (l *auditCmd) Run(c *cli, con *console) error {
	if l.Limit < 1 {
		return badUsage("--limit is at least 1")
	}
	return c.list(con, &l.listFlags, func(ctx context.Context, a *client.Admin, w io.Writer) error {
		all, _, err := readPages(l.Limit, func(after string, n int) ([]client.AuditRecord, string, error) {
			p, err := a.Audit(ctx, after, n)
			return p.Records, p.Next, err
		})
		switch {
		case err != nil:
			return err
		case l.JSON:
			return writeLines(w, all)
		}
		var rows [][]string
		for i := range all {
			r := &all[i]
			rows = append(rows, []string{
				number(int64(r.Number)), time.UnixMilli(r.At).Format(time.DateTime), printed(r.User), printed(r.By), printed(r.From), printed(r.Agent),
				printable(r.Request), printed(r.Target), fmt.Sprint(r.Count), printed(r.Why),
			})
		}
		return l.table(w, "+>NUMBER AT USER BY FROM +AGENT REQUEST ~TARGET >COUNT ~WHY", rows)
	})
}
