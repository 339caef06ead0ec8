package web

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
	"treadle/loop/web"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// webSite is a site with a command interface.
type webSite struct {
	*sitetest.Site
	url    string
	client http.Client
}

const demoPlugins = `"plugins": ["Disbatch::Plugin::Demo"],`

func newWebSite(t *testing.T, lines ...string) *webSite {
	t.Helper()
	return newLoggedWebSite(t, slog.DiscardHandler, lines...)
}

// newLoggedWebSite is newWebSite with a handler for its log.
func newLoggedWebSite(t *testing.T, log slog.Handler, lines ...string) *webSite {
	t.Helper()
	s := &webSite{Site: newSite(t, lines...)}
	s.Store.EnsureIndexes(s.Ctx)
	c := &commandInterface{config: s.Config, store: s.Store, guard: guardOf(t), users: s.Config.Web.Users, log: slog.New(log)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server, ended := c.server(l), make(chan error, 1)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		must(t, errors.Join(server.Close(), <-ended))
	})
	s.url = "http://" + l.Addr().String()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// guardOf returns the guard of an interface that allows requests to web.example.
func guardOf(t *testing.T) *web.Guard {
	t.Helper()
	guard, err := newGuard([]string{"web.example"}, "127.0.0.1:0", slog.New(slog.DiscardHandler))
	must(t, err)
	return guard
}

// do sends a request and returns the reply. kind is the body's type, - for none.
func (s *webSite) do(method, path, kind, body string, headers ...string) (status int, contentType, text string) {
	s.T.Helper()
	r, err := http.NewRequestWithContext(s.Ctx, method, s.url+path, strings.NewReader(body))
	must(s.T, err)
	if kind != "-" {
		r.Header.Set("Content-Type", kind)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.client.Do(r)
	must(s.T, err)
	defer response.Body.Close()
	out, err := io.ReadAll(response.Body)
	must(s.T, err)
	return response.StatusCode, response.Header.Get("Content-Type"), string(out)
}

const (
	formKind = "application/x-www-form-urlencoded"
	jsonKind = "application/json"
)

// json sends JSON and checks the status. It returns the reply as text and decoded.
func (s *webSite) json(method, path, body string, want int) (text string, value any) {
	s.T.Helper()
	kind := jsonKind
	if body == "" {
		kind = "-"
	}
	status, _, text := s.do(method, path, kind, body)
	if status != want {
		s.T.Errorf("%s %s %s: %d %s, want %d", method, path, body, status, text, want)
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		s.T.Errorf("%s %s %s: %v in %s", method, path, body, err, text)
	}
	return text, value
}

// says checks the status of a JSON request, and that the reply contains a text.
func (s *webSite) says(method, path, body string, status int, want string) {
	s.T.Helper()
	if text, _ := s.json(method, path, body, status); !strings.Contains(text, want) {
		s.T.Errorf("%s %s %s: %s, want %s", method, path, body, text, want)
	}
}

var hexID = regexp.MustCompile(`[0-9a-f]{24}`)

// TestGoldenDCI sends the requests of the golden file and compares the replies, with generated ids numbered.
func TestGoldenDCI(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	demo := s.Queue(d("name", "demo", "plugin", "Disbatch::Plugin::Demo"))
	_, err := s.Nodes.InsertOne(s.Ctx, d("node", "vm", "timestamp", time.UnixMilli(1795239930842), "maxthreads", 7))
	must(t, err)
	for i, commands := range []string{"a", "ab", "c"} {
		_, err := s.Tasks.InsertOne(s.Ctx, d("queue", demo.ID, "status", 1+i/2, "node", "vm", "params", d("commands", commands), "complete", true,
			"stdout", "out", "stderr", "", "ctime", time.UnixMilli(1795239872481), "mtime", time.UnixMilli(1795239874093)))
		must(t, err)
	}
	const file = "testdata/dci.golden"
	text, err := os.ReadFile(file)
	must(t, err)
	numbers := map[string]string{demo.ID.Hex(): "DEMO"}
	number := func(id string) string {
		if numbers[id] == "" {
			numbers[id] = fmt.Sprintf("ID%d", len(numbers))
		}
		return numbers[id]
	}
	var got strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			got.WriteString(line)
		}
		words := strings.SplitN(strings.TrimSpace(line), " ", 5)
		if words[0] != "---" {
			continue
		}
		words = append(words, "")
		status, kind, reply := s.do(words[1], words[2], words[3], strings.ReplaceAll(words[4], "{demo}", demo.ID.Hex()))
		reply = strings.ReplaceAll(reply, s.Config.Database, "DATABASE")
		reply = hexID.ReplaceAllStringFunc(reply, number)
		if strings.HasPrefix(kind, "text/html") {
			reply = "(a page)"
		}
		fmt.Fprintf(&got, "%s%s\n[%d] %s\n", line, strings.TrimSpace(reply), status, kind)
	}
	if *rewrite {
		must(t, os.WriteFile(file, []byte(got.String()), 0o600))
		return
	}
	if got.String() != string(text) {
		t.Errorf("the replies are not those of %s (-args -rewrite writes it anew):\n%s", file, difference(string(text), got.String()))
	}
}

// difference returns the first line that differs.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("line %d: want %s\ngot %s", i+1, w[i], strings.Join(g[min(i, len(g)):min(i+1, len(g))], ""))
		}
	}
	return strings.Join(g[len(w):], "\n")
}

// has follows a path in decoded JSON, in which numbers are indexes.
func has(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			a, _ := v.([]any)
			if p >= len(a) {
				return nil
			}
			v = a[p]
		}
	}
	return v
}

// wants compares the value at a path.
func wants(t *testing.T, v, want any, path ...any) {
	t.Helper()
	if got := has(v, path...); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v is %v, want %v", path, got, want)
	}
}

func TestBodiesOfEveryKind(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	f := func(path, kind, body string, want int) {
		t.Helper()
		if status, _, text := s.do("POST", path, kind, body); status != want {
			t.Errorf("%s %s %s: %d %s, want %d", path, kind, body, status, text, want)
		}
	}
	queue := func(n int) string { return fmt.Sprintf(`{"name":"q%d","plugin":"Disbatch::Plugin::Demo"}`, n) }
	f("/queues", jsonKind, queue(1), 200)
	f("/queues", "application/json; charset=utf-8", queue(2), 200)
	f("/queues", "Application/JSON;charset=UTF-8", queue(3), 200)
	f("/queues", formKind, "name=q4&plugin=Disbatch%3A%3APlugin%3A%3ADemo", 200)
	f("/queues", formKind+"; charset=UTF-8", "name=q5&plugin=Disbatch::Plugin::Demo", 200)
	f("/queues?name=q6&plugin=Disbatch::Plugin::Demo", "-", "", 200)
	f("/queues?name=q7&plugin=Disbatch::Plugin::Demo", jsonKind, "{}", 400)
	f("/queues", "text/plain", queue(8), 400)
	f("/queues", jsonKind, `{"name":`, 400)
	f("/queues", jsonKind, `{"name":"q9","plugin":"Disbatch::Plugin::Demo"} x`, 400)
	f("/queues", formKind, "name=%zz", 400)
	f("/queues", jsonKind, `"`+strings.Repeat("x", maxBody)+`"`, 413)
	if queues, err := s.Store.Queues(s.Ctx); err != nil || len(queues) != 6 {
		t.Errorf("there are %d queues, %v, want 6", len(queues), err)
	}
}

func TestQueuesOfBothDialectsOverREST(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	was := s.Queue(d("name", "old", "constructor", "Disbatch::Plugin::Demo", "count_todo", 0, "count_total", 0))
	s.Queue(d("name", "young", "plugin", "Disbatch::Plugin::Demo", "threads", "5"))
	text, v := s.json("GET", "/queues", "", 200)
	wants(t, v, "map[completed:0 id:"+was.ID.Hex()+" name:old plugin:Disbatch::Plugin::Demo queued:0 running:0 threads:<nil>]", 0)
	if !strings.Contains(text, `"threads":5}`) {
		t.Errorf("threads that are text: %s", text)
	}
	s.json("POST", "/queues/old", `{"threads":"3","sort":"fifo"}`, 200)
	s.json("POST", "/queues/"+was.ID.Hex(), `{"name":"renamed"}`, 200)
	q, err := s.Store.Queue(s.Ctx, "renamed")
	if must(t, err); q.Limit != 3 || q.Sort != "fifo" || q.Raw.Lookup("maxthreads").Type == 0 || q.Raw.Lookup("threads").Type != 0 {
		t.Errorf("the 2016 queue is %s", q.Raw)
	}
	_, v = s.json("GET", "/queues/renamed", "", 200)
	wants(t, v, 3, "threads")
	s.json("POST", "/tasks/renamed", `[{"a":1},{"a":2}]`, 200)
	_, v = s.json("POST", "/tasks/search", `{"filter":{"parameters.a":2}}`, 200)
	wants(t, v, -1, 0, "node")
	wants(t, v, "map[a:2]", 0, "parameters")
	if q, err = s.Store.Queue(s.Ctx, "renamed"); err != nil || q.Todo != 2 || q.Total != 2 {
		t.Errorf("counted %d and %d, %v", q.Todo, q.Total, err)
	}
	_, v = s.json("GET", "/queues/renamed", "", 200)
	wants(t, v, 2, "queued")

	s = newWebSite(t, demoPlugins, `"schema": 2016`)
	s.json("POST", "/queues", `{"name":"new","plugin":"Disbatch::Plugin::Demo"}`, 200)
	if q, err = s.Store.Queue(s.Ctx, "new"); err != nil || q.Schema != store.Schema2016 {
		t.Errorf("a new queue of a 2016 site is %s, %v", q.Raw, err)
	}
}

func TestRefusals(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	s.Queue(d("name", "a/b", "plugin", "Disbatch::Plugin::Demo"))
	q := s.Queue(d("name", "q", "plugin", "Disbatch::Plugin::Demo"))
	s.Fill(&q, d("a", 1)) // a document for the filters to match
	_, err := s.Nodes.InsertOne(s.Ctx, d("node", "n"))
	must(t, err)
	nobody := primitive.NewObjectID().Hex()
	for _, x := range []struct {
		request, body string
		status        int
		want          string
	}{
		{"GET /nodes/x", "", 404, `{"error":"node not found"}`},
		{"GET /nodes/" + nobody, "", 404, `{"error":"node not found"}`},
		{"POST /nodes/x", `{"maxthreads":1}`, 404, `"error":"node not found"`},
		{"POST /nodes/n", `{}`, 400, `{"error":"No params"}`},
		{"POST /nodes/n", `[]`, 400, `{"error":"No params"}`},
		{"POST /nodes/n", `{"threads":1}`, 400, `{"error":"Invalid param","param":"threads"}`},
		{"POST /nodes/n", `{"maxthreads":1.5}`, 400, "non-negative integer or null"},
		{"POST /nodes/n", `{"maxthreads":true}`, 400, "non-negative integer or null"},
		{"POST /nodes/n", `{"maxthreads":""}`, 400, "non-negative integer or null"},
		{"POST /nodes/n", `{"maxthreads":1048577}`, 400, "at most 1048576"},
		{"GET /queues/x", "", 404, `{"error":"queue not found"}`},
		{"POST /queues/x", `{"threads":1}`, 404, `"error":"queue not found"`},
		{"DELETE /queues/x", "", 404, `"error":"queue not found"`},
		{"POST /queues", `[]`, 400, "name and plugin required"},
		{"POST /queues", `{"name":{},"plugin":"Disbatch::Plugin::Demo"}`, 400, "name and plugin required"},
		{"POST /queues", `{"name":"q","plugin":"Disbatch::Plugin::Demo"}`, 400, "MongoDB::DuplicateKeyError: E11000"},
		{"POST /queues/q", `{"name":"a/b"}`, 400, "MongoDB::DuplicateKeyError: E11000"},
		{"POST /queues/q", `{"name":["x"]}`, 400, "name must be a string"},
		{"POST /queues/q", `{"plugin":"No"}`, 400, `{"error":"unknown plugin","plugin":"No"}`},
		{"POST /queues/q", `{"plugin":{"b":[{"z":1.5},null],"a":"<\u0000"}}`, 400, `{"error":"unknown plugin","plugin":{"b":[{"z":1.5},null],"a":"<\u0000"}}`},
		{"POST /queues/q", `{"threads":-1}`, 400, "threads must be a non-negative integer"},
		{"POST /queues/q", `{"threads":null}`, 400, "threads must be a non-negative integer"},
		{"POST /queues/q", `{"threads":99999999999999999999}`, 400, "threads must be a non-negative integer"},
		{"POST /queues/q", `{"sort":"random"}`, 400, "sort must be fifo, lifo or default"},
		{"POST /queues/q", `{"maxthreads":1}`, 400, `{"error":"unknown param","param":"maxthreads"}`},
		{"POST /tasks/x", `[{"a":1}]`, 404, `"error":"queue not found"`},
		{"POST /tasks/q", `{"a":1}`, 400, "params must be a JSON array of task params objects"},
		{"POST /tasks/q", `[{"a":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}]`, 400, "nested deeper than 100"},
		{"POST /tasks/q", `[1]`, 400, "params must be a JSON array of task params objects"},
		{"POST /tasks/q", `[{"a\u0000b":1}]`, 400, "Could not create tasks"},
		{"POST /tasks/q/queues", `{"filter":{}}`, 400, "filter and params required and must be name/value objects"},
		{"POST /tasks/q/queues", `{"filter":[],"params":{}}`, 400, "filter and params required and must be name/value objects"},
		{"POST /tasks/x/queues", `{"filter":{},"params":{}}`, 404, `"error":"queue not found"`},
		{"POST /tasks/q/system.users", `{"filter":{},"params":{}}`, 400, "is no name of a collection to read"},
		{"POST /tasks/q/queues", `{"filter":{"_id":{"$oid":"x"}},"params":{}}`, 400, "Bad OID passed"},
		{"POST /tasks/q/queues", `{"filter":{"name":"none"},"params":{"a":1}}`, 400, "Unknown error"},
		{"POST /tasks/q/queues", `{"filter":{"$no":1},"params":{"a":1}}`, 400, "Could not iterate on collection queues"},
		{"POST /tasks/search", `{"filter":{"queue":"q"}}`, 400, "Bad OID passed"},
		{"POST /tasks/search", `{"filter":{"_id":{"$in":[{"$oid":5}]}}}`, 400, "Bad OID passed"},
		{"POST /tasks/search", `{"filter":{"$no":1}}`, 400, "Could not find tasks"},
		{"POST /tasks/search", `{"filter":{"$no":1},"count":1}`, 400, "Could not count tasks"},
		{"POST /tasks/search", `{"options":{"limit":-1}}`, 400, "limit must be a non-negative integer"},
		{"POST /tasks/search", `{"options":{"skip":"x"}}`, 400, "skip must be a non-negative integer"},
		{"POST /tasks/search", `{"options":{"sort":1}}`, 400, "sort must be a name/value object"},
		{"POST /tasks/search", `{"options":{"collation":{}}}`, 400, "unknown option: collation"},
		{"POST /tasks/search", `[]`, 400, "filter and options must be name/value objects"},
		{"POST /search-tasks-json", `{"skip":"y","limit":"x"}`, 400, `[0,"limit must be a non-negative integer, a limit at most 10000"]`},
		{"POST /search-tasks-json", `{"limit":10001}`, 400, `[0,"limit must be a non-negative integer, a limit at most 10000"]`},
		{"POST /set-queue-attr-json", `{}`, 400, `{"error":"Invalid attr","success":0}`},
		{"POST /set-queue-attr-json", `{"attr":"threads","queueid":"q"}`, 400, "You must supply a value"},
		{"POST /set-queue-attr-json", `{"attr":"threads","value":1}`, 400, "You must supply a queueid"},
		{"POST /set-queue-attr-json", `{"attr":"threads","value":"x","queueid":"q"}`, 400, "threads must be a non-negative integer"},
		{"POST /set-queue-attr-json", `{"attr":"threads","value":1,"queueid":"` + nobody + `"}`, 404, `"success":0`},
		{"POST /start-queue-json", `{"name":"x"}`, 400, `[0,"type and name required"]`},
		{"POST /start-queue-json", `{"name":"x","type":"No"}`, 400, `[0,"unknown type"]`},
		{"POST /start-queue-json", `{"name":"q","type":"Disbatch::Plugin::Demo"}`, 400, `[0,null,{`},
		{"POST /delete-queue-json", `{}`, 400, `[0,"id required"]`},
		{"POST /delete-queue-json", `{"id":"` + nobody + `"}`, 404, `[0,{`},
		{"POST /queue-create-tasks-json", `{"queueid":"q"}`, 400, `[0,"queueid and object required"]`},
		{"POST /queue-create-tasks-json", `{"queueid":"q","object":"{"}`, 200, `[0,"object param must be a JSON array: `},
		{"POST /queue-create-tasks-json", `{"queueid":"q","object":{}}`, 200, `[0,"object param must be a JSON array"]`},
		{"POST /queue-create-tasks-json", `{"queueid":"x","object":[{"a":1}]}`, 200, `[0,"Queue not found"]`},
		{"POST /queue-create-tasks-from-query-json", `{"queueid":"q"}`, 400, `[0,"queueid, collection, jsonfilter, and params required"]`},
		{"POST /queue-create-tasks-from-query-json", `{"queueid":"q","collection":"queues","jsonfilter":"[]","params":{}}`, 200, `must be JSON objects`},
		{"POST /queue-create-tasks-from-query-json", `{"queueid":"x","collection":"queues","jsonfilter":{},"params":{}}`, 200, `[0,"Queue not found"]`},
		{"POST /queue-create-tasks-from-query-json", `{"queueid":"q","collection":"queues","jsonfilter":{"$no":1},"params":{}}`, 200, `[0,"Could not iterate on collection queues`},
		{"POST /search-tasks-json", `{"filter":"["}`, 200, `[0,"JSON object required for filter"]`},
		{"POST /search-tasks-json", `{"queue":"q"}`, 200, `[0,"Bad OID passed`},
		{"POST /search-tasks-json", `{"filter":{"id":"q"}}`, 200, `[0,"Bad OID passed`},
		{"POST /search-tasks-json", `{"limit":"x"}`, 400, `[0,"limit must be`},
		{"POST /search-tasks-json", `{"filter":{"$no":1}}`, 200, `[0,"Could not find tasks`},
		{"POST /search-tasks-json", `{"filter":{"$no":1},"count":1}`, 200, `[0,"Could not count tasks`},
	} {
		method, path, _ := strings.Cut(x.request, " ")
		s.says(method, path, x.body, x.status, x.want)
	}
	s.says("GET", "/queues/a/b", "", 200, `"name":"a/b"`)
	s.says("GET", "/queues/a%2Fb", "", 200, `"name":"a/b"`)
	for _, request := range []string{"PUT /queues", "DELETE /nodes/n", "GET /tasks/search", "GET /delete-queue-json", "GET /js/queues.js"} {
		method, path, _ := strings.Cut(request, " ")
		if status, _, text := s.do(method, path, "-", ""); status != 404 || text != "This is the void" {
			t.Errorf("%s: %d %s", request, status, text)
		}
	}
}

// TestDCIWithoutParams: requests that need no parameters work with any headers and query, since clients name JSON as
// the type of an empty body.
func TestDCIWithoutParams(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	s.Queue(d("name", "demo", "plugin", "Disbatch::Plugin::Demo"))
	for _, request := range []string{"GET /queues", "GET /queues/demo", "GET /plugins?x=%zz", "DELETE /queues/demo"} {
		method, path, _ := strings.Cut(request, " ")
		if status, _, text := s.do(method, path, jsonKind, ""); status != http.StatusOK {
			t.Errorf("%s with the type of JSON: %d %s", request, status, text)
		}
	}
}

// TestDCIUnknownPath: unknown paths are not found, without a redirect.
func TestDCIUnknownPath(t *testing.T) {
	s := newWebSite(t)
	for _, request := range []string{"DELETE /queues", "POST /nodes", "PUT /queues", "GET /plugins/"} {
		method, path, _ := strings.Cut(request, " ")
		if status, _, text := s.do(method, path, formKind, "maxthreads=1"); status != http.StatusNotFound || text != "This is the void" {
			t.Errorf("%s: %d %s", request, status, text)
		}
	}
}

// TestDCINodeNeverSeen: a node whose entry was made by hand has no time to show.
func TestDCINodeNeverSeen(t *testing.T) {
	s := newWebSite(t)
	_, err := s.Nodes.InsertMany(s.Ctx, []any{d("node", "a"), d("node", "b", "timestamp", nil)})
	must(t, err)
	_, nodes := s.json("GET", "/nodes", "", http.StatusOK)
	for _, node := range nodes.([]any) {
		if at := node.(map[string]any)["timestamp"]; at != nil {
			t.Errorf("the timestamp of %v is %v", node, at)
		}
	}
}
