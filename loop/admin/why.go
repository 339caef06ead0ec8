package admin

import (
	"fmt"
	"strings"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// whyOf says why a job of a queue does not run, or what became of it.
func (api *API) whyOf(now sched.Time, ref sched.JobRef, queue string) []codec.Why {
	reasons, _ := api.host.Sched().Why(now, ref)
	all := []codec.Why{}
	for n := range reasons {
		one := why{Why: &reasons[n], now: now.Wall, queue: shownName(protocol.Unescape(queue))}
		if one.Reason == sched.WhyPaused {
			var q codec.Queue
			fillPause(&q, api.policies(), queue)
			one.by, one.because = q.PausedBy, q.PausedWhy
		}
		all = append(all, codec.Why{Reason: one.Reason.String(), Text: one.text()})
	}
	return all
}

// why is a reason to report.
type why struct {
	*sched.Why
	now         int64
	queue       string
	by, because string // of a pause
}

// text describes the reason.
func (w *why) text() string {
	switch w.Reason {
	case sched.WhyRunning:
		return "running on " + w.worker() + " since " + w.moment(w.At) + w.until(", its time-out ends at ")
	case sched.WhyLeased:
		return "leased by " + w.worker() + " since " + w.moment(w.At) + w.until(", the lease ends at ")
	case sched.WhyBroadcast:
		return "being sent to all workers of " + w.queue
	case sched.WhyDone:
		return "done by " + w.worker() + " at " + w.moment(w.At)
	case sched.WhyExpired:
		return "not handed out within the job-ttl of " + w.queue + ", expired at " + w.moment(w.At)
	case sched.WhyFailed:
		return fmt.Sprintf("given up after %s at %s%s", counted(w.Count, "attempt"), w.moment(w.At), after(": ", shownName(w.Text)))
	case sched.WhyDelayed:
		return "delayed until " + w.moment(w.Until)
	case sched.WhyPredecessors:
		return w.predecessors()
	case sched.WhyLock, sched.WhyLockFree:
		return w.lock()
	}
	return w.waiting()
}

// waiting tells why a ready job waits.
func (w *why) waiting() string {
	switch w.Reason {
	case sched.WhyHalted:
		return "the server stops: it hands out no job"
	case sched.WhyPaused:
		if w.Until != 0 {
			return "queue paused by pause-tube, for " + wait(w.Until-w.now)
		}
		return "queue paused" + after(" by ", w.by) + after(": ", w.because)
	case sched.WhyConcurrency:
		return fmt.Sprintf("%d of %s of %s run, which is its concurrency", w.Count, counted(w.Total, "job"), w.queue)
	case sched.WhyKeyConcurrency:
		return fmt.Sprintf("%d of %s of its key run, which is the key-concurrency of %s", w.Count, counted(w.Total, "job"), w.queue)
	case sched.WhyRate:
		return "over the rate, next in " + wait(w.Until-w.now)
	case sched.WhyNoWorker:
		return "no worker serves " + w.queue
	case sched.WhyLongName:
		return "no worker of " + w.queue + " takes a name of this length"
	case sched.WhyNameClash:
		return "each worker that asks for a job has, or had, another job of this name"
	case sched.WhyStealOnly:
		return "no worker has asked for it yet: it is not handed out, workers of its protocol take it"
	case sched.WhyBusy:
		return fmt.Sprintf("no worker asks for a job: of %s of %s %d have one of it", counted(w.Total, "worker"), w.queue, w.Count)
	case sched.WhyBehind:
		if w.Count == 1 && !w.More {
			return "1 job of its kind comes first"
		}
		return w.count("job") + " of its kind come first"
	}
	return "next to be handed out"
}

// predecessors returns the sentence about a task that waits for others, with the names of the first of them.
func (w *why) predecessors() string {
	var names []string
	for _, j := range w.Jobs {
		names = append(names, shownName(j.Name))
	}
	if w.Count > len(names) && len(names) > 0 {
		names = append(names, "and others")
	}
	waits := fmt.Sprintf("waits for %d of %s", w.Count, counted(w.Total, "predecessor"))
	if w.More {
		waits = fmt.Sprintf("waits for more than %d of %s", w.Count, counted(w.Total, "predecessor"))
	}
	return waits + after(": ", strings.Join(names, ", "))
}

// lock returns the sentence about a job that waits for a named lock.
func (w *why) lock() string {
	switch {
	case w.Reason == sched.WhyLockFree:
		return "lock " + shownName(w.Name) + " is free, it is this job's turn"
	case w.Name == "":
		return "waits for a lock that no job may have, since " + w.moment(w.At)
	}
	text := "waits for lock " + shownName(w.Name) + " since " + w.moment(w.At)
	for i, j := range w.Jobs {
		joint := ", held by job "
		if i > 0 {
			joint = " and by job "
		}
		text += joint + shownName(j.Name)
		if j.Since != 0 {
			text += " on " + worker(j.Worker) + " since " + w.moment(j.Since)
		}
	}
	if w.More {
		text += " and by others"
	}
	return text
}

func (w *why) worker() string { return worker(w.Worker) }

func worker(name string) string {
	if name == "" {
		return "a worker without a name"
	}
	return "worker " + shownName(name)
}

func (w *why) until(before string) string {
	if w.Until == 0 {
		return ""
	}
	return before + w.moment(w.Until)
}

// count formats the number of a reason.
func (w *why) count(what string) string {
	if w.More {
		return "more than " + counted(w.Count, what)
	}
	return counted(w.Count, what)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// after returns a text with its introduction, nothing without a text.
func after(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}

// moment formats a moment in the server's time zone, without the date when that is today.
func (w *why) moment(ms int64) string {
	t, today := time.UnixMilli(ms), time.UnixMilli(w.now)
	if t.Format(time.DateOnly) == today.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// wait formats a duration in whole seconds, rounded up.
func wait(ms int64) string { return fmt.Sprintf("%d s", max((ms+999)/1000, 1)) }

// maxShownName is how many bytes of a name a reason repeats.
const maxShownName = 100

// shownName returns a name as people read it.
func shownName(name string) string {
	if len(name) > maxShownName {
		name = name[:maxShownName] + "..."
	}
	return strings.ToValidUTF8(name, "�")
}
