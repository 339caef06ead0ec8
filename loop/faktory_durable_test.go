package loop

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"treadle/codec/faktory"
)

// faktoryPeer is a client of Faktory's protocol over a socket.
type faktoryPeer struct{ testConn }

// dialFaktory connects and says HELLO.
func dialFaktory(t *testing.T, path string) *faktoryPeer {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	p := &faktoryPeer{testConn{t: t, Conn: c}}
	p.want(`HI {"v":2}`)
	p.asks(`HELLO {"v":2}`, "OK")
	return p
}

func (p *faktoryPeer) sends(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.Conn, line+"\r\n"); err != nil {
		p.t.Fatal(err)
	}
}

// want checks how the next reply begins.
func (p *faktoryPeer) want(want string) {
	p.t.Helper()
	for {
		_, data, n, err := faktory.NextReply(p.in, 1<<20)
		if err != nil {
			p.t.Fatal(err)
		}
		if n > 0 {
			if !strings.HasPrefix(string(data), want) {
				p.t.Fatalf("the reply is %q, want %q", data, want)
			}
			p.in = p.in[n:]
			return
		}
		var part [4096]byte
		n, err = p.Read(part[:])
		if p.in = append(p.in, part[:n]...); err != nil {
			p.t.Fatalf("want %q: %v", want, err)
		}
	}
}

func (p *faktoryPeer) asks(line, want string) {
	p.t.Helper()
	p.sends(line)
	p.want(want)
}

// TestFaktoryAcknowledgedAfterSync: a PUSH and a PUSHB are answered after the sync. FETCH, ACK and FAIL are answered
// at once.
func TestFaktoryAcknowledgedAfterSync(t *testing.T) {
	t.Parallel()
	d, socket := newDisk(), filepath.Join(t.TempDir(), "f")
	r := d.on(t, Options{Faktory: FaktoryOptions{Listen: []string{"unix://" + socket}}})
	c, w := dialFaktory(t, socket), dialFaktory(t, socket)
	for n, command := range []string{`PUSH {"jid":"first-01","jobtype":"T","args":[]}`, `PUSHB [{"jid":"first-02","jobtype":"T","args":[]}]`} {
		d.gate.Lock()
		c.sends(command)
		r.until("the job", func() bool { return r.Server.sched.Stats().Jobs == n+1 })
		w.asks("FETCH default", `{"retry":25`)
		w.asks([]string{`FAIL {"jid":"first-01"}`, `ACK {"jid":"first-02"}`}[n], "OK")
		if !c.silent() {
			t.Errorf("%s is answered before it is on disk", command)
		}
		d.gate.Unlock()
		c.want([]string{"OK", "{}"}[n])
	}
}

// TestFaktoryRestart: reservations, failures, unique jobs and paused queues survive the process.
func TestFaktoryRestart(t *testing.T) {
	t.Parallel()
	d, socket := newDisk(), filepath.Join(t.TempDir(), "f")
	o := Options{Faktory: FaktoryOptions{Listen: []string{"unix://" + socket}}}
	r := d.on(t, o)
	c := dialFaktory(t, socket)
	c.asks(`PUSH {"jid":"reserved","jobtype":"T","args":[1],"custom":{"unique_for":600}}`, "OK")
	c.asks(`PUSH {"jid":"failed-1","jobtype":"T","args":[2]}`, "OK")
	c.asks(`PUSH {"jid":"unique-1","jobtype":"T","args":[3],"custom":{"unique_for":600},"queue":"paused"}`, "OK")
	c.asks(`PUSH {"jid":"started1","jobtype":"T","args":[4],"custom":{"unique_for":600,"unique_until":"start"}}`, "OK")
	c.asks("FETCH default", `{"retry":25,"custom":{"unique_for":600},"jid":"reserved"`)
	c.asks("FETCH default", `{"retry":25,"jid":"failed-1"`)
	c.asks("FETCH default", `{"retry":25,"custom":{"unique_for":600,"unique_until":"start"},"jid":"started1"`)
	c.asks(`FAIL {"jid":"failed-1","errtype":"E","message":"m","backtrace":["a:1"]}`, "OK")
	c.asks("QUEUE PAUSE paused", "OK")
	r.stop()

	d.on(t, o)
	c = dialFaktory(t, socket)
	c.asks(`PUSH {"jid":"reserve2","jobtype":"T","args":[1],"custom":{"unique_for":600}}`, "NOTUNIQUE")
	c.asks(`PUSH {"jid":"unique-2","jobtype":"T","args":[3],"custom":{"unique_for":600},"queue":"paused"}`, "NOTUNIQUE")
	c.asks(`PUSH {"jid":"started2","jobtype":"T","args":[4],"custom":{"unique_for":600},"queue":"other"}`, "OK")
	c.asks(`ACK {"jid":"reserved"}`, "OK")
	c.asks(`PUSH {"jid":"reserve2","jobtype":"T","args":[1],"custom":{"unique_for":600}}`, "OK")
	c.asks("FETCH paused other", `{"retry":25,"custom":{"unique_for":600},"jid":"started2"`)
	c.asks(`MUTATE {"cmd":"requeue","target":"retries","filter":{"regexp":"*\"errtype\":\"E\"*"}}`, "OK")
	c.asks("FETCH default", `{"retry":25,"custom":{"unique_for":600},"jid":"reserve2"`)
	c.asks("FETCH default", `{"retry":25,"failure":{"failed_at":"`)
	c.asks(`FAIL {"jid":"started1"}`, "OK")
	c.asks("QUEUE RESUME paused", "OK")
	c.asks("FETCH paused", `{"retry":25,"custom":{"unique_for":600},"jid":"unique-1"`)
}

// TestFaktoryDoesGloom checks what workers of Faktory's protocol receive of a Gloom job, and what its master hears
// of an ACK.
func TestFaktoryDoesGloom(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{})
	master, c := w.openGloom(0, true), w.openPort(0, "faktory")
	c.stalks(`HELLO {"v":2}`, "+HI {\"v\":2}\r\n+OK\r\n")
	master.asks(`"i"`, `"f"`, `,"body":{"a":1}`)
	c.send([]byte("FETCH f\r\n"))
	w.settle()
	got := string(c.read)
	_, jid, _ := strings.Cut(got, `"jid":"`)
	if jid, _, _ = strings.Cut(jid, `"`); !strings.HasSuffix(got, `"args":[{"a":1}]}`+"\r\n") || !strings.Contains(got, `"custom":{"name":"i"}`) {
		t.Fatalf("the job is %q", got)
	}
	c.read = nil
	c.stalks(fmt.Sprintf(`ACK {"jid":%q}`, jid), "+OK\r\n")
	master.hears("ACK", `{"id":"i","body":""}`)
	c.stalks(fmt.Sprintf(`ACK {"jid":%q}`, jid), "+OK\r\n") // again
	master.hears("a second ACK")
}
