package beanstalk

import (
	"fmt"
	"os"
	"syscall"

	codec "treadle/codec/beanstalk"
	"treadle/sched"
)

const (
	// version is the version of beanstalkd whose protocol this is: clients ask for it to know which commands there are.
	version = `"1.12"`
	// binlogSize is beanstalkd's default for a file of its journal, which this server does not have.
	binlogSize = 10 << 20
	// countedTubes is the number of queues, and of tubes in use, up to which a stats counts them one by one. Of more it
	// shows the larger of both numbers.
	countedTubes = 1000
)

// commandKeys are the commands that stats counts, in its order.
var commandKeys = [...]struct {
	key     string
	command codec.Command
}{
	{"cmd-put", codec.Put}, {"cmd-peek", codec.Peek}, {"cmd-peek-ready", codec.PeekReady}, {"cmd-peek-delayed", codec.PeekDelayed},
	{"cmd-peek-buried", codec.PeekBuried},
	{"cmd-reserve", codec.Reserve}, {"cmd-reserve-with-timeout", codec.ReserveWithTimeout}, {"cmd-delete", codec.Delete},
	{"cmd-release", codec.Release}, {"cmd-use", codec.Use},
	{"cmd-watch", codec.Watch}, {"cmd-ignore", codec.Ignore}, {"cmd-bury", codec.Bury}, {"cmd-kick", codec.Kick},
	{"cmd-touch", codec.Touch}, {"cmd-stats", codec.Stats},
	{"cmd-stats-job", codec.StatsJob}, {"cmd-stats-tube", codec.StatsTube}, {"cmd-list-tubes", codec.ListTubes}, {"cmd-list-tube-used", codec.ListTubeUsed},
	{"cmd-list-tubes-watched", codec.ListTubesWatched}, {"cmd-pause-tube", codec.PauseTube},
}

// stats shows the server. Its counts of jobs are of jobs that were put, in whichever protocol they are done.
func (c *conversation) stats() {
	p := c.p
	st := p.sched.Stats()
	b := append([]byte(nil), head...)
	b = appendNumber(b, "current-jobs-urgent", st.Numbered.Urgent)
	b = appendNumber(b, "current-jobs-ready", st.Numbered.Ready)
	b = appendNumber(b, "current-jobs-reserved", st.Numbered.Reserved)
	b = appendNumber(b, "current-jobs-delayed", st.Numbered.Delayed)
	b = appendNumber(b, "current-jobs-buried", st.Numbered.Buried)
	for _, k := range commandKeys {
		b = appendNumber(b, k.key, p.commands[k.command].Load())
	}
	b = appendNumber(b, "job-timeouts", st.TimedOut)
	b = appendNumber(b, "total-jobs", p.puts.Load())
	b = appendNumber(b, "max-job-size", p.o.MaxJob)
	b = appendNumber(b, "current-tubes", p.countTubes(st.Queues))
	b = appendNumber(b, "current-connections", p.connections.Load())
	b = appendNumber(b, "current-producers", p.producers.Load())
	b = appendNumber(b, "current-workers", p.workers.Load())
	b = appendNumber(b, "current-waiting", p.waits.Load())
	b = appendNumber(b, "total-connections", p.opened.Load())
	b = appendNumber(b, "pid", os.Getpid())
	b = appendText(b, "version", version)
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // an error leaves zeros
	b = fmt.Appendf(b, "rusage-utime: %d.%06d\n", used.Utime.Sec, used.Utime.Usec)
	b = fmt.Appendf(b, "rusage-stime: %d.%06d\n", used.Stime.Sec, used.Stime.Usec)
	b = appendNumber(b, "uptime", max(c.s.Loop.Now.Wall-p.host.Health().Started, 0)/1000)
	b = appendNumber(b, "binlog-oldest-index", 0)
	b = appendNumber(b, "binlog-current-index", 0)
	b = appendNumber(b, "binlog-records-migrated", 0)
	b = appendNumber(b, "binlog-records-written", 0)
	b = appendNumber(b, "binlog-max-size", binlogSize)
	b = appendText(b, "draining", fmt.Sprint(p.host.Stopping()))
	b = appendText(b, "id", p.id)
	host, _ := os.Hostname()
	b = appendText(b, "hostname", host)
	system, machine := systemNames()
	b = appendText(b, "os", system)
	b = appendText(b, "platform", machine)
	c.reply(codec.AppendData(c.scratch(), b))
}

// systemNames returns the version of the operating system and the name of the machine's processor, as uname has them.
func systemNames() (system, machine string) {
	var u syscall.Utsname
	_ = syscall.Uname(&u) // an error leaves them empty
	text := func(from [65]int8) string {
		var b []byte
		for _, c := range from {
			if c == 0 {
				break
			}
			b = append(b, byte(c))
		}
		return string(b)
	}
	return text(u.Version), text(u.Machine)
}

// countTubes counts the tubes of a server with so many queues.
func (p *Protocol) countTubes(queues int) int {
	if inUse := p.tubes.size(); max(queues, inUse) > countedTubes {
		return max(queues, inUse)
	}
	n := 0
	for _, name := range p.tubes.inUse() {
		if !p.tubes.hasQueue([]byte(name)) {
			n++
		}
	}
	p.sched.Status(func(q sched.QueueStatus) {
		if codec.ValidTube(q.Name) {
			n++
		}
	})
	return n
}

// statsTube shows a tube with the jobs of all protocols in it.
func (c *conversation) statsTube(name []byte) {
	if !c.p.tubes.exists(name) {
		c.replyWord(codec.NotFound)
		return
	}
	q, _ := c.p.sched.StatusOf(name)
	t, ok := c.p.tubes.find(string(name))
	if !ok {
		t = &tube{}
	}
	pause, left := t.pausedFor.Load(), secondsLeft(t.pausedUntil.Load()-c.s.Loop.Now.Mono)
	if !t.paused(c.s.Loop.Now) {
		pause = 0
	}
	b := append([]byte(nil), head...)
	b = appendText(b, "name", string(name))
	b = appendNumber(b, "current-jobs-urgent", q.Urgent)
	b = appendNumber(b, "current-jobs-ready", q.Jobs-q.Running-q.Parked-q.Waiting-q.Delayed)
	b = appendNumber(b, "current-jobs-reserved", q.Running)
	b = appendNumber(b, "current-jobs-delayed", q.Delayed)
	b = appendNumber(b, "current-jobs-buried", q.Buried)
	b = appendNumber(b, "total-jobs", t.puts.Load())
	b = appendNumber(b, "current-using", t.using.Load())
	b = appendNumber(b, "current-watching", t.watching.Load())
	b = appendNumber(b, "current-waiting", t.waiting.Load())
	b = appendNumber(b, "cmd-delete", t.deletes.Load())
	b = appendNumber(b, "cmd-pause-tube", t.pauses.Load())
	b = appendNumber(b, "pause", pause)
	b = appendNumber(b, "pause-time-left", left)
	c.reply(codec.AppendData(c.scratch(), b))
}

// secondsLeft returns the whole seconds that are left. A part of the first one has passed already.
func secondsLeft(ms int64) int64 { return max(ms-1, 0) / 1000 }

// stateNames are the words for the states of jobs.
var stateNames = map[sched.JobState]string{
	sched.JobReady: "ready", sched.JobDelayed: "delayed", sched.JobRunning: "reserved", sched.JobFailed: "buried",
}

// statsJob shows a job that the connection holds, or one that was put, with its counts.
func (c *conversation) statsJob(id uint64) {
	ref, ok := c.refOf(id)
	now := c.s.Loop.Now
	var b []byte
	ok = ok && c.p.sched.View(now, ref, func(v *sched.JobView) {
		state := stateNames[v.State]
		if state == "" {
			state = "delayed" // it waits for a lock
		}
		left := int64(0)
		switch h := c.held.find(id); {
		case state == "delayed":
			left = v.Due - now.Wall
		case state == "reserved" && h != nil && h.deadline > now.Mono:
			left = h.deadline - now.Mono
		case state == "reserved" && v.Until > 0:
			left = min(v.Until-now.Wall, int64(v.Timeout)*1000) // the scheduler rounds up
		}
		submitted := v.Counts.Submitted
		if submitted == 0 {
			submitted = max(v.Due, 0)
		}
		b = append(b, head...)
		b = appendNumber(b, "id", id)
		b = appendText(b, "tube", v.Queue)
		b = appendText(b, "state", state)
		b = appendNumber(b, "pri", toPri(v.Priority))
		b = appendNumber(b, "age", max(now.Wall-submitted, 0)/1000)
		b = appendNumber(b, "delay", v.Counts.Delay)
		b = appendNumber(b, "ttr", int64(v.Timeout))
		b = appendNumber(b, "time-left", secondsLeft(left))
		b = appendNumber(b, "file", 0)
		b = appendNumber(b, "reserves", v.Counts.Runs)
		b = appendNumber(b, "timeouts", v.Counts.TimedOut)
		b = appendNumber(b, "releases", v.Counts.Released)
		b = appendNumber(b, "buries", v.Counts.Buried)
		b = appendNumber(b, "kicks", v.Counts.Kicked)
	})
	if !ok {
		c.replyWord(codec.NotFound)
		return
	}
	c.reply(codec.AppendData(c.scratch(), b))
}
