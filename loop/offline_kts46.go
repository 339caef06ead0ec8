//go:build invariants

package loop

import (
	"net/http"

	"treadle/loop/kts46"
)

// offlineCall is one call of the kts46 protocols. It runs on a goroutine of its own, as in a
// server with sockets, but never at the same time as anything else: whoever starts it or
// has it go on waits until it waits for a commit, or is over.
type offlineCall struct {
	header http.Header
	status int
	body   []byte
	reply  func(status int, body []byte)

	parked chan uint64   // it waits for this group to be committed
	resume chan error    // the group is, or never will be
	over   chan struct{} // it is answered
	group  uint64
}

// Kts46 makes a call, as the only one of a connection of its own, to a port named as its
// setting: kts46 or kts46-json. reply is called with the answer, now or after a Commit;
// a status of 0 is a connection that was closed instead.
func (o *Offline) Kts46(port string, request *http.Request, reply func(status int, body []byte)) {
	answer := o.kts46().Handler(port)
	c := &offlineCall{
		header: http.Header{}, reply: reply,
		parked: make(chan uint64), resume: make(chan error), over: make(chan struct{}),
	}
	o.calling = c
	go func() {
		defer close(c.over)
		defer func() {
			if recover() != nil {
				c.status = 0
			}
		}()
		answer(c, request)
	}()
	select {
	case c.group = <-c.parked:
		o.calls = append(o.calls, c)
	case <-c.over:
		reply(c.status, c.body)
	}
	o.Settle()
}

// kts46 is the protocol.
func (o *Offline) kts46() *kts46.Hub {
	for p := range protocolsWith[*kts46.Hub](o.server) {
		return p
	}
	return nil
}

// parkCall is awaitCommit for the call that runs.
func (o *Offline) parkCall(group uint64) error {
	c := o.calling
	c.parked <- group
	return <-c.resume
}

// resumeCalls answers the calls that have waited long enough; false: there are none.
func (o *Offline) resumeCalls() (some bool) {
	for len(o.calls) > 0 {
		c := o.calls[0]
		failed := o.server.failure.Load()
		switch {
		case c.group <= o.server.journal.journal.Committed():
			o.calls = o.calls[1:]
			c.goOn(nil)
		case failed != nil:
			o.calls = o.calls[1:]
			c.goOn(failed)
		default:
			return some
		}
		some = true
	}
	return some
}

func (c *offlineCall) goOn(why error) {
	c.resume <- why
	<-c.over
	c.reply(c.status, c.body)
}

// Header implements http.ResponseWriter.
func (c *offlineCall) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *offlineCall) WriteHeader(status int) { c.status = status }

// Write implements http.ResponseWriter.
func (c *offlineCall) Write(b []byte) (int, error) {
	c.body = append(c.body, b...)
	return len(b), nil
}

// Flush implements http.Flusher.
func (c *offlineCall) Flush() {}
