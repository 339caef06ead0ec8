package loop

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"treadle/codec/periodic"
	"treadle/sched"
)

// The roles of the protocol document, each a bit.
const (
	byClient = 1 << periodic.Client
	byWorker = 1 << periodic.Worker
)

// documented is a request of the protocol document: the roles that may send it, its arguments and its
// reply. Every other request is answered with UNKNOWN.
type documented struct {
	roles int
	args  []byte
	least int    // length of the shortest complete arguments
	reply string // the body in hex, "" for none
}

var documentedCommands = map[periodic.Command]documented{
	periodic.Ping:       {byClient | byWorker, nil, 0, "0a"},
	periodic.SubmitJob:  {byClient, job("f", "n", 1, 2), -1, "10"},
	periodic.RunJob:     {byClient, job("f", "n", 1, 2), -1, ""},
	periodic.Status:     {byClient, nil, 0, hex.EncodeToString([]byte("held,0,1,0,1795239475"))},
	periodic.DropFunc:   {byClient, str8("func"), -1, "10"},
	periodic.RemoveJob:  {byClient, append(str8("func"), str8("name")...), -1, "10"},
	periodic.Dump:       {byClient, nil, 0, hex.EncodeToString(append(count(1), job("held", "n")...))},
	periodic.Load:       {byClient, append(count(2), append(job("f", "a", 7), job("f", "b")...)...), -1, "10"},
	periodic.Shutdown:   {byClient, nil, 0, ""},
	periodic.ConfigGet:  {byClient, str8("timeout"), -1, "1800000258"},
	periodic.ConfigSet:  {byClient, append(str8("timeout"), 0, 0, 0, 9), -1, "10"},
	periodic.GrabJob:    {byWorker, nil, 0, ""},
	periodic.WorkDone:   {byWorker, append(str8("no handle"), "result"...), 10, ""},
	periodic.WorkFail:   {byWorker, str8("no handle"), -1, ""},
	periodic.SchedLater: {byWorker, append(str8("no handle"), 0, 0, 0, 0, 0, 0, 0, 5, 0, 1), -1, ""},
	periodic.CanDo:      {byWorker, str8("g"), -1, ""},
	periodic.CantDo:     {byWorker, str8("g"), -1, ""},
	periodic.Broadcast:  {byWorker, str8("g"), -1, ""},
	periodic.Sleep:      {byWorker, nil, 0, "00"},
}

// expect returns the documented answer of a command byte to a role.
func expect(cmd periodic.Command, role int, o Options) (d documented) {
	d = documentedCommands[cmd]
	switch {
	case d.roles&role == 0, cmd == periodic.Shutdown && o.Periodic.Shutdown == "off":
		return documented{roles: d.roles, args: d.args, reply: "0c"}
	case cmd == periodic.GrabJob && o.Periodic.Grab == "document":
		d.reply = "06"
	case cmd == periodic.Sleep && o.Periodic.Grab == "document":
		d.reply = ""
	}
	return d
}

// newPeer makes a new server with one peer of a role, and one waiting job.
func newPeer(t *testing.T, o Options, role int) (*memServer, *memConn) {
	t.Helper()
	w := newMemServer(t, o)
	client := w.join(0, periodic.Client)
	client.send(request(1, periodic.SubmitJob, job("held", "n")))
	client.close()
	if role == byWorker {
		return w, w.join(0, periodic.Worker)
	}
	return w, w.join(0, periodic.Client)
}

// bodies returns those of the frames that a peer got for a message.
func (c *memConn) bodies(id uint32) (all []string) {
	c.w.t.Helper()
	for _, r := range c.frames() {
		if r.MsgID != id {
			c.w.t.Errorf("a frame for message %d: %x", r.MsgID, r.Body)
		}
		all = append(all, hex.EncodeToString(r.Body))
	}
	return all
}

// TestEveryCommand sends every command byte there is, as client and as worker, with
// the arguments of the document or with none, and wants the documented answer, and
// that the connection stays.
func TestEveryCommand(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{}, {Periodic: PeriodicOptions{Grab: "document", Shutdown: "off"}}} {
		for role, name := range map[int]string{byClient: "client", byWorker: "worker"} {
			for b := range 256 {
				cmd := periodic.Command(b)
				what := fmt.Sprintf("%v from a %s, %+v", cmd, name, o.Periodic.Grab)
				want := expect(cmd, role, o)
				w, c := newPeer(t, o, role)
				c.send(request(0xfedcba98, cmd, want.args))
				got := c.bodies(0xfedcba98)
				if want.reply == "" && len(got) != 0 || want.reply != "" && (len(got) != 1 || got[0] != want.reply) {
					t.Errorf("%s: answered %q, want %q", what, got, want.reply)
				}
				if w.stopped != (cmd == periodic.Shutdown && role == byClient && o.Periodic.Shutdown != "off") {
					t.Errorf("%s: the server stops: %v", what, w.stopped)
				}
				unknown, wrong := w.counterSum("treadle_protocol_errors_total", "unknown_command"), w.counterSum("treadle_protocol_errors_total", "wrong_role")
				if unknown != btoi(want.roles == 0) || wrong != btoi(want.roles != 0 && want.roles&role == 0) {
					t.Errorf("%s: counted as unknown %d, as of the wrong role %d", what, unknown, wrong)
				}
				c.send(request(1, periodic.Ping))
				if got := c.bodies(1); len(got) != 1 || got[0] != "0a" || c.closed {
					t.Errorf("%s: afterwards PING is answered %q", what, got)
				}
			}
		}
	}
}

func btoi(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// TestEveryCutCommand sends the arguments of every command at every length that is too short. Each is
// answered with UNKNOWN and counted, and changes nothing. The connection stays. Bytes behind complete
// arguments are ignored.
func TestEveryCutCommand(t *testing.T) {
	t.Parallel()
	for cmd, d := range documentedCommands {
		role := d.roles &^ byWorker
		if role == 0 {
			role = byWorker
		}
		least := d.least
		if least < 0 {
			least = len(d.args)
		}
		for n := range len(d.args) + 1 {
			w, c := newPeer(t, Options{}, role)
			before := fmt.Sprint(statusOf(w.Server), w.sched.Timeout())
			c.send(request(5, cmd, d.args[:n]))
			got := c.bodies(5)
			if n >= least {
				if len(got) == 1 && got[0] == "0c" || w.counterSum("treadle_protocol_errors_total", "truncated") != 0 {
					t.Errorf("%v with %d of %d bytes is refused", cmd, n, len(d.args))
				}
				continue
			}
			if len(got) != 1 || got[0] != "0c" || w.counterSum("treadle_protocol_errors_total", "truncated") != 1 {
				t.Errorf("%v with %d of %d bytes: answered %q, %d counted", cmd, n, len(d.args), got, w.counterSum("treadle_protocol_errors_total", "truncated"))
			}
			// A LOAD submits the jobs before the cut.
			if after := fmt.Sprint(statusOf(w.Server), w.sched.Timeout()); after != before && cmd != periodic.Load {
				t.Errorf("%v with %d of %d bytes changed %s to %s", cmd, n, len(d.args), before, after)
			}
			c.send(request(1, periodic.Ping))
			if got := c.bodies(1); len(got) != 1 || got[0] != "0a" {
				t.Errorf("%v with %d bytes: afterwards PING is answered %q", cmd, n, got)
			}
		}
		if cmd == periodic.Shutdown {
			continue
		}
		w, c := newPeer(t, Options{}, role)
		c.send(request(5, cmd, d.args, bytes.Repeat([]byte{0xee}, 20)))
		if got := c.bodies(5); len(got) == 1 && got[0] == "0c" || w.counterSum("treadle_protocol_errors_total", "truncated") != 0 {
			t.Errorf("%v with bytes behind its arguments: answered %q", cmd, got)
		}
	}
}

// TestLimitsAreAnswered: a request over a limit is answered with UNKNOWN and counted.
func TestLimitsAreAnswered(t *testing.T) {
	t.Parallel()
	w, client := newPeer(t, Options{}, byClient)
	for i := range uint32(sched.MaxAwaits) {
		client.send(request(i, periodic.RunJob, job("f", "n")))
	}
	client.send(request(1, periodic.RunJob, job("f", "n")))
	if got := client.bodies(1); len(got) != 1 || got[0] != "0c" || w.refusedFor(periodic.ReasonWaiters) != 1 {
		t.Errorf("one waiter too many gets %q, %d counted", got, w.refusedFor(periodic.ReasonWaiters))
	}
	if raceDetector {
		return // the rest takes it seven seconds
	}
	worker := w.join(0, periodic.Worker)
	worker.grabs(1000, sched.MaxSlots)
	worker.catchUp()
	if n := len(worker.frames()); n != 0 {
		t.Fatalf("%d of the allowed grabs are answered", n)
	}
	worker.grabs(1, 3)
	if got := worker.frames(); len(got) != 3 || w.refusedFor(periodic.ReasonWorker) != 3 {
		t.Errorf("%d answers to three more, %d counted", len(got), w.refusedFor(periodic.ReasonWorker))
	}
}
