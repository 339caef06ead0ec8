package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"treadle/loop/client"
)

type importFaktoryCmd struct {
	From           string `arg:"" help:"Address of the Faktory: host, host:port or tcp://host:port."`
	To             string `default:"127.0.0.1" placeholder:"ADDR" help:"Address of this server's Faktory protocol, see treadle serve --faktory (default: ${default}, port 7419)."`
	PasswordFile   string `placeholder:"FILE" help:"File with the password of the Faktory (default: none)."`
	ToPasswordFile string `placeholder:"FILE" help:"File with the password of this server (default: none)."`
	State          string `default:"treadle-import-faktory.state" placeholder:"FILE" help:"File that tells a later call how far this one came (default: ${default}). A complete move removes it."`
	As             string `enum:",retries,dead" default:"" placeholder:"SET" help:"The set that the jobs in the queues came from, retries or dead, after a move that was broken off and whose --state is lost (default: as --state says)."`
	Move           bool   `help:"Move the jobs. Without it the command shows what it would move, and changes nothing."`
	JSON           bool   `name:"json" help:"Print JSON."`
}

// Help implements kong.HelpProvider.
func (importFaktoryCmd) Help() string {
	return `Without --move the command counts the jobs of each queue and set and changes nothing. With --move it fetches each job, pushes it here, and acknowledges it there when it is on disk here. Scheduled jobs keep their time, failed jobs their failure and the time of their retry, dead jobs are dead here.

Stop the workers and producers of the Faktory first: Faktory gives scheduled, failed and dead jobs only when they are requeued, and a worker would take them then. The command refuses to move anything while a worker is connected or has a job. An interrupt ends it after the jobs at hand; it can be called again, from the same directory, also after it was killed: --state names the file in which it keeps how far it came.

	treadle import faktory old.example:7419
	treadle import faktory old.example:7419 --move`
}

// Run moves the jobs, or counts them.
func (i *importFaktoryCmd) Run(con *console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second signal ends the process at once
	m := &faktoryMove{con: con, source: i.From, file: i.State}
	var err error
	if m.from, err = dialFaktory(ctx, i.From, client.FaktorySource, i.PasswordFile); err != nil {
		return err
	}
	defer m.from.Close()
	state, err := m.from.State(ctx)
	if err != nil {
		return err
	}
	if state.Product == "Treadle" {
		con.say("the server at FROM is a Treadle: treadle journal export keeps more of its jobs")
	}
	if !i.Move {
		return firstOf(i.show(con, state, 0), func() error {
			con.say("nothing has been changed: call it with --move to move the jobs")
			return nil
		})
	}
	if m.to, err = dialFaktory(ctx, i.To, client.FaktoryTarget, i.ToPasswordFile); err != nil {
		return err
	}
	defer m.to.Close()
	if m.from.SamePeer(m.to) {
		return fmt.Errorf("%s and %s are the same server", i.From, i.To)
	}
	if err := m.recall(i.As); err != nil {
		return err
	}
	err = m.moveAll(ctx)
	return firstOf(i.show(con, state, m.moved), func() error { return m.broken(err) })
}

// dialFaktory connects to a server whose password is in a file; without a file it has none.
func dialFaktory(ctx context.Context, address, setting, file string) (*client.Faktory, error) {
	var password []byte
	if file != "" {
		var err error
		if password, err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	return client.DialFaktory(ctx, address, setting, string(bytes.TrimSpace(password)))
}

// show prints the jobs that a server had, and how many were moved.
func (i *importFaktoryCmd) show(con *console, s *client.FaktoryState, moved int64) error {
	if i.JSON {
		return json.NewEncoder(con.out).Encode(map[string]any{"queues": s.Queues, "sets": s.Sets, "workers": s.Workers, "moved": moved})
	}
	lines := [][]string{{"JOBS", "WHERE"}}
	line := func(n int64, where string) { lines = append(lines, []string{strconv.FormatInt(n, 10), where}) }
	for _, q := range slices.Sorted(maps.Keys(s.Queues)) {
		line(s.Queues[q], "queue "+printable(q))
	}
	for _, set := range append(slices.Clone(faktorySets), "working") {
		line(s.Sets[set], set)
	}
	if i.Move {
		line(moved, "moved")
	}
	return alignBy(con.out, lines, func(column int) bool { return column == 0 })
}

// faktoryMove moves jobs from one server of Faktory's protocol to another.
type faktoryMove struct {
	con      *console
	from, to *client.Faktory
	set      string // the set that the jobs in the queues came from; empty: from none
	source   string // as the user names it
	file     string // has source and set for a later call; none: the set is empty
	moved    int64
}

// faktorySets are the sets whose jobs are requeued to be fetched, in the order in which they are moved. The queues must
// be empty before a set is requeued: nothing tells its jobs from others in a queue.
var faktorySets = []string{"scheduled", "retries", "dead"}

// errFaktoryBusy reports that workers might take what is requeued.
var errFaktoryBusy = errors.New("workers of the Faktory are connected, or jobs are reserved: stop the workers first. What a broken-off move or a killed worker has reserved comes back after its reserve_for, 30 minutes if it has none")

// broken returns the error of a move that ends early.
func (m *faktoryMove) broken(err error) error {
	if err == nil {
		return nil
	}
	again := ""
	if m.set == "retries" || m.set == "dead" { // their jobs are in the queues now
		again = fmt.Sprintf(", with the file %s, or with --as %s", m.file, m.set)
	}
	return fmt.Errorf("not all jobs are moved: %w; call the command again%s", err, again)
}

// recall takes the set from the file of an earlier call, unless the user names it. Another file is left as it is.
func (m *faktoryMove) recall(set string) error {
	text, err := os.ReadFile(m.file)
	line := strings.TrimSpace(string(text))
	at := max(strings.LastIndexByte(line, ' '), 0) // a path may have spaces
	switch source, kept := line[:at], strings.TrimSpace(line[at:]); {
	case errors.Is(err, fs.ErrNotExist):
		m.set = set
		return nil
	case err != nil:
		return err
	case !slices.Contains(faktorySets, kept):
		return fmt.Errorf("%s is no file of an earlier move: name another with --state", m.file)
	case source != m.source:
		return fmt.Errorf("%s is of a move from %s: finish that first, or name another file with --state", m.file, source)
	default:
		m.set = cmp.Or(set, kept)
		m.con.say("an earlier call has put the jobs of %s into the queues, says %s: all that is there is moved as such; remove the file if workers have emptied the queues since", m.set, m.file)
	}
	return nil
}

// requeue puts the jobs of a set into the queues. A later call must know the set before.
func (m *faktoryMove) requeue(ctx context.Context, set string) error {
	err := replaceFile(m.file, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, m.source, set)
		return err
	})
	if err != nil {
		return err
	}
	m.set = set
	_, err = m.from.Ask(context.WithoutCancel(ctx), "MUTATE", fmt.Appendf(nil, `{"cmd":"requeue","target":%q}`, set))
	return err
}

// moveAll moves the jobs of the queues, and then those of one set after the other, until ctx ends. What has begun is
// finished then, so that no job stays reserved.
func (m *faktoryMove) moveAll(ctx context.Context) error {
	if m.set != "" { // the earlier call may have ended before all of its jobs were requeued
		if err := m.requeue(ctx, m.set); err != nil {
			return err
		}
	}
	for _, set := range faktorySets {
		if err := m.moveQueues(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := m.requeue(ctx, set); err != nil {
			return err
		}
	}
	return m.moveQueues(ctx)
}

// moveQueues moves the jobs of all queues until these are empty. Then m.set is empty.
func (m *faktoryMove) moveQueues(ctx context.Context) error {
	work := context.WithoutCancel(ctx)
	for empty := false; !empty; {
		s, err := m.from.State(work)
		if err != nil {
			return err
		}
		if s.Workers > 0 || s.Sets["working"] > 0 {
			return errFaktoryBusy
		}
		empty = true
		for _, q := range slices.Sorted(maps.Keys(s.Queues)) {
			for left := s.Queues[q]; left > 0; empty = false {
				if err := ctx.Err(); err != nil {
					return err
				}
				n, err := m.moveSome(work, q, left)
				if err != nil {
					return err
				}
				left -= n
			}
		}
	}
	m.set = ""
	if err := os.Remove(m.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Bounds of the jobs that are fetched before they are pushed together.
const (
	moveJobs  = 50 // as many are reserved when the command is killed
	moveBytes = 1 << 20
)

// moveSome moves at most so many jobs of a queue, and returns how many it has moved.
func (m *faktoryMove) moveSome(ctx context.Context, queue string, most int64) (int64, error) {
	var jids [][]byte
	push := []byte{'['}
	for int64(len(jids)) < min(most, moveJobs) && len(push) < moveBytes {
		text, err := m.from.Ask(ctx, "FETCH", []byte(queue))
		if err != nil {
			return 0, err
		}
		if text == nil {
			break
		}
		if len(jids) > 0 {
			push = append(push, ',')
		}
		var jid []byte
		if push, jid, err = m.appendJob(push, text); err != nil {
			return 0, err
		}
		jids = append(jids, jid)
	}
	if len(jids) == 0 {
		return 0, fmt.Errorf("the queue %s has jobs and gives none: resume it if it is paused", printable(queue))
	}
	refused, err := m.push(ctx, append(push, ']'))
	if err != nil {
		return 0, err
	}
	if m.set == "dead" {
		all := bytes.Join(jids, []byte{','})
		for _, target := range []string{"scheduled", "retries"} { // those that have never failed, and the others
			if _, err := m.to.Ask(ctx, "MUTATE", fmt.Appendf(nil, `{"cmd":"kill","target":%q,"filter":{"jids":[%s]}}`, target, all)); err != nil {
				return 0, err
			}
		}
	}
	for _, jid := range jids {
		if refused[string(jid)] {
			continue
		}
		if _, err := m.from.Ask(ctx, "ACK", fmt.Appendf(nil, `{"jid":%s}`, jid)); err != nil {
			return 0, err
		}
		m.moved++
	}
	if len(refused) > 0 {
		return 0, fmt.Errorf("this server refuses %d jobs; the Faktory has them again when their reservations end", len(refused))
	}
	return int64(len(jids)), nil
}

// deadDelay keeps a dead job from the workers of this server until it is dead here, also when the command is killed
// before.
const deadDelay = 10 * 365 * 24 * time.Hour

// appendJob appends the text of a fetched job, with the time at which it is due here. It returns the jid as JSON.
func (m *faktoryMove) appendJob(dst, text []byte) (out, jid []byte, err error) {
	var job struct {
		JID     string
		Failure struct {
			NextAt string `json:"next_at"`
		}
	}
	if err := json.Unmarshal(text, &job); err != nil {
		return nil, nil, client.ErrNotFaktory
	}
	jid, _ = json.Marshal(job.JID) // a string can be marshalled
	at := ""
	switch m.set {
	case "retries":
		at = job.Failure.NextAt
	case "dead":
		at = time.Now().Add(deadDelay).UTC().Format(time.RFC3339)
	}
	if at == "" {
		return append(dst, text...), jid, nil
	}
	dst = append(dst, bytes.TrimSuffix(bytes.TrimSpace(text), []byte{'}'})...)
	return append(append(append(dst, `,"at":"`...), at...), `"}`...), jid, nil // the last at counts
}

// push pushes an array of jobs. It returns the jids that are refused, as JSON, and prints the reasons.
func (m *faktoryMove) push(ctx context.Context, jobs []byte) (refused map[string]bool, err error) {
	reply, err := m.to.Ask(ctx, "PUSHB", jobs)
	if err != nil {
		return nil, err
	}
	var reasons map[string]string
	if err := json.Unmarshal(reply, &reasons); err != nil {
		return nil, client.ErrNotFaktory
	}
	refused = make(map[string]bool)
	for jid, text := range reasons {
		m.con.say("the job %s is refused: %s", printable(jid), printable(text))
		quoted, _ := json.Marshal(jid) // a string can be marshalled
		refused[string(quoted)] = true
	}
	return refused, nil
}
