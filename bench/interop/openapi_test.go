package interop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/errors"
)

// documented sends requests to a server and holds them and the answers against the server's OpenAPI document.
type documented struct {
	*testing.T
	check    validator.Validator
	address  string
	socket   *http.Client    // for requests that the owner's socket alone answers
	answered map[string]bool // requests, by method and path, that were carried out
	refused  map[string]bool // requests whose body both the document and the server refused
}

// newDocumented checks the document that treadle print prints.
func newDocumented(t *testing.T) (*documented, []byte) {
	text := printed(t, "openapi")
	document, err := libopenapi.NewDocument(text)
	check(t, err)
	v, faults := validator.NewValidator(document, config.WithStrictMode(), config.WithFormatAssertions(), config.WithContentAssertions(),
		config.WithStrictIgnoredHeadersExtra("x-content-type-options", "sec-fetch-site"),
		// The members of these have any names.
		config.WithStrictIgnorePaths("$.body.workload_json.**", "$.body.values.*", "$.body.rules[*].values.*", "$.body.entries[*].counts.*"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if ok, faults := v.ValidateDocument(); !ok {
		t.Fatal(explain(faults))
	}
	return &documented{T: t, check: v, answered: make(map[string]bool), refused: make(map[string]bool)}, text
}

func explain(faults []*errors.ValidationError) string {
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintf(&b, "\n\t%s: %s", f.Message, f.Reason)
		for _, s := range f.SchemaValidationErrors {
			fmt.Fprintf(&b, "\n\t\t%s: %s", s.FieldPath, s.Reason)
		}
	}
	return b.String()
}

// send sends a request and returns the answer's body. valid reports whether the request is as the document says. The
// answer must always be. A status of 0 is any.
func (d *documented) send(valid bool, status int, route, body string, headers ...string) []byte {
	d.Helper()
	method, target, _ := strings.Cut(route, " ")
	newRequest := func() *http.Request {
		r, err := http.NewRequestWithContext(d.Context(), method, d.address+"/api/v1"+target, strings.NewReader(body))
		check(d.T, err)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		for n := 0; n < len(headers); n += 2 {
			r.Header.Set(headers[n], headers[n+1])
		}
		return r
	}
	const shown = "%s %.200s: %s %.200s%s"
	if ok, faults := d.check.ValidateHttpRequest(newRequest()); ok != valid {
		d.Errorf(shown, route, body, "the document takes it:", strconv.FormatBool(ok), explain(faults))
	}
	client := http.DefaultClient
	if strings.HasSuffix(target, "/settings") || strings.HasSuffix(target, "/reload") || target == "/backup" {
		client = d.socket
	}
	answer, err := client.Do(newRequest())
	check(d.T, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(d.T, err)
	if status != 0 && answer.StatusCode != status {
		d.Errorf(shown, route, body, answer.Status, text, "")
	}
	answer.Body = io.NopCloser(bytes.NewReader(text))
	if ok, faults := d.check.ValidateHttpResponse(newRequest(), answer); !ok {
		d.Errorf(shown, route, body, answer.Status, text, explain(faults))
	}
	path, _, _ := strings.Cut(route, "?")
	d.answered[path] = d.answered[path] || answer.StatusCode == http.StatusOK
	d.refused[path] = d.refused[path] || !valid && body != "" && answer.StatusCode == http.StatusBadRequest
	return text
}

// does sends a request that is carried out, and decodes the answer when it is wanted.
func (d *documented) does(route, body string, answer any) {
	d.Helper()
	if text := d.send(true, http.StatusOK, route, body); answer != nil {
		check(d.T, json.Unmarshal(text, answer))
	}
}

// refuses sends a request that is as the document says, and that the server refuses.
func (d *documented) refuses(status int, route, body string) {
	d.Helper()
	d.send(true, status, route, body)
}

// breaks sends a request that neither the document nor the server takes.
func (d *documented) breaks(route, body string) {
	d.Helper()
	d.send(false, http.StatusBadRequest, route, body)
}

// TestOpenAPITraffic: the requests and answers of a server are as its OpenAPI document says, without any member beyond.
// Each request of the document is made.
func TestOpenAPITraffic(t *testing.T) {
	d, document := newDocumented(t)
	data, file := t.TempDir(), filepath.Join(t.TempDir(), "treadle.toml")
	write(t, file, []byte("[queue.'kept.*']\nretries = 0\nkeep-results = 100\n\n[queue.small]\nmax-jobs = 1\n"))
	d.address = serve(t, "http", "--http", "127.0.0.1:0", "--data", data, "--config", file, "--faktory", "unix://"+filepath.Join(data, "faktory.sock"), "--dwork", "unix://"+filepath.Join(data, "dwork.sock"))
	run(t, "", os.Getenv("TREADLE_BINARY"), "-H", "unix://"+filepath.Join(data, "dwork.sock"), "dwork", "create", "serve", "soup")
	faktoryWorkerAt(t, filepath.Join(data, "faktory.sock"))
	d.socket = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(data, "admin.sock"))
	}}}
	for _, list := range []string{"jobs", "operations", "queues", "connections", "policies", "cron", "audit"} {
		d.does("GET /"+list, "", nil) // there is nothing yet
	}
	for _, part := range []func(*documented){
		submitDocumented, workDocumented, keptDocumented, lookDocumented, changeDocumented, queuesDocumented, cronDocumented, serverDocumented,
	} {
		part(d)
	}
	d.does("GET /backup", "", nil)
	d.does("GET /cluster", "", nil)
	for _, route := range []string{"GET /disbatch", "GET /disbatch/tasks", "GET /disbatch/task?id=571fac85ee63413233049fbd", "GET /disbatch/text?id=571fac85ee63413233049fbd&name=stdout"} {
		d.refuses(http.StatusNotFound, route, "") // this server is no node of a Disbatch site
		path, _, _ := strings.Cut(route, "?")
		d.answered[path] = true
	}
	var parsed struct {
		Paths map[string]map[string]struct{ RequestBody any }
	}
	check(t, json.Unmarshal(document, &parsed))
	for path, methods := range parsed.Paths {
		for method, operation := range methods {
			route := strings.ToUpper(method) + " " + strings.TrimPrefix(path, "/api/v1")
			if !d.answered[route] {
				t.Errorf("%s was not made", route)
			}
			if operation.RequestBody != nil && !d.refused[route] {
				t.Errorf("%s was not made with a body that is refused", route)
			}
		}
	}
}

// faktoryWorkerAt connects to a unix socket as a worker of Faktory's protocol.
func faktoryWorkerAt(t *testing.T, socket string) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, "HELLO {\"v\":2,\"wid\":\"w1\"}\r\n")
	check(t, err)
	in := bufio.NewScanner(c)
	for in.Scan() && in.Text() != "+OK" {
	}
	check(t, in.Err())
}

func submitDocumented(d *documented) {
	d.does("POST /jobs", `{"queue":"kept.a","name":"one","workload":"w","priority":-3,"delay":0.5,"timeout":"1h30m"}`, nil)
	d.does("POST /jobs", `{"queue":"b","workload_json":{"a":[1,null]},"at":"2030-01-31T09:00:00Z"}`, nil)
	d.does("POST /jobs", `{"queue":"b","workload_b64":"/w==","at":1900000000,"wait":"1ms"}`, nil)
	d.does("POST /jobs", `{"queue_b64":"/w==","name_b64":"/w=="}`, nil)
	d.send(true, http.StatusOK, "POST /jobs", `{"queue":"b"}`, "Idempotency-Key", "key")
	d.send(true, http.StatusOK, "POST /jobs", "{\"queue\":\"b\"}\n{\"queue\":1}\n{}\n", "Content-Type", "application/x-ndjson")
	d.send(true, http.StatusOK, "POST /jobs", `{"queue":"b"}`, "Content-Type", "application/jsonl")
	d.send(false, http.StatusUnsupportedMediaType, "POST /jobs", `{"queue":"b"}`, "Content-Type", "text/plain")
	for _, body := range []string{
		`{"queue":7}`, `{"queue":"b","more":1}`, `{"queue":"b","delay":"soon"}`, `{"queue":"b","delay":-1}`, `{"queue":"b","at":"noon"}`, `{"queue":"b","at":1.5}`,
		`{"queue":"b","priority":"high"}`, `{"queue":"b","workload":{}}`, `{"queue_b64":"?"}`, `[]`, `{`,
	} {
		d.breaks("POST /jobs", body)
	}
	d.refuses(http.StatusBadRequest, "POST /jobs", `{"queue":"b","workload":"w","workload_b64":"/w=="}`)
	d.does("POST /jobs", `{"queue":"small"}`, nil)
	d.refuses(http.StatusTooManyRequests, "POST /jobs", `{"queue":"small"}`)
	d.send(true, http.StatusForbidden, "GET /queues", "", "Sec-Fetch-Site", "cross-site")
}

// lease leases a job of a queue and returns its token.
func (d *documented) lease(queue string) string {
	d.Helper()
	var leased struct{ Jobs []struct{ Token string } }
	d.does("POST /reserve", fmt.Sprintf(`{"queues":[%q],"jobs":1,"wait":"30s","lease":"1m","worker":"w"}`, queue), &leased)
	if len(leased.Jobs) != 1 {
		d.Fatalf("%d jobs of %s", len(leased.Jobs), queue)
	}
	return leased.Jobs[0].Token
}

func workDocumented(d *documented) {
	for range 6 {
		d.does("POST /jobs", `{"queue":"kept.work","workload":"w"}`, nil)
	}
	d.does("POST /reserve", `{"queues":["empty"],"queues_b64":["/g=="]}`, nil)
	d.breaks("POST /reserve", `{"queues":"kept.work"}`)
	d.refuses(http.StatusBadRequest, "POST /reserve", `{"queues":[]}`)
	for verb, more := range map[string]string{
		"done": `,"result":"r"`, "fail": `,"error":"e","delay":"10s"`, "release": "", "extend": `,"lease":"2m"`, "progress": `,"data_b64":"/w=="`,
	} {
		token := d.lease("kept.work")
		route := "POST /leases/" + verb
		d.breaks(route, `{"token":7}`)
		d.breaks(route, `{"token":"T","more":1}`)
		d.breaks(route, `[7]`)
		d.refuses(http.StatusNotFound, route, `{"token":"T"}`)
		body := fmt.Sprintf(`{"token":%q%s}`, token, more)
		if verb == "done" {
			d.does(route, "["+body+`,{"token":"T"}]`, nil)
			d.refuses(http.StatusConflict, route, body)
			continue
		}
		d.does(route, body, nil)
	}
	d.does("POST /leases/fail", fmt.Sprintf(`{"token":%q}`, d.lease("kept.work")), nil)
	d.does("GET /connections?protocol=periodic", "", nil)
}

// keptDocumented asks for the jobs that workDocumented left, and changes them.
func keptDocumented(d *documented) {
	const route = "POST /jobs/change"
	for state, verbs := range map[string][]string{"failed": {"retry", "remove"}, "done": {"remove"}} {
		var kept struct{ Jobs []struct{ ID string } }
		d.does("GET /jobs?limit=1&filter=queue:kept.work+state:"+state, "", &kept)
		if len(kept.Jobs) != 1 {
			d.Fatalf("%d %s jobs", len(kept.Jobs), state)
		}
		for _, verb := range verbs {
			d.does(route, fmt.Sprintf(`{"verb":%q,"ids":[%q,"0.0.99999"]}`, verb, kept.Jobs[0].ID), nil)
		}
	}
	d.breaks(route, `{"verb":"retry","ids":[7]}`)
	d.refuses(http.StatusBadRequest, route, `{"verb":"retry","queue":"kept.work"}`)
	d.refuses(http.StatusNotFound, route, `{"verb":"retry","queue":"kept.work","name":"none"}`)
}

func lookDocumented(d *documented) {
	d.does("POST /jobs", `{"queue":"kept.look","name":"n","workload":"w"}`, nil)
	d.does("POST /leases/done", fmt.Sprintf(`{"token":%q,"result":"r"}`, d.lease("kept.look")), nil)
	var jobs struct{ Jobs []struct{ ID string } }
	d.does("GET /jobs?filter=queue:kept.look&limit=10", "", &jobs)
	if len(jobs.Jobs) != 1 {
		d.Fatalf("%d jobs", len(jobs.Jobs))
	}
	d.does("GET /jobs?limit=2", "", nil)
	d.breaks("GET /jobs?limit=1001", "")
	d.refuses(http.StatusBadRequest, "GET /jobs?filter=state:none", "")
	for _, route := range []string{"GET /job", "GET /job/workload", "GET /job/result"} {
		d.does(route+"?id="+jobs.Jobs[0].ID, "", nil)
		d.refuses(http.StatusBadRequest, route+"?queue=kept.look", "")
		d.refuses(http.StatusNotFound, route+"?queue=kept.look&name=other", "")
	}
	d.does("GET /job?queue=b&name=key&protocol=periodic", "", nil)
	d.does("GET /overview?limit=1", "", nil)
	d.breaks("GET /overview?limit=0", "")
}

func changeDocumented(d *documented) {
	for _, name := range []string{"x", "y", "z"} {
		d.does("POST /jobs", fmt.Sprintf(`{"queue":"change","name":%q,"delay":"1h"}`, name), nil)
	}
	var jobs struct{ Jobs []struct{ ID string } }
	d.does("GET /jobs?filter=queue:change", "", &jobs)
	const route = "POST /jobs/change"
	d.does(route, fmt.Sprintf(`{"verb":"run","ids":[%q,"1.2.3"],"by":"ada","why":"test"}`, jobs.Jobs[0].ID), nil)
	d.does(route, `{"verb":"priority","filter":"queue:change","priority":7,"dry_run":true}`, nil)
	d.does(route, `{"verb":"due","ids":["1.2.3"],"delay":"1m"}`, nil)
	d.breaks(route, `{"verb":"due","filter":"queue:change","at":"noon"}`)
	d.breaks(route, `{"verb":7,"filter":"queue:change"}`)
	d.breaks(route, `{"filter":"queue:change"}`)
	d.refuses(http.StatusBadRequest, route, `{"verb":"run"}`)
	var started struct{ Operation string }
	d.does(route, `{"verb":"move","filter":"queue:change","to":"moved"}`, &started)
	d.does("GET /operations", "", nil)
	d.does("GET /operations?id="+started.Operation, "", nil)
	d.refuses(http.StatusNotFound, "GET /operations?id=none", "")
	d.refuses(http.StatusNotFound, "POST /operations/cancel", `{"operation":"none"}`)
	d.breaks("POST /operations/cancel", `{"operation":7}`)
	cancelDocumented(d)
	d.does("GET /audit?limit=3", "", nil)
	d.refuses(http.StatusBadRequest, "GET /audit?after=none", "")
}

// cancelDocumented cancels an operation while it runs: many jobs take it some time.
func cancelDocumented(d *documented) {
	var lines strings.Builder
	for range 20_000 {
		lines.WriteString("{\"queue\":\"many\",\"delay\":\"1h\"}\n")
	}
	d.send(true, http.StatusOK, "POST /jobs", lines.String(), "Content-Type", "application/x-ndjson")
	for n := 0; n < 100 && !d.answered["POST /operations/cancel"]; n++ {
		var started struct{ Operation string }
		d.does("POST /jobs/change", fmt.Sprintf(`{"verb":"priority","filter":"queue:many","priority":%d}`, n), &started)
		d.send(true, 0, "POST /operations/cancel", fmt.Sprintf(`{"operation":%q}`, started.Operation))
	}
}

func queuesDocumented(d *documented) {
	d.does("GET /queues?prefix=kept&limit=1", "", nil)
	d.refuses(http.StatusNotFound, "GET /queues?queue=none", "")
	d.refuses(http.StatusBadRequest, "GET /queues?after=%20", "")
	d.does("GET /queues?queue=b", "", nil)
	tries := time.NewTicker(100 * time.Millisecond) // the history begins after a second
	defer tries.Stop()
	for end := time.Now().Add(10 * time.Second); !d.answered["GET /history"] && time.Now().Before(end); <-tries.C {
		d.send(true, 0, "GET /history?span=5m", "")
	}
	d.does("GET /jobs/causes", "", nil)
	d.does("GET /projects", "", nil)
	d.does("GET /job/graph?queue=dwork&name=serve&protocol=dwork", "", nil)
	d.refuses(http.StatusConflict, "GET /job/graph?queue=b&name=key&protocol=periodic", "")
	for _, verb := range []string{"pause", "drain", "resume", "empty"} {
		route := "POST /queues/" + verb
		d.does(route, `{"queue":"b","by":"ada","why":"test"}`, nil)
		d.breaks(route, `{"queue":["b"]}`)
		d.refuses(http.StatusBadRequest, route, `{}`) // queue or queue_b64
		d.refuses(http.StatusBadRequest, route, `{"queue":""}`)
	}
	d.does("POST /queues/empty", `{"queue":"b","dry_run":true}`, nil)
	d.refuses(http.StatusNotFound, "POST /queues/drain", `{"queue":"none"}`)
	d.refuses(http.StatusBadRequest, "POST /queues/pause", `{"queue":"b","what":"all"}`)

	d.does("GET /policies", "", nil)
	d.does("GET /policies?queue=kept.a", "", nil)
	d.does("PATCH /policies", `{"pattern":"mail.*","values":{"retries":"3"}}`, nil)
	d.does("PATCH /policies", `{"pattern":"mail.*","values":{"retries":null}}`, nil)
	d.breaks("PATCH /policies", `{"pattern":"mail.*","values":{"retries":3}}`)
	d.refuses(http.StatusBadRequest, "PATCH /policies", `{"pattern":"mail.*","values":{"none":"3"}}`)
}

func cronDocumented(d *documented) {
	d.does("POST /cron", `{"name":"n","schedule":"30 2 * * *","queue":"b","zone":"UTC","workload":"w","missed":"skip"}`, nil)
	d.does("POST /cron", `{"name":"n","schedule":"@daily","queue":"b","overlap":"queue","replace":true}`, nil)
	d.breaks("POST /cron", `{"name":"n","queue":"b"}`)
	d.refuses(http.StatusBadRequest, "POST /cron", `{"name":"n","schedule":"never","queue":"b"}`)
	d.does("GET /cron?entry=n&next=5", "", nil)
	d.refuses(http.StatusNotFound, "GET /cron?entry=none", "")
	d.breaks("GET /cron?entry=n&next=0", "")
	for _, verb := range []string{"pause", "resume", "run", "remove"} {
		d.does("POST /cron/"+verb, `{"entry":"n"}`, nil)
		d.does("GET /cron", "", nil)
		d.breaks("POST /cron/"+verb, `{"entry":7}`)
		d.refuses(http.StatusNotFound, "POST /cron/"+verb, `{"entry":"none"}`)
	}
}

// serverDocumented asks about the server itself.
func serverDocumented(d *documented) {
	d.does("GET /settings", "", nil)
	d.does("POST /reload", "", nil)
	d.does("GET /openapi.json", "", nil)
	var open struct{ Connections []struct{ ID string } }
	d.breaks("POST /connections/close", `{"id":7}`)
	d.refuses(http.StatusNotFound, "POST /connections/close", `{"id":"zzzz"}`)
	d.breaks("POST /connections/quiet", `{"id":7}`)
	d.refuses(http.StatusNotFound, "POST /connections/quiet", `{"id":"zzzz","end":true}`)
	d.does("GET /connections?protocol=faktory", "", &open)
	if len(open.Connections) == 0 {
		d.Fatal("the connection of Faktory's worker is not there")
	}
	d.does("POST /connections/quiet", fmt.Sprintf(`{"id":%q}`, open.Connections[0].ID), nil)
	d.does("GET /connections?protocol=admin", "", &open) // that of the socket
	if len(open.Connections) == 0 {
		d.Fatal("the connection of the socket is not there")
	}
	d.does("POST /connections/close", fmt.Sprintf(`{"id":%q}`, open.Connections[0].ID), nil)
}
