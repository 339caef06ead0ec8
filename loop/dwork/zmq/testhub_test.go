package zmq

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait: what takes longer has failed.
const patience = 30 * time.Second

// testHub is a listener whose hub echoes.
type testHub struct {
	*Listener
	t       *testing.T
	address string
	pipes   *pipes // its connections, instead of sockets

	mu      sync.Mutex
	trouble []error
}

// listen starts a listener on a free port without a hub.
func listen(t *testing.T, o Options) *testHub {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listenOn(t, ln, o)
}

func listenOn(t *testing.T, ln net.Listener, o Options) *testHub {
	r := &testHub{t: t, address: ln.Addr().String()}
	o.OnFault = func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.trouble = append(r.trouble, err)
	}
	r.Listener = Listen(ln, o)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// echo starts a listener and its hub.
func echo(t *testing.T, o Options) *testHub {
	t.Helper()
	r := listen(t, o)
	r.hub(echoes)
	return r
}

func echoes(batch []Request) {
	for _, q := range batch {
		q.Reply(q.Payload)
	}
}

// hub takes batches until the test ends.
func (r *testHub) hub(handle func([]Request)) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		var batch []Request
		for {
			select {
			case <-r.Ready():
				batch = r.Take(batch[:0])
				handle(batch)
			case <-quit:
				return
			}
		}
	})
	r.t.Cleanup(func() { close(quit); done.Wait() })
}

// client dials as this package does.
func (r *testHub) client() *Client {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	dial := func() (*Client, error) { return Dial(ctx, "tcp://"+r.address) }
	if r.pipes != nil {
		dial = func() (*Client, error) { return NewClient(ctx, r.pipes.connect()) }
	}
	c, err := dial()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// ask expects an echo.
func ask(t *testing.T, c *Client, payload string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if reply, err := c.Request(ctx, []byte(payload)); err != nil || string(reply) != payload {
		t.Fatalf("asked %q, got %q, %v", payload, reply, err)
	}
}

// serves checks that a client that was there and a new one are served.
func (r *testHub) serves(old *Client) {
	r.t.Helper()
	ask(r.t, old, "old")
	fresh := r.client()
	ask(r.t, fresh, "new")
	_ = fresh.Close()
}

// until waits for a count, which has no event of its own.
func (r *testHub) until(what string, reached func(Stats) bool) {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !reached(r.Stats()); <-tick.C {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within %v: %+v", what, patience, r.Stats())
		}
	}
}

// heard reports whether trouble with that text was logged.
func (r *testHub) heard(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.trouble {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// peer is a socket that sends what it likes.
type peer struct {
	net.Conn
	t  *testing.T
	in *bufio.Reader
}

func (r *testHub) peer() *peer {
	r.t.Helper()
	dial := func() (net.Conn, error) { return net.Dial("tcp", r.address) }
	if r.pipes != nil {
		dial = func() (net.Conn, error) { return r.pipes.connect(), nil }
	}
	nc, err := dial()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	return &peer{nc, r.t, bufio.NewReader(nc)}
}

// greeting is that of a ZMTP 3.1 client without security.
var greeting = append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x01NULL"), make([]byte, 48)...)

// property is one of READY's.
func property(name, value string) string {
	return string(rune(len(name))) + name + "\x00\x00\x00" + string(rune(len(value))) + value
}

// commandFrame is the frame of a short command.
func commandFrame(name, body string) string {
	return "\x04" + string(rune(1+len(name)+len(body))) + string(rune(len(name))) + name + body
}

// friend is a peer behind its handshake.
func (r *testHub) friend(identity string) *peer {
	r.t.Helper()
	p := r.peer()
	p.send(string(greeting) + commandFrame("READY", property("Socket-Type", "DEALER")+property("Identity", identity)))
	p.skip(greetingSize)
	frame := p.skip(2)
	p.skip(int(frame[1]))
	return p
}

func (p *peer) send(bytes string) {
	p.t.Helper()
	if _, err := io.WriteString(p, bytes); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) skip(n int) []byte {
	p.t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(p.in, b); err != nil {
		p.t.Fatal(err)
	}
	return b
}

func (p *peer) expect(want string) {
	p.t.Helper()
	if got := p.skip(len(want)); string(got) != want {
		p.t.Fatalf("got %q, want %q", got, want)
	}
}

// closed waits until the server has closed the connection.
func (p *peer) closed() {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.in); errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("still open after %v", patience)
	}
}

// frames makes a message of short frames.
func frames(bodies ...string) string {
	var b bytes.Buffer
	for i, body := range bodies {
		flags := byte(moreFlag)
		if i == len(bodies)-1 {
			flags = 0
		}
		b.Write(appendHeader(nil, flags, len(body)))
		b.WriteString(body)
	}
	return b.String()
}
