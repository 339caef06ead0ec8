package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/store"
)

// page fetches a page and checks that it contains texts. It must not contain a text after "!".
func (s *webSite) page(path string, status int, want ...string) string {
	s.T.Helper()
	code, kind, text := s.do("GET", path, "-", "")
	if code != status || kind != "text/html; charset=utf-8" {
		s.T.Errorf("%s: %d %s", path, code, kind)
	}
	s.holds(path, text, want...)
	return text
}

func (s *webSite) holds(what, text string, want ...string) {
	s.T.Helper()
	for _, w := range want {
		absent, not := strings.CutPrefix(w, "!")
		if not && strings.Contains(text, absent) || !not && !strings.Contains(text, w) {
			s.T.Errorf("%s: want %s in\n%s", what, w, text)
		}
	}
}

var formOf = regexp.MustCompile(`(?s)<form method="post" action="([^"]*)".*?</form>`)
var fieldOf = regexp.MustCompile(`name="([^"]*)"[^>]*?(?: value="([^"]*)")?[ >]`)

// submit sends a form of the page as a browser without JavaScript does. It returns the final status and page.
func (s *webSite) submit(page, label string, fields ...string) (int, string) {
	s.T.Helper()
	for _, form := range formOf.FindAllStringSubmatch(page, -1) {
		if !strings.Contains(form[0], label) {
			continue
		}
		values := url.Values{}
		for _, f := range fieldOf.FindAllStringSubmatch(form[0], -1) {
			values.Set(f[1], f[2])
		}
		for i := 0; i < len(fields); i += 2 {
			if !values.Has(fields[i]) {
				s.T.Fatalf("the form %s has no field %s", label, fields[i])
			}
			values.Set(fields[i], fields[i+1])
		}
		status, _, text := s.do("POST", form[1], formKind, values.Encode(), "Origin", s.url)
		return status, text
	}
	s.T.Fatalf("no form has %s in\n%s", label, page)
	return 0, ""
}

func TestThePageWorksWithoutJavaScript(t *testing.T) {
	s := newWebSite(t, `"plugins": ["A::B", "C"],`)
	page := s.page("/", 200, "There are no queues.", "No node has been seen.", "<option>A::B</option>")
	if status, _ := s.submit(page, "Create", "name", `<b>"q"`, "plugin", "C"); status != http.StatusSeeOther {
		t.Fatalf("creating a queue: %d", status)
	}
	s.Queue(d("name", "old", "constructor", "C", "maxthreads", "many"))
	_, err := s.Nodes.InsertOne(s.Ctx, d("node", "host1", "timestamp", time.Now(), "maxthreads", 4))
	must(t, err)
	_, err = s.Nodes.InsertOne(s.Ctx, d("node", "gone", "timestamp", time.Now().Add(-time.Hour)))
	must(t, err)
	page = s.page("/", 200, "&lt;b&gt;&#34;q&#34;", "maxthreads is", "per node", `value="4"`, "host1", "(1h0m0s ago)", `<td class="problem">`, "!<b>")

	if status, _ := s.submit(page, "Threads of &lt;b&gt;", "threads", "9"); status != http.StatusSeeOther {
		t.Errorf("setting threads: %d", status)
	}
	if q, err := s.Store.Queue(s.Ctx, `<b>"q"`); err != nil || q.Limit != 9 {
		t.Errorf("the queue is %+v, %v", q, err)
	}
	status, text := s.submit(page, "Threads of old", "threads", "-1")
	if s.holds("bad threads", text, `role="alert">threads must be a non-negative integer`); status != 400 {
		t.Errorf("setting bad threads: %d", status)
	}
	for value, want := range map[string]int{"0": 0, "": store.NoLimit, "7": 7} {
		if status, _ := s.submit(page, "Max threads of host1", "maxthreads", value); status != http.StatusSeeOther {
			t.Errorf("setting maxthreads: %d", status)
		}
		if n, err := s.Store.Node(s.Ctx, "host1"); err != nil || n.Limit != want {
			t.Errorf("maxthreads %q: %+v, %v", value, n, err)
		}
	}
	status, text = s.submit(page, "Create", "name", "old", "plugin", "C")
	if s.holds("a name that is taken", text, "MongoDB::DuplicateKeyError"); status != 400 {
		t.Errorf("creating a queue twice: %d", status)
	}
	for file, kind := range map[string]string{"style.css": "text/css", "script.js": "text/javascript"} {
		if status, got, text := s.do("GET", "/page/"+file, "-", ""); status != 200 || !strings.HasPrefix(got, kind) || text == "" || strings.Contains(text, "//cdn") {
			t.Errorf("%s: %d %s", file, status, got)
		}
	}
}

// TestAPageIsText: a page is valid UTF-8 even if another program has written a name in another encoding.
func TestAPageIsText(t *testing.T) {
	s := newWebSite(t)
	// "café" in Latin 1
	s.Queue(d("name", "caf\xe9", "plugin", "P"))
	if page := s.page("/", 200, "caf\uFFFD"); !utf8.ValidString(page) {
		t.Errorf("the page is %q", page)
	}
}

func TestTaskSearchPage(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	old := s.Queue(d("name", "old", "constructor", "P"))
	young := s.Queue(d("name", "young", "plugin", "P"))
	ids := s.Fill(&old, d("user", "alice"), d("user", "<bob>"))
	s.Fill(&young, d("user", "carol"))
	file := s.File(ids[0], store.FileStdout, "from a file")
	_, err := s.Tasks.UpdateOne(s.Ctx, byID(ids[0]), set(d("stdout", file, "stderr", strings.Repeat("x", maxShown+1), "status", 1, "node", "n1")))
	must(t, err)
	s.page("/search", 200, `<option value="`+old.ID.Hex()+`">old</option>`, "!found")
	s.page("/search?queue="+old.ID.Hex(), 200, "2 found", "shown from 1 to 2", "alice", "&lt;bob&gt;", "!carol", "!from a file", "succeeded", "queued")
	s.page("/search?status=1&node=n1&output=1", 200, "1 found", "<pre>from a file</pre>", fmt.Sprintf("the first %d of %d bytes", maxShown, maxShown+1), "!"+strings.Repeat("x", maxShown+1))
	s.page("/search?filter="+url.QueryEscape(`{"params.user":"carol"}`), 200, "1 found", "young")
	text := s.page("/search?limit=1", 200, "3 found", "shown from 1 to 1", "carol", "!Before")
	next := regexp.MustCompile(`<a href="([^"]*)">Next`).FindStringSubmatch(text)
	s.page(strings.ReplaceAll(next[1], "&amp;", "&"), 200, "shown from 2 to 2", "bob", "Before", "Next")
	s.page("/search?filter=%7B", 400, `role="alert">the filter is no JSON`, "!found")
	s.page("/search?filter=[]", 400, "the filter must be a JSON object")
	s.page("/search?status=x", 400, "status must be an integer")
	s.page("/search?limit=101", 400, "limit cannot exceed 100")
	s.page("/search?queue=x", 400, "Bad OID passed")
	s.page("/search?filter="+url.QueryEscape(`{"$no":1}`), 400, "Could not find tasks")
}

func TestSearch(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	q := s.Queue(d("name", "q", "plugin", "P"))
	other := s.Queue(d("name", "other", "plugin", "P"))
	s.Fill(&other, d("a", 0))
	var params []any
	for i := range 150 {
		params = append(params, d("a", i))
	}
	ids := s.Fill(&q, params...)
	at := time.UnixMilli(1461693573123)
	file := s.File(ids[0], store.FileStdout, "héllo")
	_, err := s.Tasks.UpdateOne(s.Ctx, byID(ids[0]), set(d("ctime", at, "mtime", at.Unix(), "stdout", file, "stderr", "words", "when", at)))
	must(t, err)
	_, err = s.Tasks.UpdateOne(s.Ctx, byID(ids[1]), set(d("stdout", "")))
	must(t, err)
	search := func(body string, want int) any {
		t.Helper()
		_, v := s.json("POST", "/tasks/search", body, 200)
		list, _ := v.([]any)
		if len(list) != want {
			t.Errorf("%s finds %d tasks, want %d", body, len(list), want)
		}
		return v
	}
	search(`{}`, 100)
	search(`{"options":{"limit":0},"count":"0"}`, 100)
	search(`{"options":{"limit":"7"}}`, 7)
	wants(t, search(`{"options":{"limit":1,"skip":3,"sort":{"_id":-1}}}`, 1), 146, 0, "params", "a")
	wants(t, search(`{"options":{"limit":1,"projection":{"params":1,"_id":0}}}`, 1), "map[params:map[a:0]]", 0)
	search(`{"filter":{"queue":"`+other.ID.Hex()+`"}}`, 1)
	search(`{"filter":{"queue":{"$oid":"`+other.ID.Hex()+`"}}}`, 1)
	search(`{"filter":{"_id":{"$in":[{"$oid":"`+ids[1].Hex()+`"},{"$oid":"`+ids[2].Hex()+`"}]}}}`, 2)
	search(`{"filter":{"ctime":1461693573123}}`, 1)
	search(`{"filter":{"ctime":{"$lt":1461693573124}}}`, 1)
	search(`{"filter":{"mtime":1461693573}}`, 1)
	// Seconds match dates, milliseconds match the times of old tasks.
	search(`{"filter":{"ctime":{"$gte":1461693573,"$lt":1461693574}}}`, 1)
	search(`{"filter":{"ctime":1461693573.123}}`, 1)
	search(`{"filter":{"ctime":{"$in":[1461693573.123,5]},"mtime":{"$lte":1461693573000}}}`, 1)
	search(`{"filter":{"mtime":{"$gt":1461693572999,"$ne":1461693574},"queue":"`+q.ID.Hex()+`"}}`, 100)
	search(`{"filter":{"mtime":{"$ne":1461693573000},"_id":{"$oid":"`+ids[0].Hex()+`"}}}`, 0)
	search(`{"filter":{"ctime":{"$not":{"$lt":1461693574}},"_id":{"$oid":"`+ids[0].Hex()+`"}}}`, 0)
	search(`{"filter":{"ctime":{"$exists":1,"$lt":1461693574},"$or":[{"status":-2}]}}`, 1)
	_, v := s.json("POST", "/tasks/search", `{"filter":{"queue":"`+q.ID.Hex()+`"},"count":"1"}`, 200)
	wants(t, v, "map[count:150]")
	wants(t, search(`{"filter":{"_id":{"$oid":"`+ids[1].Hex()+`"}}}`, 1), "", 0, "stdout")
	one := `{"filter":{"_id":{"$oid":"` + ids[0].Hex() + `"}}`
	v = search(one+`}`, 1)
	wants(t, v, "map[$oid:"+file.Hex()+"]", 0, "stdout")
	wants(t, v, terse, 0, "stderr")
	wants(t, v, "1.461693573123e+09", 0, "ctime")
	wants(t, v, "1.461693573e+09", 0, "mtime")
	wants(t, v, "2016-04-26T17:59:33.123Z", 0, "when")
	v = search(one+`,"terse":false}`, 1)
	wants(t, v, "héllo", 0, "stdout")
	wants(t, v, "words", 0, "stderr")
	if text, _ := s.json("POST", "/tasks/search", one+`,"pretty":true}`, 200); !strings.HasPrefix(text, "[\n   {\n      \"_id\"") {
		t.Errorf("a pretty reply is %s", text)
	}
	_, v = s.json("POST", "/search-tasks-json", `{"queue":"`+q.ID.Hex()+`"}`, 200)
	if list, _ := v.([]any); len(list) != 150 {
		t.Errorf("the old search finds %d", len(list))
	}
	_, v = s.json("POST", "/search-tasks-json", `{"filter":{"id":"`+ids[0].Hex()+`","status":"-2"}}`, 200)
	wants(t, v, "2016-04-26T17:59:33", 0, "ctime_str")
	wants(t, v, "héllo", 0, "stdout")
	_, v = s.json("POST", "/search-tasks-json", `{"limit":"2","skip":"1","queue":""}`, 200)
	wants(t, v, 0, 0, "params", "a")
	wants(t, v, 1, 1, "params", "a")
}

func TestTasksFromACollection(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	q := s.Queue(d("name", "q", "plugin", "P"))
	users := s.DB.Collection("users")
	for _, name := range []string{"foo", "bar"} {
		_, err := users.InsertOne(s.Ctx, d("username", name, "migration", "test", "address", d("city", name+"ville")))
		must(t, err)
	}
	pattern := `{"user1":"document.username","city":"document.address.city","id":"document._id","none":"document.none","commands":"*","deep":{"x":"document.username"}}`
	_, v := s.json("POST", "/tasks/q/users", `{"filter":{"migration":"test"},"params":`+pattern+`}`, 200)
	wants(t, v, 1, "MongoDB::InsertManyResult", "inserted", 1, "index")
	_, v = s.json("POST", "/queue-create-tasks-from-query-json", `{"queueid":"q","collection":"users","jsonfilter":"{\"username\":\"bar\"}","parameters":{"u":"document.username"}}`, 200)
	wants(t, v, "[1 1]")
	tasks, err := s.Store.Search(s.Ctx, d("queue", q.ID), store.SearchOptions{Sort: d("_id", 1)})
	if must(t, err); len(tasks) != 3 {
		t.Fatalf("%d tasks", len(tasks))
	}
	p := tasks[0].Params().Document()
	if store.Text(p.Lookup("user1")) != "foo" || store.Text(p.Lookup("city")) != "fooville" || p.Lookup("id").Type != bson.TypeObjectID || p.Lookup("none").Type != bson.TypeNull ||
		store.Text(p.Lookup("commands")) != "*" || store.Text(p.Lookup("deep", "x")) != "document.username" || store.Text(tasks[1].Params().Document().Lookup("user1")) != "bar" {
		t.Errorf("the tasks are %s and %s", tasks[0].Raw, tasks[1].Raw)
	}
}

func TestOnlyUsersAreServed(t *testing.T) {
	s := newWebSite(t, demoPlugins, `"treadle_web": {"users": {"ann": "secret", "empty": ""}}`)
	f := func(name, password string, want int) {
		t.Helper()
		for _, path := range []string{"/", "/queues", "/page/style.css", "/nothere"} {
			r, err := http.NewRequestWithContext(s.Ctx, http.MethodGet, s.url+path, nil)
			must(t, err)
			if name != "-" {
				r.SetBasicAuth(name, password)
			}
			response, err := s.client.Do(r)
			must(t, err)
			response.Body.Close()
			if got := response.StatusCode; got != want && (want != 200 || got != 404 || path != "/nothere") {
				t.Errorf("%s %s:%s: %d, want %d", path, name, password, got, want)
			}
		}
	}
	f("-", "", 401)
	f("ann", "", 401)
	f("ann", "Secret", 401)
	f("bob", "", 401)
	f("bob", "secret", 401)
	f("ann", "secret", 200)
}

func TestOtherSitesMayNotWrite(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	s.Queue(d("name", "q", "plugin", "P"))
	f := func(want int, headers ...string) {
		t.Helper()
		if status, _, text := s.do("POST", "/queues/q", formKind, "threads=1", headers...); status != want {
			t.Errorf("%v: %d %s, want %d", headers, status, text, want)
		}
	}
	f(200)
	f(200, "Origin", s.url)
	f(403, "Origin", "http://elsewhere.example")
	f(403, "Origin", "null")
	f(403, "Sec-Fetch-Site", "cross-site")
	if status, _, _ := s.do("DELETE", "/queues/q", "-", "", "Origin", "http://elsewhere.example"); status != 403 {
		t.Errorf("another site deletes: %d", status)
	}
}

// TestOtherHosts: a host name that another site may have rebound gets nothing, not even a request for a password. An
// allowed name does.
func TestOtherHosts(t *testing.T) {
	s := newWebSite(t, demoPlugins+`"treadle_web": {"users": {"ann": "secret"}},`)
	f := func(want int, method, path, host string) {
		t.Helper()
		r, err := http.NewRequestWithContext(s.Ctx, method, s.url+path, http.NoBody)
		must(t, err)
		r.Host = host
		r.SetBasicAuth("ann", "secret")
		answer, err := s.client.Do(r)
		must(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		must(t, err)
		if answer.StatusCode != want || (want == 403) != strings.Contains(string(text), `"error":"the request is for the host \"`) {
			t.Errorf("%s %s at %s: %d %.200s", method, path, host, answer.StatusCode, text)
		}
	}
	for _, path := range []string{"/", "/search", "/nodes", "/queues", "/plugins", "/scheduler-json", "/nowhere"} {
		f(403, "GET", path, "rebound.example")
	}
	for _, path := range []string{"/queues", "/tasks/search", "/start-queue-json"} {
		f(403, "POST", path, "rebound.example:8080")
	}
	f(200, "GET", "/", "web.example")
	f(200, "GET", "/queues", "LOCALHOST:8080")
}

func TestADatabaseThatIsAway(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	if s.Fake == nil {
		return // a real server cannot be stopped
	}
	s.Fake.Stop()
	address := s.Fake.Address()
	s.Config.MongoHost = "mongodb://" + address + "/?serverSelectionTimeoutMS=50"
	site, err := store.Open(s.Config.Connection(config.ComponentWeb))
	must(t, err)
	defer site.Close()
	s.Store.Close()
	*s.Store = *site
	s.says("GET", "/queues", "", 400, "Could not get current queues: ")
	s.says("GET", "/nodes", "", 400, "Could not get current nodes: ")
	s.says("POST", "/tasks/q", `[{"a":1}]`, 400, "Could not create tasks: ")
	s.says("GET", "/plugins", "", 200, `["Disbatch::Plugin::Demo"]`)
	s.page("/", 503, "Could not read queues and nodes")
	must(t, s.Fake.Resume())
	for tries := 0; ; tries++ { // each try waits for the database
		status, _, text := s.do("GET", "/queues", "-", "")
		if status == 200 {
			break
		}
		if tries == 1000 {
			t.Fatalf("it does not come back: %s", text)
		}
	}
}

// TestRunWeb: Run listens on its address, answers, and ends with its context.
func TestRunWeb(t *testing.T) {
	s := newSite(t, `"treadle_web": {"listen": "127.0.0.1:1"}`)
	ctx, cancel := context.WithCancel(s.Ctx)
	ready, ended := make(chan string, 1), make(chan error, 1)
	options := Options{Config: s.Config, Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Ready: func(address string) { ready <- address }}
	go func() { ended <- Run(ctx, options) }()
	address := <-ready
	response, err := http.Get("http://" + address + "/plugins")
	must(t, err)
	response.Body.Close()
	options.Listen, options.Ready = address, nil
	if err := Run(s.Ctx, options); err == nil || !strings.Contains(err.Error(), "cannot listen on "+address) || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("a second one: %v", err)
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// TestRequestsAreBounded: at most maxRequests are answered at once.
func TestRequestsAreBounded(t *testing.T) {
	entered, leave := make(chan bool), make(chan bool)
	h := bounded(newTransfers(maxHeld), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { entered <- true; <-leave }))
	request := func(ctx context.Context) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return w.Code
	}
	var all sync.WaitGroup
	for range maxRequests {
		all.Go(func() { request(t.Context()) })
		<-entered
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if code := request(impatient); code != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", code)
	}
	all.Go(func() { request(t.Context()) })
	leave <- true
	<-entered
	for range maxRequests {
		leave <- true
	}
	all.Wait()
}

// TestOutputBeyondTheRoomStaysAnID: outputs beyond the limit of a reply stay ids.
func TestOutputBeyondTheRoomStaysAnID(t *testing.T) {
	s := newSite(t)
	q := s.Queue(d("name", "q", "plugin", "P"))
	id := s.Fill(&q, d("a", 1))[0]
	one := s.File(id, store.FileStdout, "12345")
	two := s.File(id, store.FileStderr, "678")
	_, err := s.Tasks.UpdateOne(s.Ctx, byID(id), set(d("stdout", one, "stderr", two)))
	must(t, err)
	task := s.Task(id)
	for room, want := range map[int]string{8: "map[stderr:678 stdout:12345]", 7: "map[stdout:12345]", 4: "map[stderr:678]", 2: "map[]"} {
		got := object{}
		if (&commandInterface{store: s.Store}).readOutput(s.Ctx, &task, &room, got); fmt.Sprint(got) != want {
			t.Errorf("in a room: %v, want %s", got, want)
		}
	}
}

// TestLateNodes: changes of its entry show whether a node is alive, since its clock may be an hour off.
func TestLateNodes(t *testing.T) {
	start := time.Now()
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		c := &commandInterface{}
		for _, step := range []struct {
			after, entry time.Duration // time of the page and of the node's entry since the start
			late         bool
		}{
			{0, 0, skew != 0}, // only the entry's time is known
			{2 * time.Second, 2 * time.Second, false},
			{30 * time.Second, 2 * time.Second, false},
			{61 * time.Second, 2 * time.Second, false},
			{63 * time.Second, 2 * time.Second, true},
			{65 * time.Second, 64 * time.Second, false},
			{time.Hour, 64 * time.Second, true},
			{5 * time.Hour, 2 * time.Hour, true}, // it changed at an unknown time
			{5*time.Hour + time.Second, 5*time.Hour + time.Second, false},
		} {
			n := &store.Node{Name: "a", Timestamp: start.Add(step.entry + skew)}
			now := start.Add(step.after)
			if got := c.late(n, now); got != step.late {
				t.Errorf("with a clock off by %v, after %v: late is %v", skew, step.after, got)
			}
			if row := newNodeRow(n, now, false); strings.Contains(row.Seen, "ahead") != (n.Timestamp.Sub(now) > time.Minute) {
				t.Errorf("it was seen %s at %s", row.Seen, now.UTC())
			}
		}
	}
}

// TestTasksThatAreThereAreNotRefused: a client would create refused tasks again. The log does not say that they could
// not be created either.
func TestTasksThatAreThereAreNotRefused(t *testing.T) {
	var log bytes.Buffer // its lines are written before the replies
	s := newLoggedWebSite(t, slog.NewTextHandler(&log, nil), demoPlugins)
	if s.Fake == nil {
		return // a real server has no injected faults
	}
	s.Queue(d("name", "old", "constructor", "P", "count_todo", 0, "count_total", 0))
	fail := func(what string) {
		s.Fake.Inject(func(command string) mongotest.Fault {
			if command == what {
				return mongotest.LoseCall
			}
			return mongotest.None
		})
	}
	fail("update") // of the queue's counters
	_, v := s.json("POST", "/tasks/old", `[{"a":1},{"a":2}]`, 200)
	wants(t, v, 1, "MongoDB::InsertManyResult", "inserted", 1, "index")
	if said := log.String(); !strings.Contains(said, `doing="acknowledge or count new tasks"`) {
		t.Errorf("the log says %q", said)
	}
	fail("insert")
	s.says("POST", "/tasks/old", `[{"a":3}]`, 400, "Could not create tasks")
	s.Fake.Inject(nil)
	if n, err := s.Store.CountTasks(s.Ctx, bson.D{}); err != nil || n != 2 {
		t.Errorf("there are %d tasks, %v", n, err)
	}
}
