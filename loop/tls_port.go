package loop

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"treadle/loop/certs"
	"treadle/loop/splice"
	"treadle/loop/web"
)

const (
	// maxHandshakes is how many connections of an address may be in their handshake. One more ends the oldest, so that
	// strangers that send nothing keep nobody out.
	maxHandshakes = 512
	// tlsStalled is how long a client may take nothing of what it is sent, 32 KiB at a time.
	tlsStalled = 2 * time.Minute
)

// tlsPorts opens the addresses tls://host:port. Goroutines decrypt a connection and pass it on, through a pair of
// sockets, to what serves the port, as one that another node forwards. Plain connections have no part in it.
type tlsPorts struct {
	o                TLSOptions
	handshakeTimeout time.Duration
	log              *slog.Logger
	logLimit         throttle
	failed           atomic.Uint64 // handshakes

	mu     sync.Mutex
	stores map[string]*certs.Store // by host:port
}

func newTLSPorts(o *Options) *tlsPorts {
	return &tlsPorts{o: o.TLS, handshakeTimeout: o.HandshakeTimeout, log: o.Log, stores: make(map[string]*certs.Store)}
}

// open opens one address of a setting, of any network.
func (p *tlsPorts) open(setting, address string) (net.Listener, error) {
	files, err := p.o.filesOf(address)
	if err != nil {
		return nil, &OptionError{Setting: setting, Err: err}
	}
	tcp, err := openAddress(setting, address)
	if err != nil || !strings.HasPrefix(address, "tls://") {
		return tcp, err
	}
	store, err := certs.Open(files, p.o.least(), p.log)
	if err != nil {
		_ = tcp.Close() // no peer has used it
		return nil, &OptionError{Setting: setting, Err: err, Code: exitFailure}
	}
	p.mu.Lock()
	p.stores[tcp.Addr().String()] = store
	p.mu.Unlock()
	l := &tlsListener{Listener: tcp, ports: p, config: store.Config(), accepted: make(chan acceptResult), closed: make(chan struct{})}
	go l.run()
	return l, nil
}

// reload reads the certificates that have changed.
func (p *tlsPorts) reload() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []error
	for _, s := range p.stores {
		all = append(all, s.Reload())
	}
	return errors.Join(all...)
}

// checksClients reports whether the clients of an open address need a certificate.
func (p *tlsPorts) checksClients(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stores[address]
	return s != nil && s.ChecksClients()
}

// firstExpiry returns when the first certificate of an address expires, or zero.
func (p *tlsPorts) firstExpiry() (first time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stores {
		if at := s.Expiry(); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// samples returns the metrics of all addresses.
func (p *tlsPorts) samples() (all []web.Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.stores) == 0 {
		return nil
	}
	failures := uint64(0)
	for address, s := range p.stores {
		failures += s.Failures()
		all = append(all, web.Gauge("treadle_tls_not_after_timestamp_seconds",
			"When the certificate of an address, or one between it and the root, expires.", s.Expiry().Unix()).With("listener", address))
	}
	return append(all,
		web.Counter("treadle_tls_handshakes_failed_total", "Connections whose TLS handshake failed.", p.failed.Load()),
		web.Counter("treadle_tls_reloads_failed_total", "Changed certificates that could not be used; the old ones stay.", failures),
	)
}

// tlsListener is an address tls://host:port. Its Accept returns a *forwardedConn.
type tlsListener struct {
	net.Listener // of TCP
	ports        *tlsPorts
	config       *tls.Config
	accepted     chan acceptResult
	closed       chan struct{}
	close        sync.Once

	mu         sync.Mutex
	handshakes list.List // of net.Conn, the oldest first
}

// tlsAddr is an address of TCP as that of TLS over it.
type tlsAddr struct{ net.Addr }

// Network implements net.Addr.
func (a tlsAddr) Network() string { return "tls" }

// Addr implements net.Listener.
func (l *tlsListener) Addr() net.Addr { return tlsAddr{l.Listener.Addr()} }

// Accept implements net.Listener.
func (l *tlsListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.Conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It ends the connections that are in their handshake.
func (l *tlsListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.handshakes.Front(); e != nil; e = e.Next() {
		_ = e.Value.(net.Conn).Close() // its handshake fails
	}
	return err
}

// run accepts connections of TCP until the listener is closed.
func (l *tlsListener) run() {
	for {
		c, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			l.deliver(acceptResult{nil, err}) // the caller pauses
		default:
			go l.serve(c)
		}
	}
}

// deliver has the next Accept return a result. It reports whether there was one.
func (l *tlsListener) deliver(a acceptResult) bool {
	select {
	case l.accepted <- a:
		return true
	case <-l.closed:
		return false
	}
}

// serve makes the handshake of a connection, and passes it on until it ends.
func (l *tlsListener) serve(c net.Conn) {
	secured, err := l.handshake(c)
	if err != nil {
		_ = c.Close()                // the handshake has failed
		if !errors.Is(err, io.EOF) { // a probe of the port, which sends nothing
			l.ports.failed.Add(1)
			if l.ports.logLimit.allow(time.Now().UnixMilli()) {
				l.ports.log.Info("a TLS handshake has failed", "remote", c.RemoteAddr(), "listener", l.Addr(), "error", err)
			}
		}
		return
	}
	near, far, err := splice.Pair()
	if err != nil {
		_ = secured.Close() // it was not read
		l.deliver(acceptResult{nil, err})
		return
	}
	client := &forwardedClient{network: "tls", address: c.RemoteAddr().String()}
	if !l.deliver(acceptResult{&forwardedConn{far, client, l.Addr()}, nil}) {
		_, _, _ = secured.Close(), near.Close(), far.Close() // none was used
		return
	}
	passOn(secured, near)
}

// handshake makes the handshake of a connection, in the time of --handshake-timeout.
func (l *tlsListener) handshake(c net.Conn) (*tls.Conn, error) {
	l.mu.Lock()
	if l.handshakes.Len() == maxHandshakes {
		_ = l.handshakes.Remove(l.handshakes.Front()).(net.Conn).Close() // its handshake fails
	}
	pending := l.handshakes.PushBack(c)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.handshakes.Remove(pending) // nothing if it is no longer there
	}()
	ctx, cancel := context.WithTimeout(context.Background(), l.ports.handshakeTimeout)
	defer cancel()
	secured := tls.Server(c, l.config)
	return secured, secured.HandshakeContext(ctx)
}

// passOn copies bytes between a client and the near end of a pair until both directions have ended. A session never
// ends its writing side alone: when it has ended, so has the connection.
func passOn(client *tls.Conn, near *net.UnixConn) {
	requests := make(chan struct{})
	go func() {
		defer close(requests)
		if splice.Copy(near, client) != nil || near.CloseWrite() != nil { // the session sends what it owes
			_ = near.Close() // it ends, and with it the other direction
		}
	}()
	if splice.Copy(deadlineWriter{client}, near) == nil {
		_ = client.CloseWrite() // the client sees an orderly end
	}
	_, _ = client.Close(), near.Close()
	<-requests
}

// deadlineWriter writes to a client that may stall for tlsStalled.
type deadlineWriter struct{ *tls.Conn }

// Write implements io.Writer.
func (w deadlineWriter) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(time.Now().Add(tlsStalled)); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}
