package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"treadle/loop/disbatch/store"
)

// reply is a status and a body to send as JSON.
type reply struct {
	status int
	body   any
	pretty bool
}

func success(body any) reply { return reply{status: http.StatusOK, body: body} }

// requestError is why a request is not done. Routes and pages share the functions that carry out requests, and each
// shows the error in its own form. The makers of an error are:
//
//   - newRequestError: any status
//   - badRequest: an invalid request, 400
//   - lookupError: a queue or node that does not exist, 404, or could not be read
//   - databaseError: a failure of the database, or a limit that was exceeded
//   - pageError: databaseError with 503, for a page
//   - duplicate: a write that a unique index refused
//
// The forms are members and reply here, legacyReply and the other replies of legacy.go, and pageData.show.
type requestError struct {
	status     int
	why        string
	member     string // name of the reply's member with why; empty: error
	body       object // further members of the reply
	unreadable bool   // the collection with the parameters of new tasks cannot be read
}

// newRequestError returns an error with a status.
func newRequestError(status int, why string) *requestError {
	return &requestError{status: status, why: why}
}

// badRequest returns the error of an invalid request.
func badRequest(format string, args ...any) *requestError {
	return newRequestError(http.StatusBadRequest, fmt.Sprintf(format, args...))
}

// with sets further members of the reply.
func (e *requestError) with(body object) *requestError {
	e.body = body
	return e
}

// members returns the members of the reply.
func (e *requestError) members() object {
	body := object{cmp.Or(e.member, "error"): e.why}
	maps.Copy(body, e.body)
	return body
}

// reply returns the reply to a refused request.
func (e *requestError) reply() reply { return reply{status: e.status, body: e.members()} }

// answer is the reply to a request that has a result or an error.
func answer(result any, refusal *requestError) reply {
	if refusal != nil {
		return refusal.reply()
	}
	return success(result)
}

// lookupError is the error of a request for a queue or node that does not exist or could not be read. The reply has the
// members of body if it does not exist.
func (c *commandInterface) lookupError(kind, doing string, err error, body object) *requestError {
	if !errors.Is(err, store.ErrNotFound) {
		return c.databaseError(doing, err)
	}
	return newRequestError(http.StatusNotFound, kind+" not found").with(body)
}

// databaseError is the error of a request that the database failed or that exceeded a limit. It logs failures of the
// database.
func (c *commandInterface) databaseError(what string, err error) *requestError {
	err = c.store.Explain(err)
	e := badRequest("Could not %s: %s", what, strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, errBusy) {
		e.status = http.StatusServiceUnavailable
	}
	if !errors.Is(err, errLongResult) && !errors.Is(err, errBusy) {
		c.logFailure(what, err)
	}
	return e
}

// logFailure logs a failure of the database, once a second at most.
func (c *commandInterface) logFailure(what string, err error) {
	now := time.Now().Unix()
	if last := c.logged.Load(); last != now && c.logged.CompareAndSwap(last, now) {
		c.log.Warn("the database failed", "doing", what, "error", err)
	}
}

// pageError is databaseError for a page, which is unavailable without the database.
func (c *commandInterface) pageError(what string, err error) *requestError {
	e := c.databaseError(what, err)
	e.status = http.StatusServiceUnavailable
	return e
}

// send encodes a reply.
func send(w http.ResponseWriter, a reply) {
	text, encoded := a.body.(json.RawMessage) // it may be long
	var err error
	if !encoded || a.pretty {
		text, err = encode(a.body, a.pretty)
	}
	if err != nil {
		a.status, text = http.StatusInternalServerError, []byte(`{"error":"the reply cannot be said in JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = w.Write(text) // a client that is gone needs no reply
}
