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
	// maxHandshakes is how many connections may be in their handshake, or wait to be accepted after it, at all
	// addresses together. One more ends the oldest, so that strangers that send nothing keep nobody out.
	maxHandshakes = 128
	// tlsFiles is the number of descriptors that they may take.
	tlsFiles = 3 * maxHandshakes
	// tlsStalled is how long a client may take nothing of what it is sent, 32 KiB at a time.
	tlsStalled = 30 * time.Second
	// tlsLinger is how long a client whose session has ended may send on. What it sends is read: a reset might take the
	// last reply from it.
	tlsLinger = time.Second
)

// tlsPorts opens the addresses tls://host:port. Goroutines decrypt a connection and pass it on, through a pair of
// sockets, to what serves the port, as one that another node forwards. Plain connections have no part in it.
type tlsPorts struct {
	o                TLSOptions
	handshakeTimeout time.Duration
	log              *slog.Logger
	logLimit         throttle
	failed           atomic.Uint64 // handshakes
	most             int64         // connections that are passed on: --max-connections
	open             atomic.Int64  // connections that are passed on, also those whose session has ended

	mu         sync.Mutex
	stores     map[string]*certs.Store // by host:port
	handshakes list.List               // of *handshake, the oldest first
}

// handshake is a connection until it is accepted.
type handshake struct {
	net.Conn
	ended chan struct{} // closed when others have taken its place, or its listener is closed
}

func newTLSPorts(o *Options) *tlsPorts {
	return &tlsPorts{o: o.TLS, handshakeTimeout: o.HandshakeTimeout, log: o.Log, most: int64(o.MaxConnections), stores: make(map[string]*certs.Store)}
}

// openPort opens one address of a setting, of any network.
func (p *tlsPorts) openPort(setting, address string) (net.Listener, error) {
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

// prepareReload reads the certificates that have changed. use puts all of them to use.
func (p *tlsPorts) prepareReload() (use func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var uses []func()
	for _, s := range p.stores {
		use, err := s.Prepare()
		if err != nil {
			return nil, err
		}
		uses = append(uses, use)
	}
	return func() {
		for _, use := range uses {
			use()
		}
	}, nil
}

// wait waits until all clients have what their sessions have written, but no longer than a limit.
func (p *tlsPorts) wait(limit time.Duration) {
	for end := time.Now().Add(limit); p.open.Load() > 0 && time.Now().Before(end); {
		time.Sleep(drainPeriod)
	}
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
	closeOnce    sync.Once
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

// Close implements net.Listener. It ends the connections that were not accepted.
func (l *tlsListener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// run accepts connections of TCP until the listener is closed.
func (l *tlsListener) run() {
	for {
		c, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			select {
			case l.accepted <- acceptResult{nil, err}: // the caller pauses
			case <-l.closed:
				return
			}
		default:
			go l.serve(l.ports.begin(c))
		}
	}
}

// begin counts a connection among those that are not accepted yet. It ends the oldest of too many.
func (p *tlsPorts) begin(c net.Conn) (_ *handshake, accepted func()) {
	h := &handshake{c, make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handshakes.Len() == maxHandshakes {
		oldest := p.handshakes.Remove(p.handshakes.Front()).(*handshake)
		close(oldest.ended)
		_ = oldest.Close() // its handshake fails
	}
	at := p.handshakes.PushBack(h)
	return h, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.handshakes.Remove(at) // nothing if it is no longer there
	}
}

// serve makes the handshake of a connection, and passes it on until it ends.
func (l *tlsListener) serve(h *handshake, accepted func()) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-l.closed:
			_ = h.Close() // its handshake fails
		case <-ended:
		}
	}()
	client, near, err := l.accept(h)
	close(ended)
	accepted()
	if err != nil {
		_ = h.Close()               // it has failed
		if errors.Is(err, io.EOF) { // a probe of the port, which sends nothing
			return
		}
		l.ports.failed.Add(1)
		if l.ports.logLimit.allow(time.Now().UnixMilli()) {
			l.ports.log.Info("a TLS handshake has failed", "remote", h.RemoteAddr(), "listener", l.Addr(), "error", err)
		}
		return
	}
	defer l.ports.open.Add(-1)
	passOn(client, near)
}

var (
	errTLSEvicted = errors.New("too many others have come since")
	errTLSFull    = errors.New("all of --max-connections are open")
)

// accept makes the handshake of a connection, in the time of --handshake-timeout, and has the next Accept return it.
// near is the end of a pair whose bytes are those within TLS. It counts the connection as open.
func (l *tlsListener) accept(h *handshake) (client *tls.Conn, near *net.UnixConn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.ports.handshakeTimeout)
	defer cancel()
	client = tls.Server(h.Conn, l.config)
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	if l.ports.open.Add(1) > l.ports.most {
		l.ports.open.Add(-1)
		return nil, nil, errTLSFull
	}
	near, far, err := splice.Pair()
	if err == nil {
		from := &forwardedClient{network: "tls", address: h.RemoteAddr().String()}
		select {
		case l.accepted <- acceptResult{&forwardedConn{UnixConn: far, client: from, port: l.Addr()}, nil}:
			return client, near, nil
		case <-h.ended:
			err = errTLSEvicted
		case <-l.closed:
			err = net.ErrClosed
		}
		_, _ = near.Close(), far.Close() // neither was used
	}
	l.ports.open.Add(-1)
	return nil, nil, err
}

// passOn copies bytes between a client and the near end of a pair until both directions have ended. A session has ended
// when its end of the pair is closed: the client then gets what is left, and may send on for tlsLinger.
func passOn(client *tls.Conn, near *net.UnixConn) {
	requests := make(chan struct{})
	go func() {
		defer close(requests)
		err := splice.Copy(near, client)
		_ = near.CloseWrite() // the session sends what it owes, if it has not ended
		if err != nil {
			_, _ = io.Copy(io.Discard, client) // nothing if it is the client that has failed
		}
	}()
	if splice.Copy(deadlineWriter{client}, near) != nil || client.SetDeadline(time.Now().Add(tlsLinger)) != nil || client.CloseWrite() != nil {
		_ = client.Close() // it cannot be written to
	}
	<-requests
	_, _ = client.Close(), near.Close() // both have had their ends
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
