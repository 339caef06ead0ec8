package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"

	"treadle/loop/client"
)

type importCmd struct {
	Beanstalkd importBeanstalkdCmd `cmd:"" help:"Move the jobs of a running beanstalkd."`
	Faktory    importFaktoryCmd    `cmd:"" help:"Move the jobs of a running Faktory."`
}

// Help implements kong.HelpProvider.
func (importCmd) Help() string {
	return `Each command reads the jobs of a running server of another kind through its protocol. Without --move it counts them and changes nothing.

	treadle import beanstalkd old.example:11300
	treadle import beanstalkd old.example:11300 --move
	treadle import faktory old.example:7419`
}

type importBeanstalkdCmd struct {
	From string   `arg:"" help:"Address of the beanstalkd: host, host:port or tcp://host:port."`
	To   string   `default:"127.0.0.1" placeholder:"ADDR" help:"Address of this server's beanstalkd protocol, see treadle serve --beanstalk (default: ${default}, port 11300)."`
	Tube []string `sep:"none" placeholder:"NAME" help:"A tube to move; repeatable (default: all)."`
	Move bool     `help:"Move the jobs. Without it the command shows what it would move, and changes nothing."`
	JSON bool     `name:"json" help:"Print JSON."`
}

// Help implements kong.HelpProvider.
func (importBeanstalkdCmd) Help() string {
	return `Without --move the command counts the jobs of each tube and changes nothing. With --move it pauses each tube, and then reads each job, puts it here with its priority, its time to run and what is left of its delay, and deletes it there when it is on disk here. Buried jobs are buried here. It can be stopped and called again: a job that it had put and not deleted is then here twice. A pause there ends with the command; when the command is killed, after ten minutes at most.

Jobs that a worker has reserved stay: let the workers finish, or stop them, and call it again until no job is left.

	treadle import beanstalkd old.example:11300
	treadle import beanstalkd old.example:11300 --move`
}

// importPause is how long a tube is paused at beanstalkd, in seconds, each time that so much has passed again by half.
const importPause = 600

// imported is what is known of one tube.
type imported struct {
	Tube     string `json:"tube"`
	Ready    uint64 `json:"ready"`
	Delayed  uint64 `json:"delayed"`
	Buried   uint64 `json:"buried"`
	Reserved uint64 `json:"reserved"` // they stay
	Moved    uint64 `json:"moved"`
}

// Run moves the jobs, or counts them.
func (i *importBeanstalkdCmd) Run(con *console) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	from, err := client.DialBeanstalkd(ctx, i.From)
	if err != nil {
		return err
	}
	defer from.Close()
	tubes, err := i.tubes(ctx, from)
	if err != nil || !i.Move {
		return firstOf(err, func() error { return i.show(con, tubes) })
	}
	to, err := client.DialBeanstalk(ctx, i.To)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := differ(ctx, from, to); err != nil {
		return err
	}
	m := mover{con: con, from: from, to: to}
	for n := range tubes {
		if err = m.tube(ctx, &tubes[n]); err != nil {
			err = fmt.Errorf("cannot move the tube %s: %w", tubes[n].Tube, err)
			break
		}
	}
	return firstOf(i.show(con, tubes), func() error { return err })
}

// firstOf returns err, or what next returns.
func firstOf(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

// tubes counts the jobs of the tubes.
func (i *importBeanstalkdCmd) tubes(ctx context.Context, from *client.Beanstalk) (all []imported, err error) {
	names := i.Tube
	if len(names) == 0 {
		r, err := from.Ask(ctx, nil, "list-tubes")
		if err != nil {
			return nil, err
		}
		names = r.List()
		slices.Sort(names)
	}
	for _, name := range names {
		r, err := from.Ask(ctx, nil, "stats-tube %s", name)
		if err != nil {
			return nil, err
		}
		if !r.Is("OK") {
			return nil, fmt.Errorf("%s has no tube %s (it answered %s)", from.Address(), name, r.Words[0])
		}
		all = append(all, imported{
			Tube: name, Ready: r.Number("current-jobs-ready"), Delayed: r.Number("current-jobs-delayed"),
			Buried: r.Number("current-jobs-buried"), Reserved: r.Number("current-jobs-reserved"),
		})
	}
	return all, nil
}

// show prints the tubes as a table or as JSON, and says that nothing has changed when that is so.
func (i *importBeanstalkdCmd) show(con *console, tubes []imported) error {
	if i.JSON {
		return json.NewEncoder(con.out).Encode(tubes)
	}
	w := tabwriter.NewWriter(con.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "tube\tready\tdelayed\tburied\treserved\tmoved")
	for _, t := range tubes {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", t.Tube, t.Ready, t.Delayed, t.Buried, t.Reserved, t.Moved)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if !i.Move {
		con.say("nothing has been changed: call it with --move to move the jobs")
	}
	return nil
}

// mover moves jobs between two servers.
type mover struct {
	con      *console
	from, to *client.Beanstalk

	pausedAt time.Time // when the tube was paused by this command; zero: it is not
	unpause  time.Time // when the pause ends that the tube had before
}

// tube moves the jobs of a tube.
func (m *mover) tube(ctx context.Context, t *imported) (err error) {
	defer func() {
		if err != nil && !m.pausedAt.IsZero() {
			m.resume(t.Tube)
		}
	}()
	m.pausedAt = time.Time{}
	before, err := m.from.Ask(ctx, nil, "stats-tube %s", t.Tube)
	if err != nil {
		return err
	}
	m.unpause = time.Now().Add(time.Duration(before.Number("pause-time-left")) * time.Second)
	for _, server := range []*client.Beanstalk{m.from, m.to} {
		if err := want(server.Ask(ctx, nil, "use %s", t.Tube))("USING"); err != nil {
			return err
		}
	}
	for _, state := range []string{"delayed", "buried", "ready"} { // a delayed job may become ready meanwhile
		for more := true; more; {
			if err := m.pause(ctx, t.Tube, importPause); err != nil {
				return err
			}
			if more, err = m.next(ctx, t, state); err != nil {
				return err
			}
		}
	}
	if there := t.Ready + t.Delayed + t.Buried; there > t.Moved {
		m.con.say("%s of the tube %s were not moved: workers have taken them, or they came by another protocol and stay", counted(int64(there-t.Moved), "job"), t.Tube)
	}
	return m.endPause(ctx, m.from, t.Tube)
}

// endPause ends the pause of a tube by this command. One that the tube had before goes on.
func (m *mover) endPause(ctx context.Context, from *client.Beanstalk, tube string) error {
	left := max(time.Until(m.unpause), 0).Round(time.Second) / time.Second
	return want(from.Ask(ctx, nil, "pause-tube %s %d", tube, left))("PAUSED", "NOT_FOUND")
}

// resumeTime bounds the attempt to end the pause of a tube after an error.
const resumeTime = 5 * time.Second

// resume ends the pause of a tube after an error, over a connection of its own: the other may be broken.
func (m *mover) resume(tube string) {
	ctx, cancel := context.WithTimeout(context.Background(), resumeTime)
	defer cancel()
	from, err := client.DialBeanstalkd(ctx, m.from.Address())
	if err == nil {
		defer from.Close()
		err = m.endPause(ctx, from, tube)
	}
	if err != nil {
		m.con.say("the tube %s may stay paused at %s for %d seconds: %v", tube, m.from.Address(), importPause, err)
	}
}

// differ returns an error if both connections are to one server: its jobs would be moved for ever.
func differ(ctx context.Context, from, to *client.Beanstalk) error {
	a, err := from.Ask(ctx, nil, "stats")
	if err != nil {
		return err
	}
	b, err := to.Ask(ctx, nil, "stats")
	if err == nil && a.Value("id") != "" && a.Value("id") == b.Value("id") {
		err = fmt.Errorf("%s and %s are the same server", from.Address(), to.Address())
	}
	return err
}

// pause has a tube hand out nothing at beanstalkd, so that no worker takes a job while it is moved.
func (m *mover) pause(ctx context.Context, tube string, seconds int) error {
	if time.Since(m.pausedAt) < time.Duration(seconds)*time.Second/2 {
		return nil
	}
	m.pausedAt = time.Now()
	return want(m.from.Ask(ctx, nil, "pause-tube %s %d", tube, seconds))("PAUSED", "NOT_FOUND")
}

// want returns an error unless a request is answered with one of the words.
func want(r client.BeanstalkReply, err error) func(words ...string) error {
	return func(words ...string) error {
		if err == nil && !slices.Contains(words, r.Words[0]) {
			err = fmt.Errorf("the server answered %s", r.Words[0])
		}
		return err
	}
}

// next moves the next job of a state. more is false when there is none.
func (m *mover) next(ctx context.Context, t *imported, state string) (more bool, err error) {
	job, err := m.from.Ask(ctx, nil, "peek-%s", state)
	if err != nil || job.Is("NOT_FOUND") {
		return false, err
	}
	if err := want(job, nil)("FOUND"); err != nil {
		return false, err
	}
	body, id := job.Data, job.Words[1]
	stats, err := m.from.Ask(ctx, nil, "stats-job %s", id)
	if err != nil {
		return false, err
	}
	if stats.Value("state") != state { // a delayed job has become ready, or a worker has taken it
		return true, nil
	}
	copied, err := m.put(ctx, state, &stats, body)
	if err != nil {
		return false, err
	}
	gone, err := m.from.Ask(ctx, nil, "delete %s", id)
	if err != nil {
		return false, err
	}
	if gone.Is("NOT_FOUND") { // a worker has it, by reserve-job
		return true, want(m.to.Ask(ctx, nil, "delete %s", copied))("DELETED", "NOT_FOUND")
	}
	t.Moved++
	return true, want(gone, nil)("DELETED")
}

// put puts a copy of a job in the state and returns its id.
func (m *mover) put(ctx context.Context, state string, stats *client.BeanstalkReply, body []byte) (id string, err error) {
	pri, delay, ttr := stats.Number("pri"), uint64(0), stats.Number("ttr")
	switch state {
	case "delayed":
		delay = stats.Number("time-left") + 1 // it has a part of a second, too
	case "buried":
		delay = 1<<32 - 1 // until it is buried: no worker is to take it
	}
	put, err := m.to.Ask(ctx, body, "put %d %d %d %d", pri, delay, ttr, len(body))
	if err := want(put, err)("INSERTED"); err != nil {
		if put.Words != nil && put.Is("JOB_TOO_BIG") {
			err = fmt.Errorf("a job has %s bytes: start this server with a larger --beanstalk-max-job", strconv.Itoa(len(body)))
		}
		return "", err
	}
	id = put.Words[1]
	if state == "buried" {
		if err = want(m.to.Ask(ctx, nil, "reserve-job %s", id))("RESERVED"); err == nil {
			err = want(m.to.Ask(ctx, nil, "bury %s %d", id, pri))("BURIED")
		}
	}
	return id, err
}
