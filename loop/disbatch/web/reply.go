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

// refusal is why a request is not done. Routes and pages share the functions that carry out requests, and each shows a
// refusal in its own form.
type refusal struct {
	status     int
	why        string
	member     string // of the reply, with why; empty: error
	more       object // further members of the reply
	unreadable bool   // the collection with the parameters of new tasks cannot be read
}

// refused returns a refusal.
func refused(status int, why string) *refusal { return &refusal{status: status, why: why} }

// bad returns the refusal of an invalid or failed request.
func bad(format string, args ...any) *refusal {
	return refused(http.StatusBadRequest, fmt.Sprintf(format, args...))
}

// with sets further members of the reply.
func (f *refusal) with(more object) *refusal {
	f.more = more
	return f
}

// members returns the members of the reply.
func (f *refusal) members() object {
	body := object{cmp.Or(f.member, "error"): f.why}
	maps.Copy(body, f.more)
	return body
}

// reply returns the reply to a refused request.
func (f *refusal) reply() reply { return reply{status: f.status, body: f.members()} }

// answer is the reply to a request with a result or a refusal.
func answer(result any, fault *refusal) reply {
	if fault != nil {
		return fault.reply()
	}
	return success(result)
}

// missing is the refusal of a request for a queue or node that does not exist or could not be read. It has more members
// in the first case.
func (c *dci) missing(kind, doing string, err error, more object) *refusal {
	if !errors.Is(err, store.ErrNotFound) {
		return c.failed(doing, err)
	}
	return refused(http.StatusNotFound, kind+" not found").with(more)
}

// failed is the refusal of a request that the database failed or that exceeded a limit. It logs failures of the
// database once a second at most.
func (c *dci) failed(what string, err error) *refusal {
	err = c.store.Explain(err)
	f := bad("Could not %s: %s", what, strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, errBusy) {
		f.status = http.StatusServiceUnavailable
	}
	now := time.Now().Unix()
	if last := c.logged.Load(); last != now && !errors.Is(err, errLongResult) && !errors.Is(err, errBusy) && c.logged.CompareAndSwap(last, now) {
		c.log.Warn("the database failed", "doing", what, "error", err)
	}
	return f
}

// unavailable is failed for a page, which needs the database.
func (c *dci) unavailable(what string, err error) *refusal {
	f := c.failed(what, err)
	f.status = http.StatusServiceUnavailable
	return f
}

// send encodes a reply.
func send(w http.ResponseWriter, a reply) {
	text, whole := a.body.(json.RawMessage) // it may be long
	var err error
	if !whole || a.pretty {
		text, err = encode(a.body, a.pretty)
	}
	if err != nil {
		a.status, text = http.StatusInternalServerError, []byte(`{"error":"the reply cannot be said in JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = w.Write(text) // a client that is gone needs no reply
}
