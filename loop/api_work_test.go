package loop

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	codec "treadle/codec/admin"
	"treadle/codec/periodic"
)

// post sends a request of JSON and decodes the answer.
func (a api) post(path, body string, into any) int {
	a.t.Helper()
	return a.do(http.MethodPost, path, "application/json", strings.NewReader(body), into)
}

// reserve takes jobs of a queue.
func (a api) reserve(ask string) (l codec.Leased) {
	a.t.Helper()
	if code := a.post("/reserve", ask, &l); code != http.StatusOK {
		a.t.Fatalf("%s: %d", ask, code)
	}
	return l
}

// TestAPIWork: a worker reserves jobs of several queues, the first of all first, and reports on each.
func TestAPIWork(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Admin: AdminOptions{Rules: []PolicyRule{{Pattern: "f", Values: map[string]string{"retries": "0", "keep-failed": "10"}}}}})
	a := api{t, r}
	if l := a.reserve(`{"queues":["f","g"]}`); len(l.Jobs) != 0 || l.Jobs == nil {
		t.Errorf("%+v", l)
	}
	a.submit(`{"queue":"f","name":"a","workload":"A"}`)
	a.submit(`{"queue":"g","name":"b","workload_b64":"/w==","priority":1}`)
	l := a.reserve(`{"queues":["f","g"],"jobs":10,"worker":"me","lease":"1h"}`)
	if len(l.Jobs) != 2 || l.Jobs[0].Name != "b" || string(l.Jobs[0].WorkloadBytes) != "\xff" || *l.Jobs[1].Workload != "A" {
		t.Fatalf("%+v", l)
	}
	b, one := l.Jobs[0], l.Jobs[1]
	var e codec.Error
	for _, c := range []struct {
		path, body string
		code       int
		reason     string
	}{
		{"/leases/extend", `{"token":"` + one.Token + `","lease":"2h"}`, 200, ""},
		{"/leases/progress", `{"token":"` + one.Token + `","data":"half"}`, 200, ""},
		{"/leases/fail", `{"token":"` + one.Token + `","error":"no disk"}`, 200, ""},
		{"/leases/fail", `{"token":"` + one.Token + `","error":"no disk"}`, 409, codec.LeaseDone},
		{"/leases/done", `{"token":"` + one.Token + `"}`, 409, codec.LeaseDone},
		{"/leases/release", `{"token":"` + b.Token + `"}`, 200, ""},
		{"/leases/done", `{"token":"` + b.Token + `"}`, 409, codec.LeaseDone},
		{"/leases/done", `{"token":"` + strings.Repeat("0", 32) + `"}`, 404, codec.NoLease},
		{"/leases/done", `{"token":"x"}`, 404, codec.NoLease},
		{"/leases/done", `{"token":"ff"}`, 404, codec.NoLease},
		{"/leases/done", `{}`, 404, codec.NoLease},
		{"/leases/done", `{"token":"` + b.Token + `","error":"x"}`, 400, ""},
		{"/leases/extend", `{"token":"` + b.Token + `","lease":"25h"}`, 400, ""},
		{"/leases/done", ``, 400, ""},
		{"/leases/done", `[` + strings.Repeat(`{"token":"x"},`, 1000) + `{"token":"x"}]`, 400, ""},
		{"/leases/done", `[{"token":"x"}] 1`, 400, ""},
		{"/leases/done", `[{"token":"x"}`, 400, ""},
		{"/reserve", `{"queues":[]}`, 400, ""},
		{"/reserve", `{"queues":[""]}`, 400, ""},
		{"/reserve", `{"queues":["f"],"jobs":-1}`, 400, ""},
		{"/reserve", `{"queues":["f"],"jobs":1001}`, 400, ""},
		{"/reserve", `{"queues":["f"],"wait":"6m"}`, 400, ""},
		{"/reserve", `{"queues":["f"],"lease":"25h"}`, 400, ""},
		{"/reserve", `{"queues":["f"],"worker":"` + strings.Repeat("w", 256) + `"}`, 400, ""},
	} {
		e = codec.Error{}
		if code := a.post(c.path, c.body, &e); code != c.code || e.Reason != c.reason {
			t.Errorf("%s %s: got %d %+v, want %d %q", c.path, c.body, code, e, c.code, c.reason)
		}
	}
	if failed, code := a.job("queue=f&name=a"); code != http.StatusOK || failed.State != codec.StateFailed || failed.Attempts[0].Text != "no disk" || failed.Attempts[0].Worker != "http:me" {
		t.Errorf("%d %+v", code, failed)
	}
	again := a.reserve(`{"queues":["g"]}`)
	var left codec.Reported
	if code := a.post("/leases/done", `[{"token":"`+again.Jobs[0].Token+`","result":"r"},{"token":"`+b.Token+`"}]`, &left); code != http.StatusOK || left.Reported != 1 || len(left.Left) != 1 || left.Left[0].Reason != codec.LeaseDone {
		t.Errorf("%d %+v", code, left)
	}
	if q := a.queue("f"); q.Failed != 1 || q.Running != 0 {
		t.Errorf("%+v", q)
	}
}

// TestAPIReserveWaits: a reserve that waits is in line with connected workers and takes the job that comes. The
// submitter that waits receives its result.
func TestAPIReserveWaits(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Loops: 2})
	a := api{t, r}
	work := make(chan codec.Leased, 1)
	go func() { work <- a.reserve(`{"queues":["other","f"],"wait":"1m"}`) }()
	r.until("the worker waits", func() bool {
		return a.do(http.MethodGet, "/queues?queue=f", "", nil, nil) == http.StatusOK && a.queue("f").Workers == 1
	})
	answer := make(chan codec.Submitted, 1)
	go func() { answer <- a.submit(`{"queue":"f","wait":"1m"}`) }()
	l := <-work
	if code := a.post("/leases/done", `{"token":"`+l.Jobs[0].Token+`","result":"r"}`, nil); code != http.StatusOK {
		t.Fatal(code)
	}
	if s := <-answer; s.State != "done" || *s.Result != "r" {
		t.Errorf("%+v", s)
	}
	if l := a.reserve(`{"queues":["f"],"wait":"1ms"}`); len(l.Jobs) != 0 {
		t.Errorf("%+v", l)
	}
}

// TestAPIReserveHangsUp: a worker that hangs up while it waits serves nothing any more, and loses no job. When its end
// and a job meet on the way, the job is ready again at the latest when its lease ends.
func TestAPIReserveHangsUp(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Loops: 2})
	a := api{t, r}
	body := `{"queues":["f"],"wait":"1m","lease":"100ms"}` + "\n"
	for n := range 20 {
		c, err := net.Dial("tcp", r.http)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /api/v1/reserve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		r.until("the worker waits", func() bool {
			return a.do(http.MethodGet, "/queues?queue=f", "", nil, nil) == http.StatusOK && a.queue("f").Workers == 1
		})
		if meets := n%2 == 1; meets {
			go c.Close()
		} else {
			c.Close()
			r.until("the worker has gone", func() bool {
				return a.do(http.MethodGet, "/queues?queue=f", "", nil, nil) == http.StatusNotFound || a.queue("f").Workers == 0
			})
		}
		a.submit(fmt.Sprintf(`{"queue":"f","name":"%d"}`, n))
		r.until("the job is ready", func() bool { q := a.queue("f"); return q.Ready == 1 && q.Running == 0 && q.Workers == 0 })
		l := a.reserve(`{"queues":["f"]}`)
		if len(l.Jobs) != 1 || a.post("/leases/done", `{"token":"`+l.Jobs[0].Token+`"}`, nil) != http.StatusOK {
			t.Fatalf("%+v", l)
		}
		r.until("the worker has gone", func() bool { return a.queue("f").Workers == 0 })
	}
}

// TestAPIBroadcast: a reserve that waits receives a broadcast, without a token. So does one that finds it ready.
func TestAPIBroadcast(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Loops: 2})
	a := api{t, r}
	r.greet(periodic.Worker).send(request(1, periodic.Broadcast, str8("f")))
	r.until("the worker serves", func() bool { return a.do(http.MethodGet, "/queues?queue=f", "", nil, nil) == http.StatusOK })
	a.submit(`{"queue":"f","name":"ready"}`)
	if l := a.reserve(`{"queues":["f"]}`); len(l.Jobs) != 1 || !l.Jobs[0].Broadcast || l.Jobs[0].Token != "" {
		t.Errorf("%+v", l)
	}
	work := make(chan codec.Leased, 1)
	go func() { work <- a.reserve(`{"queues":["f"],"wait":"1m"}`) }()
	r.until("a second worker waits", func() bool { return a.queue("f").Workers == 2 })
	a.submit(`{"queue":"f","name":"late"}`)
	if l := <-work; len(l.Jobs) != 1 || !l.Jobs[0].Broadcast || l.Jobs[0].Name != "late" {
		t.Errorf("%+v", l)
	}
	r.until("the workers have gone", func() bool { return a.queue("f").Workers == 1 })
}

// TestAPIStalledBody: a body that stops, or comes byte by byte, is answered, and its connection ends. Of lines, the
// whole ones are submitted.
func TestAPIStalledBody(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	all := map[string]net.Conn{}
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for _, kind := range []string{"application/json", ndjson, "application/json; a=drips"} {
		c, err := net.Dial("tcp", r.http)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n"+`{"queue":"f","name":"one"}`+"\n"+`{"queue":"f","name":"two"}`, kind)
		all[kind] = c
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for c, err := all["application/json; a=drips"], error(nil); err == nil; {
			select {
			case <-pause.C:
				_, err = c.Write([]byte(" "))
			case <-stop:
				return
			}
		}
	}()
	for kind, want := range map[string]string{"application/json": "408 Request Timeout", "application/json; a=drips": "408 Request Timeout", ndjson: `"submitted":1,"error":"the body stopped`} {
		_ = all[kind].SetReadDeadline(time.Now().Add(patience))
		if answer, err := io.ReadAll(all[kind]); err != nil && !errors.Is(err, syscall.ECONNRESET) || !strings.Contains(string(answer), want) {
			t.Errorf("%s: %v, %q", kind, err, answer) // what drips meanwhile resets the connection behind the answer
		}
	}
	if q := (api{t, r}).queue("f"); q.Ready != 1 {
		t.Errorf("%+v", q)
	}
}

// TestAPIStalledChange: a small body that comes byte by byte is answered as a large one is.
func TestAPIStalledChange(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	paths := []string{"/jobs/change", "/reserve", "/queues/pause", "/leases/done"}
	all := make([]net.Conn, len(paths))
	for n, path := range paths {
		c, err := net.Dial("tcp", r.http)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /api/v1%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", path)
		all[n] = c
	}
	for n, c := range all {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		answer, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(answer), "408 Request Timeout") || !strings.Contains(string(answer), `{"error":"the body stopped: less than 4096 bytes came within 10s"}`) {
			t.Errorf("%s: %v, %q", paths[n], err, answer)
		}
	}
}

// TestAPIReserveBounds: an answer ends with the job that makes it large. The jobs behind it are not lost.
func TestAPIReserveBounds(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	large := strings.Repeat("x", 3<<20)
	for range 5 {
		a.submit(`{"queue":"f","workload":"` + large + `"}`)
	}
	for _, want := range []int{2, 2, 1, 0} {
		if l := a.reserve(`{"queues":["f"],"jobs":5}`); len(l.Jobs) != want {
			t.Errorf("%d jobs, want %d", len(l.Jobs), want)
		}
	}
}

// TestAPILeaseOverRestart: a lease holds over a restart of the server, and ends with its time.
func TestAPILeaseOverRestart(t *testing.T) {
	t.Parallel()
	d := t.TempDir()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Data: d})
	a := api{t, r}
	a.submit(`{"queue":"f","name":"kept"}`)
	a.submit(`{"queue":"f","name":"short","priority":-1}`)
	l := a.reserve(`{"queues":["f"],"lease":"1h"}`)
	a.reserve(`{"queues":["f"],"lease":"1ms"}`)
	r.stop()
	r.wait()
	r = startServer(t, Options{HTTP: "127.0.0.1:0", Data: d})
	a = api{t, r}
	if short := a.reserve(`{"queues":["f"],"wait":"1m"}`); len(short.Jobs) != 1 || short.Jobs[0].Name != "short" {
		t.Errorf("%+v", short)
	}
	if code := a.post("/leases/done", `{"token":"`+l.Jobs[0].Token+`"}`, nil); code != http.StatusOK {
		t.Errorf("the lease of before the restart: %d", code)
	}
}

// TestAPIReserveCloses: a worker that closes its connection as soon as it has the whole answer keeps its jobs.
func TestAPIReserveCloses(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Loops: 2})
	a := api{t, r}
	large, body := strings.Repeat("x", 100<<10), `{"queues":["f"]}`
	for n := range 100 {
		a.submit(fmt.Sprintf(`{"queue":"f","name":"%d","workload":"%s"}`, n, large))
		c, err := net.Dial("tcp", r.http)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /api/v1/reserve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, answer.ContentLength)
		_, err = io.ReadFull(answer.Body, text)
		_ = c.Close() // no later than the server knows that everything is sent
		var l codec.Leased
		if err = errors.Join(err, json.Unmarshal(text, &l)); err != nil || len(l.Jobs) != 1 {
			t.Fatalf("%v, %d jobs", err, len(l.Jobs))
		}
		time.Sleep(time.Millisecond) // the server notices the end meanwhile
		if code := a.post("/leases/done", `{"token":"`+l.Jobs[0].Token+`"}`, nil); code != http.StatusOK {
			t.Fatalf("round %d: the report is answered with %d", n, code)
		}
	}
}
