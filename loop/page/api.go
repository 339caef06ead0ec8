package page

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	codec "treadle/codec/admin"
)

const apiRoot = "/api/v1"

// api is the HTTP API, which the pages ask as any of its clients.
type api struct {
	handler http.Handler
	allow   func(*http.Request) error
}

// apiError is an answer of the API that is an error.
type apiError struct {
	status int
	text   string
}

// Error implements error.
func (e *apiError) Error() string { return e.text }

// statusOf returns the HTTP status of a page that cannot be shown because of err.
func statusOf(err error) int {
	if refused := new(apiError); errors.As(err, &refused) {
		return refused.status
	}
	return http.StatusInternalServerError
}

// recorder takes the answer of the API to a request in this process. It implements http.ResponseWriter.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *recorder) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *recorder) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *recorder) Write(b []byte) (int, error) { return a.body.Write(b) }

// request returns the request of the API that a request of a page makes: it comes from the same peer.
func (a *api) request(r *http.Request, method, path string, query url.Values, body []byte) (*http.Request, error) {
	ask, err := http.NewRequestWithContext(r.Context(), method, apiRoot+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	ask.URL.RawQuery, ask.RemoteAddr = query.Encode(), r.RemoteAddr
	ask.Header.Set("Content-Type", "application/json")
	return ask, a.allow(ask)
}

// do sends a request in the name of r's peer, and decodes the answer unless into is nil. An answer that is an error is
// an apiError.
func (a *api) do(r *http.Request, method, path string, query url.Values, body []byte, into any) error {
	ask, err := a.request(r, method, path, query, body)
	if err != nil {
		return &apiError{http.StatusForbidden, err.Error()}
	}
	got := recorder{header: http.Header{}, status: http.StatusOK}
	a.handler.ServeHTTP(&got, ask)
	if got.status >= http.StatusBadRequest {
		var e codec.Error
		if err := json.Unmarshal(got.body.Bytes(), &e); err != nil {
			return fmt.Errorf("an error of the API cannot be read: %w", err)
		}
		return &apiError{got.status, e.Error}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(got.body.Bytes(), into); err != nil {
		return fmt.Errorf("an answer of the API cannot be read: %w", err)
	}
	return nil
}

// get sends a GET and decodes the answer. query are names and values, one after the other.
func (a *api) get(r *http.Request, into any, path string, query ...string) error {
	return a.do(r, http.MethodGet, path, values(query...), nil, into)
}

// post sends a POST with a body in JSON, and decodes the answer unless into is nil.
func (a *api) post(r *http.Request, into any, path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return a.do(r, http.MethodPost, path, nil, text, into)
}

// values returns names and values, one after the other, as a query. Those without a value are left out.
func values(query ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if query[i+1] != "" {
			q.Set(query[i], query[i+1])
		}
	}
	return q
}

// freshFor is how long the overview that every page shows a part of may be used again: a burst of requests makes one.
const freshFor = 250 * time.Millisecond

// cachedOverview is the last overview.
type cachedOverview struct {
	at  time.Time
	all *codec.Overview
	err error
}

// overviewQueues is how many queues an overview has.
const overviewQueues = 10

// currentOverview returns the overview, which is at most freshFor old. The caller must not change it.
func (s *Pages) currentOverview(r *http.Request) (*codec.Overview, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.overview.at) > freshFor {
		all := new(codec.Overview)
		err := s.api.get(r, all, "/overview", "limit", fmt.Sprint(overviewQueues))
		if s.overview = (cachedOverview{time.Now(), all, err}); r.Context().Err() != nil {
			s.overview.at = time.Time{}
		}
	}
	return s.overview.all, s.overview.err
}
