//go:build invariants

package loop

import (
	"context"
	"net"

	"treadle/loop/protocol"
)

// Serve serves the protocols with goroutines of their own on listeners, by setting: dwork, kts46 and
// kts46-json. The caller waits, with synctest, until each request is handled before it calls another
// method. Serve is called once, and Close at the end.
func (o *Offline) Serve(ports map[string]net.Listener) {
	o.listens = true
	o.server.listenOn = func(setting, _ string) (net.Listener, error) {
		if l := ports[setting]; l != nil {
			return l, nil
		}
		return noListener{}, nil
	}
	for service := range protocolsWith[protocol.Service](o.server) {
		_, _ = service.Listen() // these listeners are open already
		service.Serve(context.Background())
	}
}

// noListener is a listener without connections.
type noListener struct{}

// Accept implements net.Listener.
func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }

// Close implements net.Listener.
func (noListener) Close() error { return nil }

// Addr implements net.Listener.
func (noListener) Addr() net.Addr { return &net.TCPAddr{} }

// Close ends what Serve began and waits for its goroutines.
func (o *Offline) Close() {
	o.server.closeServices()
	close(o.server.stopped)
	o.server.goroutines.Wait()
}
