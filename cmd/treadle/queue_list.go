package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"treadle/loop/client"
)

// maxPage is the most entries that the server puts in one answer.
const maxPage = 1000

type queueListCmd struct {
	tableFlags
	Prefix string `placeholder:"TEXT" help:"Only queues with names that begin with it (default: all)."`
	Limit  int    `default:"1000" placeholder:"N" help:"Show so many queues at most, the first by name (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (queueListCmd) Help() string {
	return `A line for each queue of all protocols, with its workers and the number of its jobs in each state. PAUSED says what a pause stops; -o wide and treadle queue show say who has paused it, and why.

	treadle queue list --prefix mail.
	treadle queue list --json | jq -r 'select(.failed > 0) | .queue'`
}

// Run prints the queues.
func (q *queueListCmd) Run(c *cli, con *console) error {
	if q.Limit < 1 {
		return badUsage("--limit is at least 1")
	}
	return c.list(con, &q.listFlags, func(ctx context.Context, a *client.Admin, w io.Writer) error {
		all, more, err := readPages(q.Limit, func(after string, n int) ([]client.QueueState, string, error) {
			p, err := a.Queues(ctx, q.Prefix, after, n)
			return p.Queues, p.Next, err
		})
		if err != nil {
			return err
		}
		if more {
			con.say("there are more than %d queues: --limit shows more, --prefix others", q.Limit)
		}
		if q.JSON {
			return writeLines(w, all)
		}
		var rows [][]string
		for i := range all {
			row := []string{printable(all[i].Queue + string(all[i].QueueBytes))}
			for _, n := range counts(&all[i]) {
				row = append(row, strconv.Itoa(n))
			}
			rows = append(rows, append(row, dash(all[i].Paused), printed(all[i].PausedBy), printed(all[i].PausedWhy)))
		}
		return q.table(w, "QUEUE >WORKERS >READY >DELAYED >RUNNING >LOCKED >WAITING >FAILED >DONE PAUSED +PAUSED-BY +WHY", rows)
	})
}

// readPages reads pages until it has limit entries, or all. more reports whether there are others.
func readPages[Entry any](limit int, page func(after string, n int) (entries []Entry, next string, err error)) (all []Entry, more bool, err error) {
	for after := ""; len(all) < limit; {
		entries, next, err := page(after, min(limit-len(all), maxPage))
		if err != nil {
			return nil, false, err
		}
		all = append(all, entries...)
		if after = next; after == "" {
			return all, false, nil
		}
	}
	return all, true, nil
}

// stateNames are the names of counts.
var stateNames = []string{"workers", "ready", "delayed", "running", "locked", "waiting", "failed", "done"}

// counts returns the numbers of a queue.
func counts(q *client.QueueState) []int {
	return []int{q.Workers, q.Ready, q.Delayed, q.Running, q.Locked, q.Waiting, q.Failed, q.Done}
}

// dash returns a text, or a dash for none.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

type queueShowCmd struct {
	Queue string `arg:"" help:"Name of the queue: of the function, type or plugin."`
	JSON  bool   `name:"json" help:"Print JSON, an object on one line."`
}

// queueShown is a queue and its policy as JSON has them.
type queueShown struct {
	client.QueueState
	Policy []client.PolicyValue `json:"policy"`
}

// Run prints a queue and the values of its policy. A policy may be there before its queue.
func (q *queueShowCmd) Run(c *cli, con *console) error {
	return c.withAdmin(func(ctx context.Context, a *client.Admin) error {
		t, err := a.Policy(ctx, q.Queue)
		if err != nil {
			return err
		}
		state, err := a.Queue(ctx, q.Queue)
		if code, _ := exitOf(err); err != nil && (code != exitNotFound || len(t.Values) == 0) {
			return err
		}
		if err != nil {
			state.Queue = q.Queue
		}
		if q.JSON {
			return writeLines(con.out, []queueShown{{state, t.Values}})
		}
		var lines [][]string
		for i, n := range counts(&state) {
			lines = append(lines, []string{stateNames[i], strconv.Itoa(n)})
		}
		if state.Paused != "" {
			lines = append(lines, []string{"paused", pauseOf(&state)})
		}
		if err := align(con.out, lines, 2); err != nil {
			return err
		}
		if len(t.Values) == 0 {
			_, err := fmt.Fprintf(con.out, "no rule is for %s\n", printable(q.Queue))
			return err
		}
		lines = [][]string{{"KEY", "VALUE", "SOURCE", "RULE"}}
		for _, v := range t.Values {
			lines = append(lines, []string{v.Key, printable(v.Value), v.Source, printable(v.Pattern)})
		}
		_, err = io.WriteString(con.out, "\n")
		return errors.Join(err, align(con.out, lines, 4))
	})
}

// pauseOf says what a pause stops, who has paused the queue, and why.
func pauseOf(q *client.QueueState) string {
	text := q.Paused
	if text == "no" { // what is known is who has paused the others of a pattern
		return text
	}
	if q.PausedBy != "" {
		text += " by " + printable(q.PausedBy)
	}
	if q.PausedWhy != "" {
		text += ": " + printable(q.PausedWhy)
	}
	return strings.TrimSpace(text)
}
