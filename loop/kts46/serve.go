package kts46

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"time"

	codec "treadle/codec/kts46"
	"treadle/loop/protocol"
	"treadle/loop/web"
)

// idleTimeout is the time between two calls of a connection: workers report every few seconds.
const idleTimeout = 5 * time.Minute

// maxHeader is plenty for what clients send.
const maxHeader = 16 << 10

// Listen implements protocol.Service: it opens the addresses of both versions, and the site's MongoDB.
func (p *Protocol) Listen() (all []protocol.Listening, err error) {
	for _, port := range []struct {
		setting   string
		addresses []string
	}{{SettingXML, p.o.Listen}, {SettingJSON, p.o.JSON}} {
		for _, a := range port.addresses {
			l, err := p.host.Listen(name, port.setting, a)
			if err != nil {
				return nil, err
			}
			p.servers = append(p.servers, p.newServer(l, port.setting))
			all = append(all, protocol.ListeningOn(port.setting, l))
		}
	}
	if len(p.servers) > 0 {
		p.site, err = newSite(p, p.o.MongoDB)
	}
	return all, err
}

// newServer returns the HTTP server of one address of a setting.
func (p *Protocol) newServer(l net.Listener, setting string) *web.Server {
	limits := p.host.Limits()
	return web.NewServer(l, web.Config{
		Handler: p.Handler(setting), Guard: p.host.Guard(), Log: p.host.Log(), MaxHeader: maxHeader, MaxBody: codec.MaxRequest,
		Header: limits.HandshakeTimeout, Request: limits.FrameTimeout, Answer: 2 * limits.FrameTimeout, Idle: idleTimeout,
	})
}

// Handler answers calls to the addresses of a setting. It does not check the Host header.
func (p *Protocol) Handler(setting string) http.HandlerFunc {
	answer := p.serveXML
	if setting == SettingJSON {
		answer = p.serveJSON
	}
	return func(w http.ResponseWriter, r *http.Request) {
		runtime.Gosched() // otherwise a peer that calls without pause holds a processor for 10 ms
		answer(w, r)
	}
}

// Serve implements protocol.Service.
func (p *Protocol) Serve(context.Context) {
	for _, s := range p.servers {
		p.goroutines.Go(func() {
			if err := s.Serve(); err != nil {
				p.host.Log().Error("kts46 stopped", "error", err)
			}
		})
	}
	if p.o.RestartAfter > 0 {
		p.goroutines.Go(p.supervise)
	}
	if p.site != nil {
		p.goroutines.Go(p.site.connect)
	}
}

// supervise expires silent workers until Close.
func (p *Protocol) supervise() {
	ticker := time.NewTicker(max(p.o.RestartAfter/silenceChecks, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-ticker.C:
			p.Expire()
		}
	}
}

// Drain implements protocol.Service: calls on open connections are still answered.
func (p *Protocol) Drain() {
	for _, s := range p.servers {
		s.Drain()
	}
}

// HasPending implements protocol.Service.
func (p *Protocol) HasPending() bool { return p.active.Load() > 0 }

// Close implements protocol.Service. Later calls change nothing.
func (p *Protocol) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	for _, s := range p.servers {
		_ = s.Close() // clients had the server's drain time to read their answers
	}
	p.site.close()
	close(p.done)
	p.goroutines.Wait()
}

// answering counts a call until its caller calls done.
func (p *Protocol) answering() (done func()) {
	p.active.Add(1)
	return func() { p.active.Add(-1) }
}

// body reads a call. It answers a call that is too long without reading it and returns false. The caller calls done
// when it has carried out the call, see readCall.
func (p *Protocol) body(w http.ResponseWriter, r *http.Request) (body []byte, done func(), ok bool) {
	if r.ContentLength <= codec.MaxRequest {
		body, done, err := p.readCall(w, r.Body, r.ContentLength)
		if err == nil {
			return body, done, true
		}
		if !errors.As(err, new(*http.MaxBytesError)) {
			p.stats.cut.Add(1)
			panic(http.ErrAbortHandler) // the client cannot be answered
		}
	}
	p.stats.tooLarge.Add(1)
	w.Header().Set("Connection", "close")
	p.send(w, reply{http.StatusRequestEntityTooLarge, "text/plain", fmt.Appendf(nil, "a call has at most %dMiB\n", codec.MaxRequest>>20)})
	return nil, nil, false
}

// reply is a reply over HTTP.
type reply struct {
	status int
	kind   string // Content-Type
	body   []byte
}

const typeJSON = "application/json"

// isUnavailable reports whether an error is the server's: its journal has failed, or it stops.
func isUnavailable(err error) bool {
	return errors.As(err, new(*unwrittenError)) || errors.Is(err, errStopping)
}

// unavailable returns the reply to a call that the server cannot carry out now.
func unavailable(err error) reply {
	return reply{http.StatusServiceUnavailable, "text/plain", []byte(err.Error() + "\n")}
}

// send writes a reply and flushes it to the socket.
func (p *Protocol) send(w http.ResponseWriter, r reply) {
	w.Header().Set("Content-Type", r.kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	w.WriteHeader(r.status)
	var err error
	if len(r.body) > p.host.Limits().LargeOutput {
		_, transfer := p.unread.Begin(context.Background(), w)
		defer transfer.End()
		err = transfer.Send(w, r.body)
	} else {
		_, err = w.Write(r.body)
	}
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		p.stats.cut.Add(1)
	}
}
