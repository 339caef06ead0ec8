package disbatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/mongotest"
)

// Longer inputs find nothing more, and keep the fuzzer busy making them shorter.
const fuzzBytes = 1 << 10

// FuzzDocument reads bytes that are to be a queue, a task, a node or what a runner's pipe carries, as the database or
// another process may send them. What is read keeps its bounds, and what is shown of it is JSON.
func FuzzDocument(f *testing.F) {
	seed := func(doc any) {
		b, err := bson.Marshal(doc)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	id := primitive.NewObjectIDFromTimestamp(time.Unix(1_795_239_475, 0))
	seed(d("_id", id, "name", "q", "plugin", DemoPlugin, "threads", 1, "sort", "fifo", "nodes_pin", bson.A{"a", id}, "nodes_ignore", "b"))
	seed(d("_id", id, "name", "q", "constructor", DemoPlugin, "maxthreads", "1", "count_todo", 0, "count_total", 1.5))
	seed(d("_id", id, "queue", id, "status", -2, "node", nil, "ctime", time.UnixMilli(1795239872481), "mtime", 1795239872, "params", d("commands", "abc"), "stdout", nil))
	seed(d("_id", id, "node", "vm", "timestamp", time.UnixMilli(1795239872481), "maxthreads", 7, "queues", bson.A{}))
	seed(report{Task: id, Error: "why"})
	for _, v := range nonsense() {
		seed(d("_id", id, "plugin", v, "threads", v, "status", v, "node", v, "params", v, "commands", v, "nodes_pin", v, "ctime", v, "task", d("a", v)))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		raw := bson.Raw(in[:min(len(in), fuzzBytes)])
		q, task, n := DecodeQueue(raw), DecodeTask(raw), DecodeNode(raw)
		if q.Limit < 0 || q.Limit > maxLimit || q.Problem != "" && q.Limit != 0 || q.Problem == "" && !pluginName.MatchString(q.Plugin) || q.Todo < -1 {
			t.Fatalf("%x is the queue %+v", in, q)
		}
		if n.Limit != NoLimit && (n.Limit < 0 || n.Limit > maxLimit || n.Problem != "" && n.Limit != 0) {
			t.Fatalf("%x is the node %+v", in, n)
		}
		for _, shown := range []any{documentJSON(raw, object{"id": "x"}), queueJSON(&q, Counts{}), nodeJSON(&n)} {
			if text, err := encode(shown, true); err != nil || !json.Valid(text) {
				t.Fatalf("%x is shown as %q, %v", in, text, err)
			}
		}
		for _, into := range []any{new(assignment), new(report)} {
			if readDocument(bytes.NewReader(in), into) != nil {
				continue
			}
			if a, ok := into.(*assignment); ok && a.Task == nil {
				continue // none is sent without
			}
			b, err := bson.Marshal(into)
			again := reflect.New(reflect.TypeOf(into).Elem()).Interface()
			if err == nil {
				err = readDocument(bytes.NewReader(b), again)
			}
			if err != nil || fmt.Sprint(again) != fmt.Sprint(into) {
				t.Fatalf("%x carries %v, which comes back as %v, %v", in, into, again, err)
			}
		}
		if text, err := extended(raw); err == nil && !json.Valid(text) {
			t.Fatalf("%x is handed to plugins as %q", in, text)
		}
		checkOutcome(t, demo(&task))
	})
}

// checkOutcome: what a task ends with can be written.
func checkOutcome(t *testing.T, o outcome) {
	t.Helper()
	for _, s := range []any{o.stdout, o.stderr} {
		if text, ok := s.(string); !ok || !utf8.ValidString(text) {
			t.Fatalf("the output %q is no text", s)
		}
	}
	if _, err := bson.Marshal(o.update(time.Now())); err != nil || o.status < StatusSucceeded {
		t.Fatalf("a task ends with status %d, %v", o.status, err)
	}
}

// FuzzPluginOutput reads what plugins print and workers answer, which may be anything. A dumber reader, which takes it
// apart by lines, finds the same status line.
func FuzzPluginOutput(f *testing.F) {
	for _, text := range []string{
		"", "out\n", "out\n{\"status\": 3}\n", "{\"status\":1,\"stdout\":\"o\",\"stderr\":{\"a\":[1]}}", "a\n{\"STATUS\":0.5}\r\n\t ", "{\"status\":null}", "{\"status\":1}x", "\xff\n{}\n",
		"{\"status\":99999999999999999999}", "[1]\n\n", "{\"stdout\":\"\\ud800\",\"status\":\"2\"}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		checkOutcome(t, parseResult(out))
		rest, status, ok := statusLine(out)
		last, before := strings.TrimRight(string(out), " \t\r\n"), ""
		if i := strings.LastIndex(last, "\n"); i >= 0 {
			last, before = last[i+1:], last[:i+1]
		}
		var members map[string]json.RawMessage
		has := false
		if json.Unmarshal([]byte(last), &members) == nil && strings.HasPrefix(last, "{") {
			for name := range members {
				has = has || strings.EqualFold(name, "status")
			}
		}
		switch {
		case ok != has:
			t.Fatalf("%q has a status line: %v, read as %v", out, has, ok)
		case ok && (string(rest) != before || status < StatusSucceeded):
			t.Fatalf("%q is read as %q and status %d", out, rest, status)
		case !ok && string(rest) != string(out):
			t.Fatalf("%q has no status line, and %q is left of it", out, rest)
		}
		checkOutcome(t, outcome{status: StatusSucceeded, stdout: utf8Text(rest), stderr: ""})
	})
}

// FuzzSiteConfig reads a configuration in the original's relaxed JSON. What is JSON already is not changed, nothing moves,
// what is wrong is one line, and what is taken is in its bounds.
func FuzzSiteConfig(f *testing.F) {
	for _, text := range []string{
		"{ # a test's\n\"mongohost\": \"a:1,b\", \"database\": \"x\",\n}", `{"attributes": {"ssl": {"SSL_verify_mode": 0,},}, "auth": {"a": "# \" \\"}, "plugins": ["A", ], "gfs": "auto"}`,
		`{"treadle_plugins": {"A::B": {"kind": "exec", "command": ["/bin/true"], "timeout": 1.5}}, "treadle_node": {"reclaim_after": 600, "mtime": "claim"}}`,
		`{"plugins": {"B": 1, "A": 2}, "activequeues": [{"$oid": "571f8951b75bf335634ec271"}], "schema": "2016", "treadle_web": {"listen": "a:1", "users": {"a": "b"}}}`,
		`{"gfs": true, "ignorequeues": "x", "log": {}}`, `{"a": 1, # }`, "{\"a\" 2}", "[,]", "{\"gfs\": [", "\"", "{\"treadle_plugins\":{\"A\":{\"kind\":\"function\",\"timeout\":1e300}}}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		plain := strict(text)
		if len(plain) != len(text) || bytes.Count(plain, []byte("\n")) != bytes.Count(text, []byte("\n")) {
			t.Fatalf("%q becomes %q", text, plain)
		}
		if json.Valid(text) && !bytes.Equal(plain, text) {
			t.Fatalf("%q is JSON, and becomes %q", text, plain)
		}
		c, err := ParseConfig(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !json.Valid(plain) || c.MongoHost == "" || c.Database == "" || c.Schema != Schema2016 && c.Schema != Schema2018 || c.Node.ReclaimAfter.Duration() < 0 {
			t.Fatalf("%q is read as %+v", text, c)
		}
		for name, p := range c.TreadlePlugins {
			if !pluginName.MatchString(name) || (p.Timeout.Duration() > 0) != (p.Timeout > 0) || p.Timeout.Duration() < 0 {
				t.Fatalf("%q has the plugin %q: %+v with a time-out of %v", text, name, p, p.Timeout.Duration())
			}
		}
	})
}

// fuzzSteps is how many requests a script has at most.
const fuzzSteps = 12

// FuzzCommandInterface sends requests to the command interface of a site: a line each, as in the golden file, the method,
// the path, the kind of the body and the body. A line that begins with = and a collection's name puts a document there,
// as extended JSON. Every answer is what it says it is, none is a fault of the server's, and in the end there is still a
// list of everything.
func FuzzCommandInterface(f *testing.F) {
	golden, err := os.ReadFile("testdata/dci.golden")
	if err != nil {
		f.Fatal(err)
	}
	first := "= queues {\"_id\":{\"$oid\":\"571f8951b75bf335634ec271\"},\"name\":\"demo\",\"plugin\":\"Disbatch::Plugin::Demo\"}\n= nodes {\"node\":\"vm\",\"maxthreads\":7}\n" +
		"= tasks {\"queue\":{\"$oid\":\"571f8951b75bf335634ec271\"},\"status\":1,\"node\":\"vm\",\"params\":{\"commands\":\"a\"},\"stdout\":{\"$oid\":\"571f8951b75bf335634ec272\"},\"ctime\":1795239872}\n"
	for line := range strings.Lines(string(golden)) {
		if request, ok := strings.CutPrefix(line, "--- "); ok {
			f.Add([]byte(first + strings.ReplaceAll(request, "{demo}", "571f8951b75bf335634ec271")))
		}
	}
	f.Add([]byte(first + "GET /search?filter=%7B%22status%22%3A%7B%22%24gt%22%3A0%7D%7D&output=1&limit=1&skip=0 -\nPOST /page/queues/demo application/x-www-form-urlencoded threads=3&sort=lifo\nPOST /page/nodes/vm application/x-www-form-urlencoded maxthreads="))
	f.Add([]byte("= queues {\"name\":{\"$numberDouble\":\"NaN\"},\"constructor\":[1],\"maxthreads\":{\"$date\":{\"$numberLong\":\"-1\"}}}\n= nodes {\"node\":1}\n= config {\"active\":1,\"plugins\":{\"$regex\":\"(\",\"$options\":\"i\"}}\nGET /plugins -"))
	f.Add([]byte(first + "POST /tasks/search application/json {\"filter\":{\"$or\":[{\"_id\":{\"$oid\":\"x\"}},{\"params.commands\":{\"$regex\":\"^a\"}}]},\"options\":{\"sort\":{\"_id\":-1},\"projection\":{\"params\":1},\"limit\":3},\"count\":0,\"terse\":false,\"pretty\":1}"))
	double, err := mongotest.Start()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(double.Stop)
	config, err := ParseConfig([]byte(fmt.Sprintf("{\"mongohost\": %q, %s}", double.Address(), demoPlugins)))
	if err != nil {
		f.Fatal(err)
	}
	store, err := Open(config, ComponentWeb)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(store.Close)
	f.Fuzz(func(t *testing.T, script []byte) {
		must(t, store.db.Drop(t.Context()))
		store.EnsureIndexes(t.Context())
		c := &dci{config: config, store: store, guard: guardOf(t), log: slog.New(slog.DiscardHandler)}
		handler := c.handler()
		for i, line := range strings.SplitN(string(script[:min(len(script), fuzzBytes)]), "\n", fuzzSteps+1) {
			words := append(strings.SplitN(line, " ", 4), "", "", "", "")
			if i == fuzzSteps {
				break
			}
			if words[0] == "=" {
				putDocument(t, store, words[1], strings.Join(words[2:], " "))
				continue
			}
			r, err := http.NewRequestWithContext(t.Context(), words[0], words[1], strings.NewReader(words[3]))
			if err != nil || r.URL.Path == "" || r.URL.Path[0] != '/' {
				continue // no client sends it
			}
			r.Host = "web.example"
			r.Header.Set("Content-Type", words[2])
			checkAnswer(t, handler, r, line)
		}
		for _, path := range []string{"/", "/search?status=1", "/nodes", "/queues", "/plugins"} {
			r := httptest.NewRequest(http.MethodGet, "http://web.example"+path, http.NoBody)
			if status := checkAnswer(t, handler, r, path); status != http.StatusOK {
				t.Fatalf("%q: after all, %s is answered %d", script, path, status)
			}
		}
	})
}

// putDocument inserts a document, when it is one.
func putDocument(t *testing.T, store *Store, collection, text string) {
	var doc bson.D
	if bson.UnmarshalExtJSON([]byte(text), false, &doc) != nil || collection == "" || strings.ContainsAny(collection, "$\x00") {
		return
	}
	_, _ = store.db.Collection(collection).InsertOne(t.Context(), doc) // there may be one of its id or name
}

// checkAnswer sends a request and returns the status of the answer.
func checkAnswer(t *testing.T, handler http.Handler, r *http.Request, line string) int {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	kind, body := w.Header().Get("Content-Type"), w.Body.Bytes()
	switch {
	case w.Code >= http.StatusInternalServerError:
		t.Fatalf("%q is answered %d %q", line, w.Code, body)
	case kind == jsonKind && !json.Valid(body):
		t.Fatalf("%q is answered with no JSON: %q", line, body)
	case strings.HasPrefix(kind, "text/html") && w.Code < 300 && !bytes.HasSuffix(bytes.TrimSpace(body), []byte("</html>")):
		t.Fatalf("%q is answered with no page: %q", line, body)
	case !utf8.Valid(body):
		t.Fatalf("%q is answered %q", line, body)
	}
	return w.Code
}
