package loop

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"treadle/codec/periodic"
)

// crcRequest is request in the CRC framing.
func crcRequest(id uint32, cmd periodic.Command, args ...[]byte) []byte {
	b := periodic.AppendMessage(periodic.BeginRequest(nil, periodic.CRC), id, cmd)
	for _, a := range args {
		b = append(b, a...)
	}
	periodic.End(b, 0, periodic.CRC)
	return b
}

// joinCRC is join in the CRC framing.
func (w *memServer) joinCRC(loop int, role periodic.Role) *memConn {
	w.t.Helper()
	c := w.open(loop)
	c.send(periodic.AppendHello(nil, &periodic.Hello{Framing: periodic.CRC, Role: role}))
	if len(c.read) < periodic.CRC.HeaderLen() {
		w.t.Fatalf("the greeting was answered with %x", c.read)
	}
	c.read = nil
	return c
}

// workerCRC connects a worker of functions in the CRC framing, of type 1 as that of go-periodic: nothing answers its
// GRAB_JOBs but jobs.
func (w *memServer) workerCRC(loop int, functions ...string) *memConn {
	w.t.Helper()
	c := w.joinCRC(loop, periodic.Client)
	for i, f := range functions {
		c.send(crcRequest(uint32(i), periodic.CanDo, str8(f)))
	}
	c.read = nil
	return c
}

// crcFrames is frames in the CRC framing.
func (c *memConn) crcFrames() (all []periodic.Response) {
	c.w.t.Helper()
	for {
		var r periodic.Response
		n, err := periodic.NextResponse(c.read, periodic.CRC, periodic.MaxPayload, &r)
		if err != nil {
			c.w.t.Fatalf("the server sent no frame: %v", err)
		}
		if n == 0 {
			return all
		}
		all = append(all, r)
		c.read = c.read[n:]
	}
}

// crcBodies are those of the frames that a peer got, in hex, each behind its message id.
func (c *memConn) crcBodies() (all []string) {
	c.w.t.Helper()
	for _, r := range c.crcFrames() {
		all = append(all, fmt.Sprintf("%d:%x", r.MsgID, r.Body))
	}
	return all
}

// keyOf is how the versions of the CRC framing name a job to its worker.
func keyOf(function, name string) []byte { return append(str8(function), str8(name)...) }

// crcDocumented are the requests of the CRC framing: the arguments, the length from which
// they are whole (-1: their own), and the body of the answer by version. A server with one
// pending job of a function without workers answers so.
var crcDocumented = map[periodic.Command]struct {
	args    []byte
	least   int
	answers [5]string // by crcEras
}{
	periodic.Ping:          {nil, 0, always("0a")},
	periodic.SubmitJob:     {job("f", "n", 1, 2), -1, always("10")},
	periodic.RunJob:        {job("f", "n", 1, 2), -1, [5]string{"", "1d", "1d", "1d", "1d"}},
	periodic.Status:        {nil, 0, report([]byte("held,0,1,0,0,1795239475"))},
	periodic.DropFunc:      {str8("func"), -1, always("10")},
	periodic.RemoveJob:     {keyOf("func", "name"), -1, always("10")},
	periodic.Dump:          {nil, 0, report(append(count(1), job("held", "n")...))},
	periodic.Load:          {append(count(1), job("f", "a", 7)...), -1, always("10")},
	periodic.Shutdown:      {nil, 0, always("")},
	periodic.ConfigGet:     {str8("timeout"), -1, always("1800000258")},
	periodic.ConfigSet:     {append(str8("timeout"), 0, 0, 0, 9), -1, always("10")},
	periodic.GrabJob:       {nil, 0, always("")}, // see grabbed
	periodic.WorkDone:      {append(keyOf("f", "n"), "result"...), 4, acked()},
	periodic.WorkFail:      {keyOf("f", "n"), -1, acked()},
	periodic.SchedLater:    {append(keyOf("f", "n"), 0, 0, 0, 0, 0, 0, 0, 5, 0, 1), -1, acked()},
	periodic.CanDo:         {str8("g"), -1, acked()},
	periodic.CantDo:        {str8("g"), -1, acked()},
	periodic.Broadcast:     {str8("g"), -1, acked()},
	periodic.Sleep:         {nil, 0, always("00")},
	periodic.Acquire:       {append(append(str8("lock"), 0, 1), keyOf("f", "n")...), -1, always("1a00")},
	periodic.Release:       {append(str8("lock"), keyOf("f", "n")...), -1, acked()},
	periodic.RecvData:      {job("f", "n"), -1, always("1d")},
	periodic.WorkData:      {append(keyOf("f", "n"), "part"...), 4, always("10")},
	periodic.JobAssigned:   {nil, 0, always("")},
	periodic.JobUnassigned: {nil, 0, always("")},
}

var crcVersions = [5]string{"2019-02", "2019", "2020", "2023", "2026"}

func always(body string) [5]string { return [5]string{body, body, body, body, body} }

// acked is the answer to a report of a worker: from 2023 on.
func acked() [5]string { return [5]string{"", "", "", "10", "10"} }

// report is bare in 2019, and DATA from 2020 on.
func report(body []byte) [5]string {
	bare := hex.EncodeToString(body)
	return [5]string{bare, bare, "1e" + bare, "1e" + bare, "1e" + bare}
}

// grabbed is the answer to a GRAB_JOB before the job: from 2023 on SUCCESS on connections of workers, and nothing on
// those of clients, as which the workers of go-periodic register, that fill up with replies they do not wait for.
func grabbed(version int, role periodic.Role) string {
	if version >= 3 && role == periodic.Worker {
		return "10"
	}
	return ""
}

// newCRCPeer is newPeer in the CRC framing.
func newCRCPeer(t *testing.T, o Options, role periodic.Role) (*memServer, *memConn) {
	t.Helper()
	w := newMemServer(t, o)
	client := w.join(0, periodic.Client)
	client.send(request(1, periodic.SubmitJob, job("held", "n")))
	client.close()
	return w, w.joinCRC(0, role)
}

// TestEveryCRCCommand sends every command byte there is in every version of the CRC framing, as
// client and as worker: the two may do the same, and get the answer of the version.
func TestEveryCRCCommand(t *testing.T) {
	t.Parallel()
	for version, name := range crcVersions {
		for _, role := range []periodic.Role{periodic.Client, periodic.Worker} {
			for b := range 256 {
				cmd := periodic.Command(b)
				what := fmt.Sprintf("%v in %s from role %d", cmd, name, role)
				d, known := crcDocumented[cmd]
				want := d.answers[version]
				switch {
				case !known:
					want = "0c"
				case cmd == periodic.GrabJob:
					want = grabbed(version, role)
				}
				w, c := newCRCPeer(t, Options{Periodic: PeriodicOptions{CRC: name}}, role)
				c.send(crcRequest(7, cmd, d.args))
				got := c.crcBodies()
				if want == "" && len(got) != 0 || want != "" && (len(got) != 1 || got[0] != "7:"+want) {
					t.Errorf("%s: answered %q, want %q", what, got, want)
				}
				if w.stopped != (cmd == periodic.Shutdown) {
					t.Errorf("%s: the server stops: %v", what, w.stopped)
				}
				if n := w.counterSum("treadle_protocol_errors_total", "unknown_command"); n != btoi(!known) || w.counterSum("treadle_protocol_errors_total", "wrong_role") != 0 {
					t.Errorf("%s: counted as unknown %d, as of the wrong role %d", what, n, w.counterSum("treadle_protocol_errors_total", "wrong_role"))
				}
				c.send(crcRequest(1, periodic.Ping))
				if got := c.crcBodies(); len(got) != 1 || got[0] != "1:0a" || c.closed {
					t.Errorf("%s: afterwards PING is answered %q", what, got)
				}
			}
		}
	}
}

// TestCRCCommandsInThePlainFraming: no command of the CRC framing exists there, whatever its
// version is.
func TestCRCCommandsInThePlainFraming(t *testing.T) {
	t.Parallel()
	for _, name := range crcVersions {
		for cmd := periodic.Acquired; cmd <= periodic.JobUnassigned; cmd++ {
			for _, role := range []int{byClient, byWorker} {
				w, c := newPeer(t, Options{Periodic: PeriodicOptions{CRC: name}}, role)
				c.send(request(7, cmd, crcDocumented[cmd].args))
				if got := c.bodies(7); len(got) != 1 || got[0] != "0c" {
					t.Errorf("%v in %s: answered %q in the plain framing", cmd, name, got)
				}
				c.send(request(1, periodic.Ping))
				if got := c.bodies(1); len(got) != 1 || got[0] != "0a" || w.counterSum("treadle_protocol_errors_total", "wrong_role")+w.counterSum("treadle_protocol_errors_total", "unknown_command") != 1 {
					t.Errorf("%v in %s: afterwards PING is answered %q", cmd, name, got)
				}
			}
		}
	}
}

// TestEveryCutCRCCommand is TestEveryCutCommand for the CRC framing.
func TestEveryCutCRCCommand(t *testing.T) {
	t.Parallel()
	for cmd, d := range crcDocumented {
		least := d.least
		if least < 0 {
			least = len(d.args)
		}
		for n := range len(d.args) + 1 {
			w, c := newCRCPeer(t, Options{}, periodic.Client)
			before := fmt.Sprint(statusOf(w.Server), w.sched.Timeout())
			c.send(crcRequest(5, cmd, d.args[:n]))
			got, refused := c.crcBodies(), w.counterSum("treadle_protocol_errors_total", "truncated")
			if n >= least {
				if len(got) == 1 && got[0] == "5:0c" || refused != 0 {
					t.Errorf("%v with %d of %d bytes is refused", cmd, n, len(d.args))
				}
				continue
			}
			if len(got) != 1 || got[0] != "5:0c" || refused != 1 {
				t.Errorf("%v with %d of %d bytes: answered %q, %d counted", cmd, n, len(d.args), got, refused)
			}
			if after := fmt.Sprint(statusOf(w.Server), w.sched.Timeout()); after != before {
				t.Errorf("%v with %d of %d bytes changed %s to %s", cmd, n, len(d.args), before, after)
			}
		}
		w, c := newCRCPeer(t, Options{}, periodic.Worker)
		c.send(crcRequest(5, cmd, d.args, bytes.Repeat([]byte{0xee}, 20)))
		if got := c.crcBodies(); len(got) == 1 && got[0] == "5:0c" || w.counterSum("treadle_protocol_errors_total", "truncated") != 0 {
			t.Errorf("%v with bytes behind its arguments: answered %q", cmd, got)
		}
	}
}
