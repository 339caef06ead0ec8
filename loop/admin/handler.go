package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/loop/web"
	"treadle/sched"
)

// badRequest is an error that the operator can mend.
type badRequest struct{ error }

// Unwrap returns the error itself.
func (b *badRequest) Unwrap() error { return b.error }

// notFound is an error about a job or a name that is not there.
type notFound struct{ error }

// Unwrap returns the error itself.
func (n *notFound) Unwrap() error { return n.error }

// conflict is an error about something that is not as the request needs it.
type conflict struct{ error }

// Unwrap returns the error itself.
func (c *conflict) Unwrap() error { return c.error }

// unavailable is an error that says the same request may be taken later.
type unavailable struct{ error }

// Unwrap returns the error itself.
func (u *unavailable) Unwrap() error { return u.error }

// wrongMethod is an error about a request that its path does not take.
type wrongMethod struct{ error }

// changes are the requests that change something, without those about jobs that come and go. They leave audit records.
func (api *API) changes() map[string]func(*http.Request) (any, error) {
	return map[string]func(*http.Request) (any, error){
		"POST /api/v1/cron":              api.postCron,
		"POST /api/v1/cron/remove":       api.cronVerb((*API).removeCron),
		"POST /api/v1/cron/run":          api.cronVerb((*API).runCron),
		"POST /api/v1/cron/pause":        api.cronVerb((*API).pauseCron),
		"POST /api/v1/cron/resume":       api.cronVerb((*API).resumeCron),
		"PATCH /api/v1/policies":         api.patchPolicies,
		"POST /api/v1/reload":            api.postReload,
		"POST /api/v1/connections/close": api.closeConnection,
		"POST /api/v1/connections/quiet": api.quietConnection,
		"POST /api/v1/jobs/change":       api.postChange,
		"POST /api/v1/operations/cancel": api.postCancel,
		"POST /api/v1/queues/pause":      api.postPause,
		"POST /api/v1/queues/resume":     api.postResume,
		"POST /api/v1/queues/drain":      api.postDrain,
		"POST /api/v1/queues/empty":      api.postEmpty,
	}
}

// Handler answers the requests, whatever host they name.
func (api *API) Handler() http.Handler {
	mux, methods := http.NewServeMux(), make(map[string][]string)
	for pattern, serve := range api.routes() {
		mux.HandleFunc(pattern, api.onlyDescribed(pattern, serve))
		method, path, _ := strings.Cut(pattern, " ")
		methods[path] = append(methods[path], method)
		slices.Sort(methods[path])
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		allowed := methods[r.URL.Path]
		if allowed == nil {
			api.write(w, nil, &notFound{errors.New("there is no such request, see treadle help api")})
			return
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		api.write(w, nil, &wrongMethod{fmt.Errorf("%s takes %s, not %.20s", r.URL.Path, strings.Join(allowed, " or "), r.Method)})
	})
	return mux
}

// routes returns the requests by their patterns of net/http. openapi.json describes each.
func (api *API) routes() map[string]http.HandlerFunc {
	routes := make(map[string]http.HandlerFunc)
	all := map[string]func(*http.Request) (any, error){
		"GET /api/v1/cron":         api.getCron,
		"GET /api/v1/policies":     api.getPolicies,
		"GET /api/v1/settings":     api.getSettings,
		"GET /api/v1/queues":       api.getQueues,
		"GET /api/v1/jobs":         api.getJobs,
		"GET /api/v1/overview":     api.getOverview,
		"GET /api/v1/history":      api.getHistory,
		"GET /api/v1/connections":  api.getConnections,
		"GET /api/v1/operations":   api.getOperations,
		"GET /api/v1/audit":        api.getAudit,
		"GET /api/v1/job":          api.getJob,
		"POST /api/v1/reserve":     api.postReserve,
		"GET /api/v1/openapi.json": api.getOpenAPI,
		"GET /api/v1/jobs/causes":  api.getCauses,
		"GET /api/v1/job/graph":    api.getGraph,
		"GET /api/v1/projects":     api.getProjects,
		"GET /api/v1/cluster":      api.getCluster,
		"GET /api/v1/disbatch":     api.getDisbatch,

		"GET /api/v1/disbatch/tasks": api.getDisbatchTasks,
		"GET /api/v1/disbatch/task":  api.getDisbatchTask,
	}
	for pattern, answer := range api.changes() {
		all[pattern] = api.auditing(pattern, answer)
	}
	for pattern, answer := range all {
		routes[pattern] = func(w http.ResponseWriter, r *http.Request) {
			r.Body = endIfSlow(w, http.MaxBytesReader(w, r.Body, maxRequest))
			v, err := answer(r)
			api.write(w, v, err)
		}
	}
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"POST /api/v1/leases/done":     postReports[doneReport](api),
		"POST /api/v1/leases/fail":     postReports[failReport](api),
		"POST /api/v1/leases/release":  postReports[releaseReport](api),
		"POST /api/v1/leases/extend":   postReports[extendReport](api),
		"POST /api/v1/leases/progress": postReports[progressReport](api),
	} {
		routes[pattern] = api.withLargeBody(answer)
	}
	routes["POST /api/v1/jobs"] = api.postJobs
	routes["GET /api/v1/job/workload"] = api.sendPart("workload", false)
	routes["GET /api/v1/job/result"] = api.sendPart("result", true)
	routes["GET /api/v1/disbatch/text"] = api.sendDisbatchText
	routes["GET /api/v1/backup"] = api.getBackup
	return routes
}

// withLargeBody returns a handler of requests that may have a job's data. It reads the body before it calls answer.
func (api *API) withLargeBody(answer func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, done, err := api.readBody(w, r)
		defer done()
		if err != nil {
			api.write(w, nil, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		v, err := answer(r)
		api.write(w, v, err)
	}
}

// readBody reads a body that may have a job's data. The body counts among those that the server holds until done is
// called.
func (api *API) readBody(w http.ResponseWriter, r *http.Request) (body []byte, done func(), err error) {
	_, transfer := api.incoming.Begin(r.Context(), w)
	body, err = transfer.ReadAll(endIfSlow(w, http.MaxBytesReader(w, r.Body, api.maxBody())), int(min(max(r.ContentLength, 0), api.maxBody())))
	return body, transfer.End, err
}

// ownerOnly are the requests that the socket answers alone, which only the server's owner may connect to: they are
// about the server itself.
var ownerOnly = []string{"/api/v1/reload", "/api/v1/backup"}

// Routes implements protocol.RouteProvider.
func (api *API) Routes() []web.Route {
	handler := api.Handler()
	return []web.Route{{Pattern: "/api/v1/", Long: true, Handler: handler.ServeHTTP, Allow: func(w http.ResponseWriter, r *http.Request) bool {
		err := CheckCaller(r)
		if err != nil {
			if errors.Is(err, errElsewhere) {
				w.Header().Set("Connection", "close")
			}
			web.RefuseJSON(w, http.StatusForbidden, err.Error())
		}
		return err == nil
	}}}
}

// Why a request of the port is refused.
var (
	errElsewhere = errors.New("the API answers programs on this machine alone, as long as there are no users: ask for it through an SSH tunnel")
	errOwnerOnly = errors.New("this is for the server's owner alone: ask on the socket of --admin")
)

// CheckCaller returns an error if a request on the port of --http is refused: it comes from another machine, or is for
// the owner alone.
func CheckCaller(r *http.Request) error {
	switch {
	case !fromLoopback(r):
		return errElsewhere
	case slices.Contains(ownerOnly, r.URL.Path):
		return errOwnerOnly
	}
	return nil
}

// fromLoopback reports whether a request comes from this machine.
func fromLoopback(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// write answers a request. The unread answers of all requests are bounded together. When they exceed the bound, the one
// that was last read longest ago ends.
func (api *API) write(w http.ResponseWriter, v any, err error) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // fails only when the connection is closed
	status := http.StatusOK
	if err != nil {
		e := codec.Error{Error: err.Error()}
		var large *http.MaxBytesError
		if status, e.Reason = errorStatus(err); status == http.StatusRequestTimeout {
			e.Error = errStopped.Error()
		} else if errors.As(err, &large) {
			e.Error = api.tooLarge(large.Limit)
		}
		v = e
	}
	text := encode(v)
	if ended, ok := v.(*waited); ok {
		api.results.give(ended.resultBytes)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff") // a workload may read as a page
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	jobs, ok := v.(*leased)
	gone := ok && jobs.ctx.Err() != nil // later the peer may have closed because it has the answer
	_, transfer := api.outgoing.Begin(context.Background(), w)
	defer transfer.End()
	err = transfer.Send(w, text)
	// Only an answer with leases must be known to have failed.
	if ok && (gone || err != nil || http.NewResponseController(w).Flush() != nil) {
		jobs.unsent()
	}
}

// tooLarge returns the error of a body of more than limit bytes.
func (api *API) tooLarge(limit int64) string {
	if limit == maxRequest {
		return fmt.Sprintf("the body has more than %d bytes", limit)
	}
	return fmt.Sprintf("the body has more than %d bytes, the most that --max-frame=%d allows", limit, api.host.Limits().MaxFrame)
}

// encode returns the JSON of an answer, a type of package codec/admin.
func encode(v any) []byte {
	if jobs, ok := v.(*leased); ok {
		return append(jobs.AppendJSON(make([]byte, 0, jobs.size)), '\n')
	}
	var encoded bytes.Buffer
	e := json.NewEncoder(&encoded)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return encoded.Bytes()
}

// errorStatus returns the HTTP status of an error, and the reason that its answer names.
func errorStatus(err error) (status int, reason string) {
	if status, reason = leaseError(err); status != 0 {
		return status, reason
	}
	var refused *refusal
	var withStatus interface{ HTTPStatus() int }
	switch {
	case errors.As(err, &withStatus):
		return withStatus.HTTPStatus(), ""
	case errors.As(err, &refused):
		return statusOf(refused.reason), refused.reason.String()
	case errors.As(err, new(*wrongMethod)):
		return http.StatusMethodNotAllowed, ""
	case errors.As(err, new(*unsupported)):
		return http.StatusUnsupportedMediaType, ""
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout, ""
	case errors.As(err, new(*http.MaxBytesError)):
		return http.StatusRequestEntityTooLarge, ""
	case errors.As(err, new(*badRequest)):
		return http.StatusBadRequest, ""
	case errors.As(err, new(*conflict)):
		return http.StatusConflict, ""
	case errors.As(err, new(*lostResult)):
		return http.StatusInsufficientStorage, ""
	case errors.As(err, new(*unavailable)):
		return http.StatusServiceUnavailable, ""
	case errors.Is(err, sched.ErrNotFound), errors.As(err, new(*notFound)):
		return http.StatusNotFound, ""
	}
	return http.StatusInternalServerError, ""
}

// statusOf returns the HTTP status of a refusal. 507 and 503 say that the same request may be taken later.
func statusOf(why protocol.Reason) int {
	switch why {
	case protocol.ReasonDisk, protocol.ReasonMemory, protocol.ReasonMaxMemory:
		return http.StatusInsufficientStorage
	case protocol.ReasonSize:
		return http.StatusRequestEntityTooLarge
	case protocol.ReasonPolicy:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// decodeBody decodes a request's body, which has no members but v's.
func decodeBody(r *http.Request, v any) error {
	text, err := io.ReadAll(r.Body) // net/http notices that the peer has gone when the body was read to its end
	if err != nil {
		return err
	}
	return decode(text, v)
}

// getPolicies answers GET /policies with all rules, or with the values of one queue and the rule of each.
func (api *API) getPolicies(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	t := api.policies()
	var answer codec.Table
	if queue := q.Get("queue"); queue != "" {
		answer.Queue, answer.QueueBytes = codec.Name(queue)
		for _, v := range t.Explain(string(protocol.Queue([]byte(queue)))) {
			answer.Values = append(answer.Values, valueOf(v))
		}
		return &answer, nil
	}
	for _, rule := range t.Rules() {
		one := codec.Rule{Source: rule.Source.String(), Values: rule.Values}
		one.Pattern, one.PatternBytes = codec.Name(protocol.Unescape(rule.Pattern))
		answer.Rules = append(answer.Rules, one)
	}
	for _, k := range sched.PolicyKeys() {
		answer.Keys = append(answer.Keys, codec.Key{Name: k.Name, Example: k.Example, Meaning: k.Meaning})
	}
	return &answer, nil
}

// patchPolicies answers PATCH /policies: it changes a rule of the run time.
func (api *API) patchPolicies(r *http.Request) (any, error) {
	var c codec.PolicyChange
	if err := decodeBody(r, &c); err != nil {
		return nil, err
	}
	changed, err := api.changePolicy(&c)
	if err != nil {
		return nil, err
	}
	if err := api.commit(); err != nil {
		return nil, err
	}
	return api.ruleOf(c.Pattern, changed), nil
}

// runTime returns the values of a run-time rule. One that there is not has no values.
func (api *API) runTime(pattern string) map[string]string {
	api.mu.Lock()
	defer api.mu.Unlock()
	values := make(map[string]string) // in JSON an object, also of none
	maps.Copy(values, api.rules[pattern])
	return values
}
