package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"treadle/loop/client"
)

type auditCmd struct {
	listFlags
	Limit int `default:"100" placeholder:"N" help:"Show so many changes at most, the newest first (default: ${default})."`
}

// Help is printed by treadle audit --help.
func (auditCmd) Help() string {
	return `The last 1000 changes through the API, by these commands and by programs: when, who, from where, what, of how many jobs, and why. The log has the same as lines "audit".

	treadle audit --limit 10
	treadle audit --json | jq -r 'select(.who == "ana") | .request + " " + .target'`
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
		lines := [][]string{{"AT", "WHO", "FROM", "REQUEST", "TARGET", "COUNT", "WHY"}}
		for i := range all {
			r := &all[i]
			lines = append(lines, []string{
				time.UnixMilli(r.At).Format(time.DateTime), printed(r.Who), printed(r.From), printable(r.Request), printed(r.Target), fmt.Sprint(r.Count), printed(r.Why),
			})
		}
		return align(w, lines, 7)
	})
}
