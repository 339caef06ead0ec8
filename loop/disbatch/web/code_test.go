package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestNoCodeInFilters: no route lets a filter or option make the database run a program, wherever it stands. Filters
// without programs are accepted.
func TestNoCodeInFilters(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	queue := s.Queue(d("name", "q", "plugin", "P")).ID.Hex()
	_, err := s.Tasks.InsertOne(s.Ctx, d("queue", queue, "status", 1))
	must(t, err)
	newRequestError := func(method, path, kind, body string) {
		t.Helper()
		status, _, text := s.do(method, path, kind, body)
		if status != 400 || !strings.Contains(text, "has the database run a program and is not allowed") {
			t.Errorf("%s %s %s: %d %.300s", method, path, body, status, text)
		}
	}
	for _, filter := range []string{
		`{"$where": "sleep(10000) || true"}`,
		`{"status": 1, "$or": [{"status": 2}, {"$where": "true"}]}`,
		`{"$and": [{"$nor": [[{"$where": {"$code": "true"}}]]}]}`,
		`{"params": {"$elemMatch": {"$where": "this.a"}}}`,
		`{"$expr": {"$function": {"body": "function() { return true }", "args": [], "lang": "js"}}}`,
		`{"$expr": {"$eq": [1, {"$add": [1, {"$function": {"body": "f", "args": [], "lang": "js"}}]}]}}`,
		`{"$expr": {"$accumulator": {}}}`,
		`{"ctime": {"$gt": 1, "$where": "1"}}`,
		`{"_id": {"$oid": "571fac85ee63413233049fbd", "$where": "1"}}`,
		`{"queue": {"$not": {"$where": "1"}}}`,
	} {
		newRequestError("POST", "/tasks/search", jsonKind, `{"filter": `+filter+`}`)
		newRequestError("POST", "/tasks/search", jsonKind, `{"count": 1, "filter": `+fmt.Sprintf("%q", filter)+`}`)
		newRequestError("POST", "/tasks/search", formKind, "filter="+url.QueryEscape(filter))
		newRequestError("POST", "/tasks/search?filter="+url.QueryEscape(filter), "-", "")
		newRequestError("POST", "/tasks/q/others", jsonKind, `{"filter": `+filter+`, "params": {"a": 1}}`)
		newRequestError("POST", "/search-tasks-json", formKind, "filter="+url.QueryEscape(filter))
		newRequestError("POST", "/search-tasks-json", jsonKind, `{"count": 1, "queue": "`+queue+`", "filter": `+filter+`}`)
		newRequestError("POST", "/queue-create-tasks-from-query-json", formKind,
			url.Values{"queueid": {queue}, "collection": {"others"}, "jsonfilter": {filter}, "params": {`{"a": 1}`}}.Encode())
		for _, option := range []string{"projection", "sort", "comment"} {
			newRequestError("POST", "/tasks/search", jsonKind, `{"options": {"`+option+`": {"a": `+filter+`}}}`)
		}
		if status, _, text := s.do("GET", "/search?filter="+url.QueryEscape(filter), "-", ""); status != 400 || !strings.Contains(text, "not allowed") {
			t.Errorf("the page with %s: %d", filter, status)
		}
	}
	s.says("POST", "/tasks/search", `{"filter": {"status": {"$gt": 0}, "params": {"where": "$where"}}, "count": 1}`, 200, `{"count":0}`)
	s.says("POST", "/tasks/q", `[{"$where": "a parameter of a task, which nobody runs"}]`, 200, "InsertManyResult")
}
