package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/store"
)

// Limits of the shown part of a task's output.
const (
	maxShown     = 16 << 10 // characters
	maxShownFile = 1 << 20  // bytes of a file that is read
)

// searchForm are the fields of the search form.
type searchForm struct {
	Queue, Status, Node, Filter, Limit string
	Output, Ran                        bool
}

type shownOutput struct{ Name, Note, Text string }

type taskRow struct {
	ID, Queue, Status, Node, Created, Changed, Params string
	Outputs                                           []shownOutput
}

type statusWord struct{ Code, Word string }

// statusWords are the words for the standard statuses.
var statusWords = []statusWord{
	{"-6", "orphaned"}, {"-5", "cancelled"}, {"-4", "blocked"}, {"-3", "terminated"}, {"-2", "queued"},
	{"-1", "claimed"}, {"0", "running"}, {"1", "succeeded"}, {"2", "failed"},
}

// searchPage shows a form to search tasks and the result.
func (c *commandInterface) searchPage(w http.ResponseWriter, r *http.Request) {
	c.search(w, r, http.StatusOK)
}

// search is searchPage with the status of an empty result.
func (c *commandInterface) search(w http.ResponseWriter, r *http.Request, emptyStatus int) {
	form := r.URL.Query()
	page := struct {
		pageData
		Form         searchForm
		Queues       []queueRow
		Statuses     []statusWord
		Tasks        []taskRow
		Total        int64
		First, Last  int64
		Before, Next string
	}{pageData: c.pageData("Tasks", r.URL.RequestURI()), Statuses: statusWords}
	page.Form = searchForm{
		Queue: form.Get("queue"), Status: form.Get("status"), Node: form.Get("node"), Filter: form.Get("filter"), Limit: form.Get("limit"),
		Output: form.Get("output") != "", Ran: len(form) > 0,
	}
	status := http.StatusOK
	refuse := func(refusal *requestError) { status, page.Form.Ran = page.show(refusal), false }
	queues, err := c.store.Queues(r.Context())
	if err != nil {
		refuse(c.pageError("read the queues", err))
	}
	for i := range queues {
		page.Queues = append(page.Queues, newQueueRow(&queues[i], nil))
	}
	if q, refusal := pageQuery(form, page.Form); refusal != nil {
		refuse(refusal)
	} else if page.Form.Ran {
		q.omitOutput = !page.Form.Output
		tasks, err := c.find(r.Context(), &q)
		if err == nil {
			page.Total, err = c.store.CountTasks(r.Context(), q.filter)
		}
		if err != nil {
			refuse(c.databaseError("find tasks", err))
		}
		if err == nil && page.Total == 0 {
			status = emptyStatus
		}
		queueNames := names(queues)
		for i := range tasks {
			page.Tasks = append(page.Tasks, c.taskRow(r, &tasks[i], queueNames, page.Form.Output))
		}
		skip, limit := q.options.Skip, q.options.Limit
		page.First, page.Last = skip+1, skip+int64(len(tasks))
		if skip > 0 {
			page.Before = skipTo(form, max(0, skip-limit))
		}
		if page.Last < page.Total {
			page.Next = skipTo(form, skip+limit)
		}
	}
	render(w, status, "search", page)
}

// pageQuery returns the query of the form: its fields and its filter.
func pageQuery(form url.Values, a searchForm) (query, *requestError) {
	var filter any = bson.D{}
	if a.Filter != "" {
		var err error
		if filter, err = parseJSON(a.Filter); err != nil {
			return query{}, badRequest("the filter is no JSON: %v", err)
		}
	}
	where, ok := filter.(bson.D)
	if !ok {
		return query{}, badRequest("the filter must be a JSON object")
	}
	if a.Queue != "" {
		where = append(where, bson.E{Key: "queue", Value: a.Queue})
	}
	if a.Node != "" {
		where = append(where, bson.E{Key: "node", Value: a.Node})
	}
	if a.Status != "" {
		n, err := strconv.Atoi(a.Status)
		if err != nil {
			return query{}, badRequest("status must be an integer")
		}
		where = append(where, bson.E{Key: "status", Value: n})
	}
	options := bson.D{{Key: "sort", Value: bson.D{{Key: "_id", Value: int32(-1)}}}}
	for _, name := range []string{"limit", "skip"} {
		if v := form.Get(name); v != "" {
			options = append(options, bson.E{Key: name, Value: v})
		}
	}
	return searchQuery(params{fields: bson.D{{Key: "filter", Value: where}, {Key: "options", Value: options}}})
}

// skipTo returns the address of another part of the same result.
func skipTo(form url.Values, skip int64) string {
	form.Set("skip", strconv.FormatInt(skip, 10))
	return "/search?" + form.Encode()
}

// taskRow returns a task in the form of the page. It reads outputs only if output is true. It cuts long parameters and
// outputs.
func (c *commandInterface) taskRow(r *http.Request, t *store.Task, queueNames map[primitive.ObjectID]string, output bool) taskRow {
	row := taskRow{ID: t.ID.Hex(), Queue: queueNames[t.Queue], Status: strconv.Itoa(t.Status), Node: t.Node, Created: shownTime(t.CTime),
		Changed: shownTime(t.MTime)}
	if row.Queue == "" {
		row.Queue = t.Queue.Hex() // the queue is deleted
	}
	for _, s := range statusWords {
		if s.Code == row.Status {
			row.Status = s.Word
		}
	}
	params := string(valueJSON(t.Params()))
	if len(params) <= maxPretty {
		var b bytes.Buffer
		if err := json.Indent(&b, []byte(params), "", " "); err == nil {
			params = b.String()
		}
	}
	row.Params = strings.Clone(params[:store.CutAfter(params, maxShown)])
	for _, name := range []string{store.FileStdout, store.FileStderr} {
		if !output {
			continue
		}
		if out, ok := c.outputOf(r.Context(), t, name); ok {
			row.Outputs = append(row.Outputs, out)
		}
	}
	return row
}

func shownTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateTime)
}
