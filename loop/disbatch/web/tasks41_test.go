package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// TestDCITasksOf41: the task routes of 4.1, used as in the original's acceptance test, whose clients send a body with
// GET.
func TestDCITasksOf41(t *testing.T) {
	s := newWebSite(t, demoPlugins)
	q := s.Queue(d("name", "demo", "plugin", config.DemoPlugin))
	id := q.ID.Hex()
	created := func(body string, want int) {
		t.Helper()
		_, reply := s.json("POST", "/tasks", body, 200)
		if got := reply.(object)["MongoDB::InsertManyResult"].(object)["inserted"].([]any); len(got) != want {
			t.Errorf("%s creates %v", body, got)
		}
	}
	created(`{"queue":"demo","params":[{"commands":"a"},{"commands":"b"},{"commands":"c"}]}`, 3)
	created(`{"queue":"`+id+`","params":{"commands":"b"}}`, 1)
	created(`{"queue":"`+id+`","params":{"u":"document.name","commands":"*"},"collection":"queues","filter":{"name":"demo"}}`, 1)
	for body, want := range map[string]string{
		`{"queue":"demo","params":[]}`: "'params' must be a JSON array of task params objects", `{"queue":"demo","params":[{}]}`: "with key/value pairs",
		`{"queue":"demo","params":{"a":1},"more":1}`: "invalid parameters passed", `{"queue":"demo"}`: "invalid parameters passed",
		`{"queue":"demo","params":{"a":1},"collection":"queues","filter":[]}`: "'filter' must be a JSON object",
		`{"queue":"demo","params":{"a":1},"collection":"","filter":{}}`:       "'collection' required",
	} {
		s.says("POST", "/tasks", body, 400, want)
	}
	s.says("POST", "/tasks", `{"queue":"none","params":{"a":1}}`, 404, "queue not found")
	s.says("POST", "/tasks", `{"params":{"a":1}}`, 404, "queue not found")

	s.says("GET", "/tasks", `{"queue":"`+id+`",".count":1}`, 200, `{"count":5}`)
	s.says("GET", "/tasks", `{"queue":"`+id+`","status":"-2",".count":true}`, 200, `{"count":5}`)
	s.says("GET", "/tasks", `{"queue":"`+id+`","status":{"$gte":0},".count":true}`, 200, `{"count":0}`)
	s.says("GET", "/tasks", `{"queue":["`+id+`"],"status":[1,"-2"],".count":true}`, 200, `{"count":5}`)
	s.says("GET", "/tasks?.count=1&status=-2&queue="+id, "", 200, `{"count":5}`)
	unindexed := `{"queue":"` + id + `","params.commands":"b",".count":1}`
	s.says("GET", "/tasks", unindexed, 400, `"error":"non-indexed params given","indexes":[["id"],["node","status","queue","id"],["queue","status"]],"invalid_params":["params.commands"]`)
	s.says("GET", "/tasks", `{"status":1}`, 400, `"invalid_params":["status"]`)
	index := d("key", d("queue", 1, "params.commands", 1), "name", "queue_1_params.commands_1")
	must(t, s.DB.RunCommand(s.Ctx, d("createIndexes", "tasks", "indexes", bson.A{index})).Err())
	s.says("GET", "/tasks", unindexed, 200, `{"count":2}`)
	s.says("GET", "/tasks", `{}`, 400, "refusing to return everything")
	s.says("GET", "/tasks", `[]`, 400, "must be a name/value object")
	s.says("GET", "/tasks", `{"queue":"demo"}`, 400, "Bad OID passed")
	s.says("GET", "/tasks", `{"queue":{"$where":"1"}}`, 400, "$where has the database run a program")
	s.says("GET", "/tasks", `{".limit":10001}`, 400, ".limit at most 10000")
	s.says("GET", "/tasks", `{"queue":"`+id+`","status":7}`, 200, `{}`)
	_, all := s.json("GET", "/tasks", `{"queue":"`+id+`",".limit":null,".skip":null,".terse":null}`, 200)
	if got := all.([]any); len(got) != 5 {
		t.Errorf("found %v", got)
	}

	done := s.Fill(&q, d("commands", "a"))[0]
	file := s.File(done, store.FileStdout, "from a file")
	_, err := s.Tasks.UpdateOne(s.Ctx, byID(done), set(d("status", 1, "stdout", file, "stderr", "err", "ctime", time.UnixMilli(1795239872481))))
	must(t, err)
	one := func(options, want string) {
		t.Helper()
		s.says("GET", "/tasks", `{"id":"`+done.Hex()+`",".limit":1`+options+`}`, 200, want)
	}
	one("", `{"_id":{"$oid":"`+done.Hex()+`"}`)
	one("", `"stdout":{"$oid":"`+file.Hex()+`"},"stderr":"err","ctime":"2026-11-21T05:44:32"`)
	one(`,".full":1,".epoch":1`, `"stdout":"from a file","stderr":"err","ctime":1795239872.481`)
	one(`,".terse":1,".full":1`, `"stdout":{"$oid":"`+file.Hex()+`"},"stderr":"[terse mode]"`)
	one(`,".fields":["status"]`, `{"_id":{"$oid":"`+done.Hex()+`"},"status":1}`)
	one(`,".fields":"{\"status\":1}"`, `"status":1}`)
	one(`,".pretty":1`, "{\n   \"_id\"")

	path := "/tasks/" + done.Hex()
	s.says("GET", path, "", 200, `"status": 1`)
	nobody := strings.Repeat("0", 24)
	s.says("GET", "/tasks/"+nobody, "", 404, `{"error":"no task with id `+nobody+`"}`)
	for address, want := range map[string]int{path: 200, "/tasks/" + nobody: 404, "/tasks?queue=" + id + "&.limit=5": 303, "/tasks": 303} {
		status, kind, text := s.do("GET", address, "-", "", "Accept", "text/html,*/*;q=0.8")
		if status != want || want != 303 && !strings.HasPrefix(kind, "text/html") || want == 200 && !strings.Contains(text, done.Hex()) {
			t.Errorf("GET %s for a browser: %d %s %s", address, status, kind, text)
		}
	}
	s.says("POST", "/tasks/search", `{"options":{"limit":null,"skip":null,"sort":["status",-1,"_id",1]}}`, 200, `[{"_id":{"$oid":"`+done.Hex()+`"}`)
	s.says("POST", "/tasks/search", `{"options":{"sort":["status"]}}`, 400, "sort must be")
}

// TestDCIMonitoring: monitoring follows the settings of the original.
func TestDCIMonitoring(t *testing.T) {
	newWebSite(t).says("GET", "/monitoring", "", 200, `{"disbatch":{"message":"monitoring disabled","status":"OK"},"queuebalance":{"message":"monitoring disabled","status":"OK"}}`)
	s := newWebSite(t, `"monitoring": true, "balance": {"enabled": 1},`)
	s.says("GET", "/monitoring", "", 200, `{"disbatch":{"message":"No Disbatch nodes found","status":"WARNING"},"queuebalance":{"message":"queuebalanced not running for `)
	insertTasks := func(name string, at time.Time) {
		t.Helper()
		_, err := s.Nodes.InsertOne(s.Ctx, d("node", name, "timestamp", at))
		must(t, err)
	}
	insertTasks("old", time.Now().Add(-time.Hour))
	s.says("GET", "/monitoring", "", 200, `"message":"No active Disbatch nodes found","nodes":{"stale":{"old":36`)
	insertTasks("me", time.Now())
	_, err := s.DB.Collection("balance").InsertOne(s.Ctx, d("status", "OK", "message", "QueueBalance is running", "timestamp", time.Now().Unix()))
	must(t, err)
	s.says("GET", "/monitoring", "", 200, `"message":"Disbatch is running on one or more nodes","nodes":{"fresh":{"me":0},"stale":{"old":36`)
	s.says("GET", "/monitoring", "", 200, `"queuebalance":{"message":"QueueBalance is running","status":"OK"}`)
	s = newWebSite(t, `"monitoring": 1, "web_extensions": {"B": null, "A": null}, "plugins": ["C", "A", "B"],`)
	s.says("GET", "/monitoring", "", 200, `"queuebalance":{"message":"queuebalance disabled","status":"OK"}`)
	s.says("GET", "/info", "", 200, `"database":"`+s.Config.Database+`","routes":{"DELETE":["/queues/{queue...}"],"GET":["/balance","/info","/monitoring",`)
	s.says("GET", "/info", "", 200, `"web_extensions":["A","B"]`)
	s.says("GET", "/plugins", "", 200, `["A","B","C"]`)
}

// TestDCIBalance: valid and invalid settings of queue balance, in JSON and on the page.
func TestDCIBalance(t *testing.T) {
	s := newWebSite(t, `"balance": {"enabled": false, "log": true},`)
	for _, name := range []string{"oneoff", "bulk", "api"} {
		s.Queue(d("name", name, "plugin", config.DemoPlugin))
	}
	has := func(want string) {
		t.Helper()
		text, _ := s.json("GET", "/balance", "", 200)
		if got := strings.Join(strings.Fields(text), ""); got != want {
			t.Errorf("the settings are %s, want %s", got, want)
		}
	}
	const known = `"known_queues":["api","bulk","oneoff"]`
	has(`{` + known + `,"notice":"balancedocumentnotfound","settings":{"enabled":false,"log":true}}`)
	const right = `{"max_tasks":{"* 07:00":1,"* 19:00":"5"},"queues":[["bulk"],["api","oneoff"]]}`
	s.says("POST", "/balance", right, 200, `{"status":"success: queuebalance modified"}`)
	want := `{"max_tasks":{"*07:00":1,"*19:00":5},"queues":[["bulk"],["api","oneoff"]],` + known + `,"settings":{"enabled":false,"log":true}}`
	has(want)
	times, queues := `"max_tasks":{"* 07:00":1}`, `"queues":[["bulk"],["api"],["oneoff"]]`
	for _, badRequest := range []string{
		`{}`, `[]`, `{` + times + `}`, `{` + queues + `}`, `{` + times + `,` + queues + `,"foo":"bar"}`, `{"max_tasks":{"7 07:00":1},` + queues + `}`, `{"max_tasks":{"* 07:00":1.1},` + queues + `}`,
		`{"max_tasks":"foo",` + queues + `}`, `{` + times + `,"queues":"bulk"}`, `{` + times + `,"queues":["bulk"]}`, `{` + times + `,"queues":[["bu lk"]]}`, `{` + times + `,"queues":[["bulk,bulk"]]}`,
		`{` + times + `,"queues":[["bulk"],["api","bulk"]]}`, `{` + times + `,"queues":[["FOOBAR"]]}`, `{` + times + `,` + queues + `,"disabled":"soon"}`, `{` + times + `,` + queues + `,"disabled":5}`,
	} {
		s.says("POST", "/balance", badRequest, 400, `{"status":"failed: invalid json passed `)
	}
	has(want)
	later := time.Now().Add(time.Hour).Unix()
	s.says("POST", "/balance", fmt.Sprintf(`{%s,%s,"disabled":%d}`, times, queues, later), 200, "success")
	status, kind, page := s.do("GET", "/balance", "-", "", "Accept", "text/html")
	if status != 200 || !strings.HasPrefix(kind, "text/html") || !strings.Contains(page, "bulk\napi\noneoff\n") || !strings.Contains(page, "* 07:00 1\n") || !strings.Contains(page, "It rests until") {
		t.Errorf("the page: %d %s\n%s", status, kind, page)
	}
	form := func(want int, pairs ...string) {
		t.Helper()
		values := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			values.Set(pairs[i], pairs[i+1])
		}
		if status, _, text := s.do("POST", "/page/balance", formKind, values.Encode()); status != want {
			t.Errorf("%v: %d %s", pairs, status, text)
		}
	}
	form(http.StatusSeeOther, "queues", "bulk\r\napi, oneoff\r\n\r\n", "max_tasks", "* 07:00 1\r\n* 19:00  5", "enable", "1")
	has(strings.Replace(want, known, `"disabled":null,`+known, 1))
	form(http.StatusBadRequest, "queues", "none", "max_tasks", "")
	form(http.StatusSeeOther, "queues", "", "max_tasks", "", "minutes", "5")
	if _, _, page := s.do("POST", "/page/balance", formKind, "%zz"); !strings.Contains(page, "cannot read the form") {
		t.Errorf("the page after an invalid form:\n%s", page)
	}
}

// TestDCIRealm: clients of the original's command line know the realm.
func TestDCIRealm(t *testing.T) {
	s := newWebSite(t, `"treadle_web": {"users": {"ann": "x"}},`)
	r, err := http.NewRequestWithContext(s.Ctx, "GET", s.url+"/queues", nil)
	must(t, err)
	response, err := s.client.Do(r)
	must(t, err)
	response.Body.Close()
	if got := response.Header.Get("WWW-Authenticate"); response.StatusCode != 401 || !strings.HasPrefix(got, `Basic realm="disbatch"`) {
		t.Errorf("%s with %s", response.Status, got)
	}
}
