//go:build invariants

package loop

import (
	"net/http"

	"treadle/loop/admin"
	"treadle/loop/kts46"
)

// offlineCall is one call of the kts46 protocols or of the HTTP API. It has a goroutine, as in a server with sockets, that never runs at the same time as anything else: its starter waits until the call is answered or
// waits for a commit.
type offlineCall struct {
	header http.Header
	status int
	body   []byte
	reply  func(status int, body []byte)

	parked   chan uint64   // receives the group that the call waits for
	resume   chan error    // ends that wait
	answered chan struct{} // closed when the call is answered
	group    uint64
}

// Kts46 makes a call on a connection of its own. port is the setting: kts46 or kts46-json. reply is
// called with the answer, now or after a Commit. A status of 0 means that the connection was closed.
func (o *Offline) Kts46(port string, request *http.Request, reply func(status int, body []byte)) {
	o.call(o.kts46().Handler(port), request, reply)
}

// Admin makes a call of the HTTP API. reply is called as by Kts46.
func (o *Offline) Admin(request *http.Request, reply func(status int, body []byte)) {
	o.call(protocolOf[*admin.Interface](o).Handler().ServeHTTP, request, reply)
}

func (o *Offline) call(answer http.HandlerFunc, request *http.Request, reply func(status int, body []byte)) {
	c := &offlineCall{
		header: http.Header{}, reply: reply,
		parked: make(chan uint64), resume: make(chan error), answered: make(chan struct{}),
	}
	o.calling = c
	go func() {
		defer close(c.answered)
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
	case <-c.answered:
		reply(c.status, c.body)
	}
	o.Settle()
}

func (o *Offline) kts46() *kts46.Protocol { return protocolOf[*kts46.Protocol](o) }

// parkCall is awaitCommit for the running call.
func (o *Offline) parkCall(group uint64) error {
	c := o.calling
	c.parked <- group
	return <-c.resume
}

// resumeCalls answers the calls whose groups are committed. It returns false when there are none.
func (o *Offline) resumeCalls() (some bool) {
	for len(o.calls) > 0 {
		c := o.calls[0]
		failed := o.server.failure.Load()
		switch {
		case c.group <= o.server.journal.committed():
			o.calls = o.calls[1:]
			c.resumeWith(nil)
		case failed != nil:
			o.calls = o.calls[1:]
			c.resumeWith(failed)
		default:
			return some
		}
		some = true
	}
	return some
}

func (c *offlineCall) resumeWith(why error) {
	c.resume <- why
	<-c.answered
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
