package loop

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"treadle/codec/periodic"
	"treadle/loop/certs/certtest"
)

// tlsServer is a testServer on an address of TLS that checks its clients.
type tlsServer struct {
	*testServer
	address string
	client  *tls.Config // with a certificate
}

func startTLS(t *testing.T) *tlsServer {
	t.Helper()
	authority := certtest.New(t, "ours")
	own := authority.Issue(t.TempDir(), "server", time.Now().Add(time.Hour))
	client := authority.Issue(t.TempDir(), "client", time.Now().Add(time.Hour))
	o := Options{TLS: TLSOptions{Cert: own.Cert, Key: own.Key, CA: own.CA}, HTTP: "127.0.0.1:0"}
	o.Periodic.Listen = []string{"tls://127.0.0.1:0"}
	r := startServer(t, o)
	return &tlsServer{r, r.listeners[0].Addr().String(), authority.Client(&client)}
}

// dial connects over TLS.
func (r *tlsServer) dial() (*testConn, *tls.Conn) {
	r.t.Helper()
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", r.address, r.client)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return &testConn{Conn: c, t: r.t}, c
}

// greet connects over TLS and says hello in the framing of 2018.
func (r *tlsServer) greet(role periodic.Role) (*testConn, *tls.Conn) {
	r.t.Helper()
	w, c := r.dial()
	w.send(periodic.AppendHello(nil, &periodic.Hello{Role: role}))
	w.next()
	return w, c
}

// TestTLS: a job of several megabytes goes through TLS to a worker, replies follow the end of a client's requests, and
// a session's end is an orderly one for its client.
func TestTLS(t *testing.T) {
	t.Parallel()
	r := startTLS(t)
	client, half := r.greet(periodic.Client)
	worker, _ := r.greet(periodic.Worker)
	workload := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	worker.send(request(1, periodic.CanDo, str8("f")), request(2, periodic.GrabJob, nil))
	client.ask(1, periodic.SubmitJob, job("f", "n", workload...), byte(periodic.Success))
	if _, j := assigned(t, worker.next()); !bytes.Equal(j.Workload, workload) {
		t.Errorf("the worker gets %d bytes", len(j.Workload))
	}
	client.send(request(2, periodic.Ping, nil), request(3, periodic.Ping, nil))
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	client.want(2, byte(periodic.Pong))
	client.want(3, byte(periodic.Pong))
	if err := client.more(); err != io.EOF {
		t.Errorf("a client that has ended its requests: %v, want the end", err)
	}

	bad, _ := r.dial()
	bad.send([]byte("GET / HTTP/1.1\r\n\r\n"))
	bad.wantClosed()
	if list := fmt.Sprint((host{r.Server}).Connections(0, 10)); !strings.Contains(list, "tls://127.0.0.1:") {
		t.Errorf("the connections are %v", list)
	}
}

// TestTLSStrangers: a client without a certificate, one without TLS and one that does not finish the handshake are sent
// away, and keep nobody out.
func TestTLSStrangers(t *testing.T) {
	t.Parallel()
	r := startTLS(t)
	without := r.client.Clone()
	without.Certificates = nil
	if c, err := tls.Dial("tcp", r.address, without); err == nil { // TLS 1.3 refuses at the first read
		if _, err := c.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "certificate required") {
			t.Errorf("a client without a certificate: %v", err)
		}
		c.Close()
	}
	plain := r.dialPlain()
	plain.send(periodic.AppendHello(nil, &periodic.Hello{Role: periodic.Client}))
	plain.wantClosed()
	r.wantMetric("treadle_tls_handshakes_failed_total", 2)

	var silent []*testConn
	for range maxHandshakes + 10 {
		silent = append(silent, r.dialPlain())
	}
	client, _ := r.greet(periodic.Client)
	client.ping()
	silent[0].wantClosed()
	for _, c := range silent {
		c.Close()
	}
}

// dialPlain connects without TLS.
func (r *tlsServer) dialPlain() *testConn {
	r.t.Helper()
	c, err := net.DialTimeout("tcp", r.address, patience)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return &testConn{Conn: c, t: r.t}
}

// TestTLSSettings: settings of TLS that cannot work are named.
func TestTLSSettings(t *testing.T) {
	t.Parallel()
	own := certtest.New(t, "ours").Issue(t.TempDir(), "server", time.Now().Add(time.Hour))
	f := func(want string, change func(*Options)) {
		t.Helper()
		o := Options{Data: NoData}
		change(&o)
		if _, err := o.Effective(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	at := []string{"tls://127.0.0.1:0"}
	f("has no certificate: give --tls-cert and --tls-key", func(o *Options) { o.Periodic.Listen = at })
	f("go together", func(o *Options) { o.TLS.Cert = own.Cert })
	f("no address is tls://", func(o *Options) { o.TLS.Cert, o.TLS.Key = own.Cert, own.Key })
	f("none: no such file", func(o *Options) { o.Gloom.Masters, o.TLS.Cert, o.TLS.Key = at, own.Cert+"none", own.Key })
	f("no ZeroMQ client speaks TLS", func(o *Options) { o.Dwork.Listen = at })
	f("is for this machine", func(o *Options) { o.Admin.Listen = at })
	f("?cart= behind tls://127.0.0.1:0 is none of cert, key and ca", func(o *Options) { o.Faktory.Listen = []string{at[0] + "?cart=x"} })
	f("go together", func(o *Options) { o.Faktory.Listen = []string{at[0] + "?cert=x"} })
	f("", func(o *Options) { o.HTTP = at[0] + "?cert=" + own.Cert + "&key=" + own.Key })
	f("", func(o *Options) {
		o.Periodic.Listen = []string{at[0] + "?crc=2020&cert=" + own.Cert + "&key=" + own.Key}
	})
	f("neither host:port nor tls://host:port", func(o *Options) { o.HTTP = "tls://nowhere" })
}
