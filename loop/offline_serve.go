//go:build invariants

package loop

import "net"

// Serve serves the ports whose protocols have goroutines of their own, as a server with
// sockets does: dwork, kts46 and kts46-json, named as their settings, on what these
// listeners accept. What they were sent must be dealt with before anything else is asked of
// the server; synctest knows when that is. It is called once, and Close in the end.
func (o *Offline) Serve(ports map[string]net.Listener) {
	o.serves = true
	dwork, kts := o.server.dwork, o.server.kts46
	for port, l := range ports {
		switch port {
		case "dwork":
			dwork.sockets = append(dwork.sockets, l)
		case "kts46":
			kts.add(l, kts.serveXML)
		case "kts46-json":
			kts.add(l, kts.serveJSON)
		default:
			panic("no port is called " + port)
		}
	}
	dwork.serve()
	kts.serve()
}

// Close ends what Serve began, and returns when its goroutines have ended.
func (o *Offline) Close() {
	close(o.server.stopped)
	o.server.dwork.closeSockets()
	o.server.kts46.close()
	o.server.workers.Wait()
}
