package admin

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

const (
	// attentionEach bounds the queues of each kind: a person works on a few, and the kind that has most must not hide
	// the others.
	attentionEach = 5
	// lateAfter is how long the oldest ready job of a queue may be due, in seconds.
	lateAfter = 60
	// unservedAfter is how long jobs may wait while no worker serves their queue, in seconds: a worker that starts
	// again needs some.
	unservedAfter = 5
	// expiresSoon is how long before a certificate expires it needs attention: time to find who renews it.
	expiresSoon = 14 * 24 * time.Hour
	// lowDisk is the multiple of --min-free below which the free space of the disk is low.
	lowDisk = 2
)

// The kinds of what needs attention, the most urgent first.
const (
	notReady = iota
	degraded
	unreachable
	diskLow
	expires
	noWorker
	oldest
	failed
	paused
	attentionKinds
)

var attentionNames = [attentionKinds]string{"not-ready", "degraded", "node", "disk", "certificate", "no-worker", "old", "failed", "paused"}

// attention collects what needs an operator's attention.
type attention struct {
	now    sched.Time
	spaces *protocol.Spaces
	table  *sched.Policies
	found  [attentionKinds][]finding
	more   int
}

// finding is one thing that needs attention. weight orders the findings of a kind, the largest first.
type finding struct {
	queue  string // as the scheduler has it
	weight int64
	text   string
}

// newAttention returns an attention with what the health of the server says. table has the pauses of the queues.
func newAttention(now sched.Time, h protocol.Health, spaces *protocol.Spaces, table *sched.Policies) *attention {
	a := &attention{now: now, spaces: spaces, table: table}
	switch {
	case !h.Ready:
		a.add(notReady, "", 0, h.Text)
	case h.Text != "ok":
		a.add(degraded, "", 0, h.Text)
	case h.Journal != nil && h.Journal.Free < lowDisk*h.Journal.MinFree:
		a.add(diskLow, "", 0, fmt.Sprintf("the disk of --data has %v free: below %v new jobs are refused", size(h.Journal.Free), size(h.Journal.MinFree)))
	}
	for _, id := range slices.Sorted(maps.Keys(h.Unreachable)) {
		a.add(unreachable, "", 0, fmt.Sprintf("node %s cannot be reached: %s", id, h.Unreachable[id]))
	}
	if left := h.CertsExpire.Sub(time.UnixMilli(now.Wall)); !h.CertsExpire.IsZero() && left < expiresSoon {
		a.add(expires, "", 0, "the certificate of an address with TLS expires at "+h.CertsExpire.UTC().Format(time.RFC3339))
	}
	return a
}

// size returns bytes as messages have them.
func size(n uint64) sched.Size { return sched.Size(min(n, math.MaxInt64)) } //nolint:gosec // it is within its bounds

// add adds a finding in the place of one that weighs less.
func (a *attention) add(kind int, queue string, weight int64, text string) {
	all := a.found[kind]
	at, _ := slices.BinarySearchFunc(all, weight, func(n finding, w int64) int { return cmp.Compare(w, n.weight) })
	for at < len(all) && all[at].weight == weight && all[at].queue < queue {
		at++
	}
	all = slices.Insert(all, at, finding{queue, weight, text})
	if len(all) > attentionEach {
		all = all[:attentionEach]
		a.more++
	}
	a.found[kind] = all
}

// addQueue adds the findings about a queue. It is called under a lock of the scheduler.
func (a *attention) addQueue(s *sched.QueueStats) {
	age := int64(0)
	if s.Oldest != math.MaxInt64 {
		age = max(a.now.Wall/1000-s.Oldest, 0)
	}
	switch {
	case s.Paused > 0:
		a.add(paused, s.Name, int64(s.Ready), "")
	case s.Ready > 0 && s.Workers == 0 && age >= unservedAfter && a.wantsWorkers(s):
		a.add(noWorker, s.Name, int64(s.Ready), "no worker serves it, "+counted(s.Ready, "job")+" ready")
	case age > lateAfter:
		a.add(oldest, s.Name, age, "the oldest ready job has waited for "+(time.Duration(age)*time.Second).String())
	}
	if s.Failed > 0 {
		a.add(failed, s.Name, int64(s.Failed), counted(s.Failed, "job")+" given up and kept")
	}
}

// wantsWorkers reports whether the jobs of a queue need workers that serve it. Tasks of a graph do not: their workers
// take tasks without serving a queue.
func (a *attention) wantsWorkers(s *sched.QueueStats) bool {
	for space, n := range s.Tally.Submitted {
		if n > 0 && a.spaces[space].Rules.Graph {
			return false
		}
	}
	return true
}

// list returns what was found, and how much more there is.
func (a *attention) list() (all []codec.Attention, more int) {
	all = []codec.Attention{}
	for kind, found := range a.found {
		for _, n := range found {
			one := codec.Attention{Kind: attentionNames[kind], Text: n.text}
			if one.Queue, one.QueueBytes = codec.Name(protocol.Unescape(n.queue)); kind == paused {
				var q codec.Queue
				fillPause(&q, a.table, n.queue)
				one.Text = "paused" + after(" by ", q.PausedBy) + after(": ", q.PausedWhy)
			}
			all = append(all, one)
		}
	}
	return all, a.more
}
