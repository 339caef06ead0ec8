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
func (h *Protocol) Listen() (all []protocol.Listening, err error) {
	for _, p := range []struct {
		setting   string
		addresses []string
	}{{SettingXML, h.o.Listen}, {SettingJSON, h.o.JSON}} {
		for _, a := range p.addresses {
			l, err := h.host.Listen(name, p.setting, a)
			if err != nil {
				return nil, err
			}
			h.servers = append(h.servers, h.newServer(l, p.setting))
			all = append(all, protocol.ListeningOn(p.setting, l))
		}
	}
	if len(h.servers) > 0 {
		h.site, err = newSite(h, h.o.MongoDB)
	}
	return all, err
}

// newServer returns the HTTP server of one address of a setting.
func (h *Protocol) newServer(l net.Listener, setting string) *web.Server {
	limits := h.host.Limits()
	return web.NewServer(l, web.Config{
		Handler: h.Handler(setting), Guard: h.host.Guard(), Log: h.host.Log(), MaxHeader: maxHeader, MaxBody: codec.MaxRequest,
		Header: limits.HandshakeTimeout, Request: limits.FrameTimeout, Answer: 2 * limits.FrameTimeout, Idle: idleTimeout,
	})
}

// Handler answers calls to the addresses of a setting. It does not check the Host header.
func (h *Protocol) Handler(setting string) http.HandlerFunc {
	answer := h.serveXML
	if setting == SettingJSON {
		answer = h.serveJSON
	}
	return func(w http.ResponseWriter, r *http.Request) {
		runtime.Gosched() // otherwise a peer that calls without pause holds a processor for 10 ms
		answer(w, r)
	}
}

// Serve implements protocol.Service.
func (h *Protocol) Serve(context.Context) {
	for _, s := range h.servers {
		h.running.Go(func() {
			if err := s.Serve(); err != nil {
				h.host.Log().Error("kts46 stopped", "error", err)
			}
		})
	}
	if h.o.RestartAfter > 0 {
		h.running.Go(h.supervise)
	}
	if h.site != nil {
		h.running.Go(h.site.connect)
	}
}

// supervise expires silent workers until Close.
func (h *Protocol) supervise() {
	ticker := time.NewTicker(max(h.o.RestartAfter/silenceChecks, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-h.done:
			return
		case <-ticker.C:
			h.Expire()
		}
	}
}

// Drain implements protocol.Service: calls on open connections are still answered.
func (h *Protocol) Drain() {
	for _, s := range h.servers {
		s.Drain()
	}
}

// Owes implements protocol.Service.
func (h *Protocol) Owes() bool { return h.active.Load() > 0 }

// Close implements protocol.Service. Later calls change nothing.
func (h *Protocol) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	for _, s := range h.servers {
		_ = s.Close() // clients had the server's drain time to read their answers
	}
	h.site.close()
	close(h.done)
	h.running.Wait()
}

// answering counts a call until its caller calls done.
func (h *Protocol) answering() (done func()) {
	h.active.Add(1)
	return func() { h.active.Add(-1) }
}

// body reads a call. It answers a call that is too long without reading it and returns false. The caller calls done
// when it has carried out the call, see readCall.
func (h *Protocol) body(w http.ResponseWriter, r *http.Request) (body []byte, done func(), ok bool) {
	if r.ContentLength <= codec.MaxRequest {
		body, done, err := h.readCall(w, r.Body, r.ContentLength)
		if err == nil {
			return body, done, true
		}
		if !errors.As(err, new(*http.MaxBytesError)) {
			h.stats.cut.Add(1)
			panic(http.ErrAbortHandler) // the client cannot be answered
		}
	}
	h.stats.tooLarge.Add(1)
	w.Header().Set("Connection", "close")
	h.send(w, http.StatusRequestEntityTooLarge, "text/plain", []byte(fmt.Sprintf("a call has at most %dMiB\n", codec.MaxRequest>>20)))
	return nil, nil, false
}

// send writes an answer and flushes it to the socket.
func (h *Protocol) send(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	var err error
	if len(body) > h.host.Limits().LargeOutput {
		_, transfer := h.unread.Begin(context.Background(), w)
		defer transfer.End()
		err = transfer.Send(w, body)
	} else {
		_, err = w.Write(body)
	}
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	if err != nil {
		h.stats.cut.Add(1)
	}
}
