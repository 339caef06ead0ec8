package faktory

import (
	"container/list"
	"encoding/json"
	"strings"
	"sync"
	"time"

	codec "treadle/codec/faktory"
	"treadle/sched"
)

// Tracked jobs: TRACK GET tells the state of a job with track in its custom data, and what its worker has said of it by
// TRACK SET. Both live in memory, until trackFor after the last change.

// tracks are the tracked jobs.
type tracks struct {
	mu    sync.Mutex
	byJID map[string]*list.Element
	list  list.List // of *track, in the order of their changes
}

// track is what is known of a tracked job.
type track struct {
	JID         string `json:"jid"`
	Percent     int    `json:"percent,omitempty"`
	Description string `json:"desc,omitempty"`
	State       string `json:"state"`
	UpdatedAt   string `json:"updated_at"`

	changed int64 // Unix milliseconds
	states  int   // how often State was set
}

// enter sets the state.
func (k *track) enter(state string) {
	k.State = state
	k.states++
}

// The states of tracked jobs.
const (
	stateUnknown  = "unknown"
	stateEnqueued = "enqueued" // or scheduled
	stateWorking  = "working"
	stateSuccess  = "success"
	stateFailed   = "failed" // it waits for its retry
	stateDead     = "dead"
)

const (
	// trackFor is how long a track is kept after its last change, in milliseconds.
	trackFor = 30 * 60 * 1000
	// maxTracks bounds the tracks. The track that has not changed for longest makes room.
	maxTracks = 1 << 17
	// maxDescription bounds the bytes of a description, so that all tracks have 150 MB at most.
	maxDescription = 1 << 10
	// trackSweep bounds the old tracks that one call removes.
	trackSweep = 16
)

// change calls fn with the track of a job, after making it with add. It returns false when there is none.
func (t *tracks) change(jid string, now sched.Time, add bool, fn func(*track)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(now.Wall)
	e := t.byJID[jid]
	switch {
	case e != nil:
		t.list.MoveToBack(e)
	case !add:
		return false
	default:
		if t.byJID == nil {
			t.byJID = make(map[string]*list.Element)
		}
		jid = strings.Clone(jid)
		e = t.list.PushBack(&track{JID: jid})
		t.byJID[jid] = e
	}
	k := e.Value.(*track)
	k.changed, k.UpdatedAt = now.Wall, timestamp(now.Wall*1000)
	fn(k)
	return true
}

// sweep removes old tracks, and those beyond maxTracks.
func (t *tracks) sweep(now int64) {
	for range trackSweep {
		e := t.list.Front()
		if e == nil || e.Value.(*track).changed+trackFor > now && t.list.Len() < maxTracks {
			return
		}
		delete(t.byJID, t.list.Remove(e).(*track).JID)
	}
}

// get returns what is known of a job, as JSON.
func (t *tracks) get(jid string, now int64) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(now)
	k := &track{JID: jid, State: stateUnknown}
	if e := t.byJID[jid]; e != nil && e.Value.(*track).changed+trackFor > now {
		k = e.Value.(*track)
	}
	text, _ := json.Marshal(k) // it has nothing that cannot be marshalled
	return text
}

// set changes the state of a job, if it is tracked.
func (t *tracks) set(jid, state string, now sched.Time) {
	t.change(jid, now, false, func(k *track) { k.enter(state) })
}

// states returns how often the state of a job was set; 0: it is not tracked.
func (t *tracks) states(jid string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.byJID[jid]; e != nil {
		return e.Value.(*track).states
	}
	return 0
}

// failed makes the state of a tracked job failed after its FAIL, if no other state was set since states returned
// before: the FAIL may have made the job dead, or a worker may have its retry already.
func (t *tracks) failed(jid string, before int, now sched.Time) {
	if before > 0 {
		t.change(jid, now, false, func(k *track) {
			if k.states == before {
				k.enter(stateFailed)
			}
		})
	}
}

// update sets the state of a job that has started or ended.
func (t *tracks) update(jid string, e sched.Effect, now sched.Time) {
	switch e {
	case sched.Assign: // also of a job that was restored
		t.change(jid, now, true, func(k *track) { k.enter(stateWorking) })
	case sched.Result:
		t.set(jid, stateSuccess, now)
	case sched.Failed:
		t.set(jid, stateDead, now)
	case sched.Removed:
		t.set(jid, stateUnknown, now)
	}
}

// track handles a TRACK.
func (c *conversation) track(text []byte) {
	verb, rest := codec.Cut(text)
	switch string(verb) {
	case "GET":
		if len(rest) > 0 && len(rest) <= codec.MaxJID {
			c.replyBulk(c.p.tracks.get(string(rest), c.s.Loop.Now.Wall))
			return
		}
		c.answerError("TRACK GET needs a jid")
	case "SET":
		c.trackSet(rest)
	default:
		c.answerError("TRACK needs GET or SET")
	}
}

// trackSet handles a TRACK SET. It leaves out what the text does not have.
func (c *conversation) trackSet(text []byte) {
	s, err := codec.Parse[codec.Progress](text)
	if err != nil || s.JID == "" {
		c.answerError("TRACK SET needs a JSON object with jid, percent, desc and reserve_until")
		return
	}
	now := c.s.Loop.Now
	token, _, err := c.p.lease([]byte(s.JID))
	if err == nil && s.ReserveUntil != "" {
		until, wrong := time.Parse(time.RFC3339Nano, s.ReserveUntil)
		if wrong != nil {
			c.answerError("reserve_until is no time of RFC 3339")
			return
		}
		err = c.p.extend(now, token, until.UnixMilli())
	}
	known := c.p.tracks.change(s.JID, now, false, func(k *track) {
		if s.Percent != 0 {
			k.Percent = s.Percent
		}
		if s.Description != "" {
			k.Description = strings.Clone(cutTo(s.Description, maxDescription))
		}
	})
	if err != nil && !known {
		c.answerError("no job is reserved or tracked with the jid " + shortText(s.JID))
		return
	}
	c.s.Reply(replyOK)
}

// extend makes a reservation longer, never shorter.
func (p *Protocol) extend(now sched.Time, token sched.Token, until int64) error {
	var end int64
	if err := p.sched.ViewLeased(token, func(_ *sched.Job, _ string, at int64) { end = at }); err != nil || until <= end {
		return err
	}
	_, err := p.sched.ExtendLease(now, token, until-now.Wall)
	return err
}
