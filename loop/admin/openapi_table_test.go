package admin

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// request describes a request of the API.
type request struct {
	route, id, means string
	parameters       []parameter
	body, answer     content
	errors           []int // statuses, beside those that every request may have
}

// content is a body by its kinds. A value stands for its type, several are alternatives, and none means any body.
type content []struct {
	kind   string
	values []any
}

// asJSON returns a body of JSON that is one of the values.
func asJSON(values ...any) content { return content{{"application/json", values}} }

// maxTasks is the most tasks of a page of the Disbatch site.
const maxTasks = 100

// orMany stands for one value of a type, or an array of them.
type orMany struct{ one any }

// inBytes returns a body of bytes.
func inBytes() content { return content{{"application/octet-stream", nil}} }

// parameter is a parameter of the address, or a header.
type parameter struct {
	name, means string
	schema      object
	where       string // default: query
}

func text(name, means string) parameter {
	return parameter{name: name, means: means, schema: kindOf("string")}
}

func number(name string, maximum, usual int, means string) parameter {
	return parameter{name: name, means: means, schema: object{{"type", "integer"}, {"minimum", 1}, {"maximum", maximum}, {"default", usual}}}
}

// paged returns the parameters with those of a page.
func paged(usual int, more ...parameter) []parameter {
	return append(more, number("limit", maxPage, usual, "How many entries the page has at most."),
		text("after", "The member next of the page before: the page goes on behind it."))
}

// oneJob are the parameters of a request about a job.
var oneJob = []parameter{
	text("id", "The id of the job, as a list has it."),
	text("queue", "Instead of id: the queue of the job, with its name."),
	text("name", "The name of the job in its queue."),
	text("protocol", "The protocol by which the job came, where the queue has several of the name."),
}

// oneQueue is the parameter of a request about a queue.
func oneQueue(means string) parameter { return text("queue", means) }

// requests are those of the API.
var requests = []request{
	{
		"POST /api/v1/jobs", "submitJob", "Submit a job, or one of each line of a body of JSON lines, which has no member wait. It is answered when the journal has the jobs.",
		[]parameter{{name: idempotencyKey, where: "header", schema: kindOf("string"), means: "The name of a job that has none: a repeated call adds no second job."}},
		content{{"application/json", []any{codec.Job{}}}, {"application/x-ndjson", nil}, {"application/jsonl", nil}},
		asJSON(codec.Submitted{}, codec.SubmittedLines{}),
		[]int{http.StatusUnsupportedMediaType, http.StatusTooManyRequests, http.StatusInsufficientStorage},
	},
	{
		"GET /api/v1/jobs", "listJobs", "The jobs that a filter means. A page ends at the limit, or when the search has taken some time.",
		paged(defaultJobs, text("filter", "Terms separated by blanks, such as `queue:mail.* state:failed`; left out: all jobs."),
			text("time", "How long the search may take, such as `50ms`, at most and by default `200ms`.")), nil, asJSON(codec.Jobs{}), nil,
	},
	{
		"GET /api/v1/jobs/causes", "listCauses", "The failed jobs by queue and cause: errors that differ in numbers alone are one cause.",
		[]parameter{oneQueue("The failed jobs of this queue; left out: of all queues.")}, nil, asJSON(codec.FailureCauses{}), nil,
	},
	{"GET /api/v1/job", "getJob", "One job, and why it does not run.", oneJob, nil, asJSON(codec.JobDetails{}), []int{http.StatusNotFound, http.StatusConflict}},
	{
		"GET /api/v1/job/graph", "getJobGraph", "The tasks around one, two links far and 150 at most: those that it waits for, and those that wait for it.",
		oneJob, nil, asJSON(codec.Graph{}), []int{http.StatusNotFound, http.StatusConflict},
	},
	{"GET /api/v1/job/workload", "getJobWorkload", "The workload of a job.", oneJob, nil, inBytes(), []int{http.StatusNotFound, http.StatusConflict}},
	{"GET /api/v1/job/result", "getJobResult", "The kept result of a job.", oneJob, nil, inBytes(), []int{http.StatusNotFound, http.StatusConflict}},

	{
		"POST /api/v1/jobs/change", "changeJobs", "Change jobs. Those of ids, or the one of a queue and a name, are changed when it is answered; for those of a filter an operation starts, or with dry_run they are counted.",
		nil, asJSON(codec.JobsChange{}), asJSON(codec.JobsChanged{}, codec.JobsMatched{}, codec.OperationStarted{}), []int{http.StatusNotFound, http.StatusConflict},
	},
	{
		"GET /api/v1/operations", "listOperations", "The last changes of all jobs that a filter means, the newest first.",
		[]parameter{text("id", "One operation alone.")}, nil, asJSON(codec.Operations{}), []int{http.StatusNotFound},
	},
	{
		"POST /api/v1/operations/cancel", "cancelOperation", "Cancel an operation. The jobs that it has changed stay changed.",
		nil, asJSON(codec.Cancel{}), asJSON(codec.Operation{}), []int{http.StatusNotFound, http.StatusConflict},
	},

	{"POST /api/v1/reserve", "reserveJobs", "Lease jobs, or wait for one.", nil, asJSON(codec.Reserve{}), asJSON(codec.Leased{}), []int{http.StatusInsufficientStorage}},
	reports("done", "finishJobs", "End leased jobs as done.", codec.DoneReport{}),
	reports("fail", "failJobs", "Give leased jobs back as failed.", codec.FailReport{}),
	reports("release", "releaseJobs", "Give leased jobs back unstarted.", codec.ReleaseReport{}),
	reports("extend", "extendLeases", "Set when leases end.", codec.ExtendReport{}),
	reports("progress", "publishProgress", "Send data to those that listen to leased jobs.", codec.ProgressReport{}),

	{
		"GET /api/v1/queues", "listQueues", "The queues, each with its counts, in an order.",
		paged(defaultPage, oneQueue("One queue alone."), text("prefix", "Only queues whose names begin so."), text("contains", "Only queues whose names have this text; capitals and small letters are the same."),
			text("sort", "What has the largest number first: `ready`, `running`, `delayed`, `failed`, `done`, `workers`, `oldest`, and of the rates `submitted` and `finished`. Else, and of equals, by name.")), nil, asJSON(codec.Queues{}), []int{http.StatusNotFound},
	},
	{"POST /api/v1/queues/pause", "pauseQueue", "Pause a queue, or those of a pattern. It is answered with the rule.", nil, asJSON(codec.QueueChange{}), asJSON(codec.Rule{}), nil},
	{"POST /api/v1/queues/resume", "resumeQueue", "End a pause. It is answered with the rule.", nil, asJSON(codec.QueueChange{}), asJSON(codec.Rule{}), nil},
	{"POST /api/v1/queues/drain", "drainQueue", "Pause the submits of a queue. It is answered with what the queue has.", nil, asJSON(codec.QueueChange{}), asJSON(codec.Queues{}), []int{http.StatusNotFound}},
	{
		"POST /api/v1/queues/empty", "emptyQueue", "Start an operation that removes the jobs of a queue that no worker has, or with dry_run count them.",
		nil, asJSON(codec.QueueChange{}), asJSON(codec.OperationStarted{}, codec.JobsMatched{}), nil,
	},
	{
		"GET /api/v1/history", "getHistory", "What all jobs, or those of a queue, did in the last minutes or hours. The busiest 200 queues have a history.",
		[]parameter{oneQueue("The queue; left out: all jobs."), text("span", "`5m`, `1h` or `24h`; default: 5m."), text("step", "`5s` joins each five slots of the span 5m.")}, nil, asJSON(codec.History{}), []int{http.StatusNotFound},
	},
	{
		"GET /api/v1/overview", "getOverview", "The server, its counters, its busiest queues and what needs attention.",
		[]parameter{number("limit", maxPage, defaultPage, "How many queues it has one by one; the others are a sum.")}, nil, asJSON(codec.Overview{}), nil,
	},
	{"GET /api/v1/disbatch", "getDisbatch", "The queues and nodes of the Disbatch site of which the server is a node.", nil, nil, asJSON(codec.DisbatchSite{}), []int{http.StatusNotFound}},
	{
		"GET /api/v1/disbatch/tasks", "listDisbatchTasks", "The tasks of the Disbatch site that the parameters mean, the newest first.",
		[]parameter{
			text("queue", "The id or the name of their queue."), text("status", "Their status: a number, or queued, claimed, running, succeeded, failed, orphaned."),
			text("node", "The node that has claimed them."), text("filter", "A filter in JSON, as that of the command interface."),
			number("limit", maxTasks, maxTasks, "How many entries the page has at most."),
			text("after", "The member next of the page before: the page goes on behind it."),
		}, nil, asJSON(codec.DisbatchTasks{}), []int{http.StatusNotFound},
	},
	{
		"GET /api/v1/disbatch/task", "getDisbatchTask", "A task of the Disbatch site, with the first 32 KiB of its payload and of each output.",
		[]parameter{text("id", "The id of the task.")}, nil, asJSON(codec.DisbatchTask{}), []int{http.StatusNotFound},
	},
	{
		"GET /api/v1/disbatch/text", "getDisbatchText", "The payload or an output of a task of the Disbatch site, as bytes.",
		[]parameter{text("id", "The id of the task."), text("name", "`params`, `stdout` or `stderr`.")}, nil, inBytes(), []int{http.StatusNotFound, http.StatusRequestEntityTooLarge},
	},
	{"GET /api/v1/cluster", "getCluster", "The nodes of the server's cluster, as one of them has learned it from all; a server that is alone has none.", nil, nil, asJSON(codec.Cluster{}), nil},
	{
		"GET /api/v1/connections", "listConnections", "The open connections of clients and workers.",
		paged(defaultPage, text("protocol", "Only connections of this protocol."), oneQueue("Only workers of this queue, among the first eight that they serve.")), nil, asJSON(codec.Connections{}), nil,
	},
	{"POST /api/v1/connections/close", "closeConnection", "Close a connection. The jobs of its worker are released.", nil, asJSON(codec.Close{}), asJSON(struct{}{}), []int{http.StatusNotFound}},
	{"POST /api/v1/connections/quiet", "quietConnection", "Ask the worker of a connection to take no more jobs, or to end.", nil, asJSON(codec.Quiet{}), asJSON(struct{}{}), []int{http.StatusNotFound, http.StatusConflict}},

	{
		"GET /api/v1/policies", "getPolicies", "The rules for queues and the keys that they may have; of one queue, its policy.",
		[]parameter{oneQueue("The policy of this queue, each value with its rule.")}, nil, asJSON(codec.Table{}), nil,
	},
	{"PATCH /api/v1/policies", "changePolicy", "Change a rule of the run time. It is answered with the rule.", nil, asJSON(codec.PolicyChange{}), asJSON(codec.Rule{}), nil},

	{
		"GET /api/v1/cron", "listCron", "The cron entries by name, each with its next time.",
		[]parameter{text("entry", "One entry alone."), number("next", maxCronTimes, 1, "Of one entry: how many times to come are shown.")}, nil, asJSON(codec.CronEntries{}), []int{http.StatusNotFound},
	},
	{"POST /api/v1/cron", "addCron", "Add a cron entry, or replace one.", nil, asJSON(codec.CronAdd{}), asJSON(codec.CronEntries{}), nil},
	cronVerb("remove", "removeCron", "Remove a cron entry.", struct{}{}),
	cronVerb("run", "runCron", "Submit the job of a cron entry now.", codec.CronRun{}),
	cronVerb("pause", "pauseCron", "Leave out the times of a cron entry.", struct{}{}),
	cronVerb("resume", "resumeCron", "End the pause of a cron entry.", struct{}{}),

	{
		"GET /api/v1/projects", "listProjects", "The projects of kts46 simulations by name; of one project, its jobs with their progress.",
		paged(defaultPage, text("project", "The jobs of this project.")), nil, asJSON(codec.Projects{}), []int{http.StatusNotFound},
	},
	{
		"GET /api/v1/audit", "listAudit", "The last changes through the API, the newest first.",
		paged(defaultPage), nil, asJSON(codec.Audit{}), nil,
	},
	{"GET /api/v1/settings", "listSettings", "The settings of the server, each with where it comes from.", nil, nil, asJSON(codec.Settings{}), []int{http.StatusBadRequest}},
	{"POST /api/v1/reload", "reload", "Read the configuration again. It is answered with what has changed.", nil, nil, asJSON(codec.SettingChanges{}), []int{http.StatusBadRequest}},
	{"GET /api/v1/backup", "takeBackup", "A backup of all data of the server as of now, as a tar archive, for treadle restore.", nil, nil, content{{"application/x-tar", nil}}, []int{http.StatusConflict}},
	{"GET /api/v1/openapi.json", "getOpenAPI", "This document.", nil, nil, asJSON(), nil},
}

func reports(verb, id, means string, one any) request {
	return request{
		"POST /api/v1/leases/" + verb, id, means, nil, asJSON(orMany{one}), asJSON(codec.Reported{}),
		[]int{http.StatusNotFound, http.StatusConflict, http.StatusGone},
	}
}

func cronVerb(verb, id, means string, answer any) request {
	return request{"POST /api/v1/cron/" + verb, id, means, nil, asJSON(codec.CronChange{}), asJSON(answer), []int{http.StatusNotFound}}
}

// refusals are the statuses of errors, in order, and when each is answered.
var refusals = []struct {
	status int
	means  string
}{
	{http.StatusBadRequest, "The request cannot be read, or cannot be meant."},
	{http.StatusForbidden, "The request is not allowed: it comes from another machine or from another site's page, or only the socket of `--admin` answers it."},
	{http.StatusNotFound, "What the request names is not there."},
	{http.StatusRequestTimeout, "The body stopped."},
	{http.StatusConflict, "The request does not fit the state of what it names."},
	{http.StatusGone, "The lease has ended."},
	{http.StatusRequestEntityTooLarge, "The body or the workload is too large."},
	{http.StatusUnsupportedMediaType, "The server does not read bodies of this kind."},
	{http.StatusTooManyRequests, "The policy of the queue refuses the job now."},
	{http.StatusInternalServerError, "The server failed; its log says how."},
	{http.StatusServiceUnavailable, "The server does not take the request now: it is starting, or a limit is reached. The same request may be taken later."},
	{http.StatusInsufficientStorage, "The server has no memory or disk space for the job now."},
}

// responseName returns the name of the description of a status.
func responseName(status int) string { return strings.ReplaceAll(http.StatusText(status), " ", "") }

// responses describe the answers to requests that were not carried out.
func (s *schemas) responses() (all object) {
	reasons := make(map[int][]string)
	for why := protocol.ReasonDisk; why < protocol.Reasons; why++ {
		reasons[statusOf(why)] = append(reasons[statusOf(why)], why.String())
	}
	for _, e := range leaseErrors {
		reasons[e.status] = append(reasons[e.status], e.reason)
	}
	for _, r := range refusals {
		means := r.means
		if of := reasons[r.status]; of != nil {
			means += " Its `reason` may be " + strings.Join(of, ", ") + "."
		}
		one := object{{"description", means}}
		if r.status == http.StatusServiceUnavailable {
			seconds := object{{"description", "Seconds after which to ask again."}, {"schema", kindOf("integer")}}
			one = append(one, member{"headers", object{{"Retry-After", seconds}}})
		}
		all = append(all, member{responseName(r.status), append(one, s.content(asJSON(codec.Error{}), false)...)})
	}
	return all
}

// content returns the member content of a body.
func (s *schemas) content(c content, request bool) object {
	var kinds object
	for _, of := range c {
		var alternatives []object
		for _, v := range of.values {
			many, isMany := v.(orMany)
			if isMany {
				v = many.one
			}
			one := s.of(reflect.TypeOf(v), request)
			alternatives = append(alternatives, one)
			if isMany {
				alternatives = append(alternatives, object{{"type", "array"}, {"items", one}, {"maxItems", sched.MaxRequestJobs}})
			}
		}
		schema := object{}
		switch {
		case len(alternatives) == 1:
			schema = object{{"schema", alternatives[0]}}
		case len(alternatives) > 1:
			schema = object{{"schema", object{{"anyOf", alternatives}}}}
		}
		kinds = append(kinds, member{of.kind, schema})
	}
	return object{}.with("content", kinds)
}

// operation returns the description of an operation.
func (s *schemas) operation(o *request) object {
	_, path, _ := strings.Cut(o.route, " ")
	area, _, _ := strings.Cut(strings.TrimPrefix(path, "/api/v1/"), "/")
	means := o.means
	if slices.Contains(ownerOnly, path) {
		means += " Only the socket of `--admin` answers this."
	}
	var parameters []object
	statuses := append(slices.Clone(o.errors), http.StatusForbidden, http.StatusInternalServerError, http.StatusServiceUnavailable)
	for _, p := range o.parameters {
		where := p.where
		if where == "" {
			where = "query"
		}
		one := object{{"name", p.name}, {"in", where}, {"description", p.means}}
		parameters = append(parameters, append(one, member{"schema", p.schema}))
		statuses = append(statuses, http.StatusBadRequest)
	}
	d := object{{"operationId", o.id}, {"summary", means}, {"tags", []string{area}}}.with("parameters", parameters)
	if o.body != nil {
		d = append(d, member{"requestBody", append(object{{"required", true}}, s.content(o.body, true)...)})
		statuses = append(statuses, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge)
	}
	slices.Sort(statuses)
	responses := object{{"200", append(object{{"description", "It was carried out."}}, s.content(o.answer, false)...)}}
	for _, status := range slices.Compact(statuses) {
		responses = append(responses, member{strconv.Itoa(status), object{{"$ref", "#/components/responses/" + responseName(status)}}})
	}
	return append(d, member{"responses", responses})
}

// describe makes the description of the API.
func describe(t *testing.T) object {
	s := &schemas{t: t, source: messageSource(t), made: make(map[string]object), request: make(map[string]bool)}
	var paths object
	for n := range requests {
		method, path, _ := strings.Cut(requests[n].route, " ")
		one := member{strings.ToLower(method), s.operation(&requests[n])}
		at := slices.IndexFunc(paths, func(m member) bool { return m.name == path })
		if at < 0 {
			paths = append(paths, member{path, object{one}})
			continue
		}
		paths[at].value = append(paths[at].value.(object), one)
	}
	responses := s.responses()
	var all object
	for name, schema := range s.made {
		all = append(all, member{name, schema})
	}
	slices.SortFunc(all, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return object{
		{"openapi", "3.1.1"},
		{"info", object{
			{"title", "Treadle"}, {"version", "1"},
			{"description", fmt.Sprintf("The HTTP API of a Treadle server: `treadle help api` explains it. A name that is not UTF-8 stands in the member with _b64, in base64. A body has at most %d MiB, one with a workload or a result as much as `--max-frame` allows.", maxRequest>>20)},
		}},
		{"servers", []object{{{"url", "http://127.0.0.1:5001"}}}},
		{"paths", paths},
		{"components", object{{"schemas", all}, {"responses", responses}}},
	}
}
