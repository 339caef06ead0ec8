//go:build invariants

package loop

import (
	"context"
	"net/http"

	"treadle/loop/kts46"
)

// OfflineCall is a call of the kts46 protocols or of the HTTP API on a connection of its own. It implements
// http.ResponseWriter.
type OfflineCall struct {
	request *http.Request
	hangUp  context.CancelFunc
	work    *offlineWork
	header  http.Header
	status  int
	body    []byte
}

// Kts46 makes a call on a connection of its own. port is the setting: kts46 or kts46-json. reply is called with the
// answer, now or in a later Settle. A status of 0 means that the connection was closed.
func (o *Offline) Kts46(port string, request *http.Request, reply func(status int, body []byte)) *OfflineCall {
	return o.call(o.kts46().Handler(port), request, reply)
}

// Admin makes a call of the HTTP API. reply is called as by Kts46.
func (o *Offline) Admin(request *http.Request, reply func(status int, body []byte)) *OfflineCall {
	return o.call(o.operators().Handler().ServeHTTP, request, reply)
}

// call begins a call on a connection of its own. The handler answer runs at once, until it has answered or waits.
func (o *Offline) call(answer http.HandlerFunc, request *http.Request, reply func(status int, body []byte)) *OfflineCall {
	ctx, hangUp := context.WithCancel(request.Context())
	c := &OfflineCall{request: request.WithContext(ctx), hangUp: hangUp, header: http.Header{}}
	c.work = o.newWork(func() {
		defer func() {
			if recover() != nil {
				c.status = 0
			}
		}()
		answer(c, c.request)
	})
	c.work.after = func() {
		hangUp()
		reply(c.status, c.body)
	}
	o.start(c.work)
	o.Settle()
	return c
}

// HangUp ends the connection of a call that has no answer yet. The server notices it in the next Settle. The answer is
// passed on all the same.
func (c *OfflineCall) HangUp() { c.hangUp() }

// Waits reports whether the call waits for something else than the disk: for a job, or for the end of one.
func (c *OfflineCall) Waits() bool { return c.work.wait.token }

func (o *Offline) kts46() *kts46.Protocol { return protocolOf[*kts46.Protocol](o) }

// Header implements http.ResponseWriter.
func (c *OfflineCall) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *OfflineCall) WriteHeader(status int) { c.status = status }

// Write implements http.ResponseWriter.
func (c *OfflineCall) Write(b []byte) (int, error) {
	c.body = append(c.body, b...)
	return len(b), nil
}

// FlushError lets the handler flush, as an http.ResponseController does. It fails when the peer has hung up.
func (c *OfflineCall) FlushError() error { return c.request.Context().Err() }
