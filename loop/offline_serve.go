//go:build invariants

package loop

import (
	"context"
	"net"

	"treadle/loop/protocol"
)

// Serve serves the ports whose protocols have goroutines of their own, as a server with
// sockets does: dwork, kts46 and kts46-json, named as their settings, on what these
// listeners accept. What they were sent must be dealt with before anything else is asked of
// the server; synctest knows when that is. It is called once, and Close in the end.
func (o *Offline) Serve(ports map[string]net.Listener) {
	o.serves = true
	o.server.listenOn = func(setting, _ string) (net.Listener, error) {
		if l := ports[setting]; l != nil {
			return l, nil
		}
		return unheard{}, nil
	}
	for service := range protocolsWith[protocol.Service](o.server) {
		_, _ = service.Listen() // nothing is opened that could fail
		service.Serve(context.Background())
	}
}

// unheard is a listener to which nobody connects.
type unheard struct{}

// Accept implements net.Listener.
func (unheard) Accept() (net.Conn, error) { return nil, net.ErrClosed }

// Close implements net.Listener.
func (unheard) Close() error { return nil }

// Addr implements net.Listener.
func (unheard) Addr() net.Addr { return &net.TCPAddr{} }

// Close ends what Serve began, and returns when its goroutines have ended.
func (o *Offline) Close() {
	o.server.closeServices()
	close(o.server.stopped)
	o.server.workers.Wait()
}
