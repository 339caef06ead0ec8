package loop

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	codec "treadle/codec/kts46"
	"treadle/loop/kts46"
	"treadle/sched"
)

// kts46Off turns the protocols off in tests of others, ktsOn listens with both versions.
var (
	kts46Off = Kts46Options{Listen: []string{"off"}, JSON: []string{"off"}}
	ktsOn    = Kts46Options{Listen: []string{"tcp://127.0.0.1:0"}, JSON: []string{"tcp://127.0.0.1:0"}}
)

// kts46 is the protocol of a server.
func (s *Server) kts46() *kts46.Protocol {
	for p := range protocolsWith[*kts46.Protocol](s) {
		return p
	}
	return nil
}

// ktsCaller calls the protocols of a server.
type ktsCaller struct {
	*Server
	t testing.TB
}

// post sends a body to the handler of a setting.
func (c ktsCaller) post(setting, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	c.kts46().Handler(setting)(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

// does calls a method of version 1 that must work.
func (c ktsCaller) does(method string, args ...any) any {
	c.t.Helper()
	v, err := codec.ReadAnswer(c.post(kts46.SettingXML, "/RPC2", string(codec.AppendCall(nil, method, args...))).Body)
	if err != nil {
		c.t.Fatalf("%s%q: %v", method, args, err)
	}
	return v
}

// json calls a method of version 2 and returns its result.
func (c ktsCaller) json(method string, params ...any) string {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"method": method, "params": params, "id": 1})
	if err != nil {
		c.t.Fatal(err)
	}
	var reply struct{ Result json.RawMessage }
	w := c.post(kts46.SettingJSON, "/jsonrpc", string(body))
	if err := json.Unmarshal(w.Body.Bytes(), &reply); err != nil || w.Code != 200 {
		c.t.Fatalf("%s: %d %q: %v", method, w.Code, w.Body, err)
	}
	return string(reply.Result)
}

// address is where a protocol is served.
func (r *testServer) address(protocol string) string {
	r.t.Helper()
	for _, l := range r.listening {
		if l.Setting == protocol {
			return strings.TrimPrefix(l.Address, "tcp://")
		}
	}
	r.t.Fatalf("nobody speaks %s", protocol)
	return ""
}

// dialKts opens a connection for bytes of the test's own.
func (r *testServer) dialKts(protocol string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.address(protocol))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func head(length int) string {
	return fmt.Sprintf("POST /RPC2 HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", length)
}

// answer reads one answer.
func answer(t *testing.T, c io.Reader) (status int, body string) {
	t.Helper()
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

// TestKts46Connections: they count under --max-connections.
func TestKts46Connections(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Kts46: ktsOn, MaxConnections: 2, HTTP: "127.0.0.1:0"})
	first, second := r.dialKts("kts46"), r.dialKts("kts46-json")
	r.wantMetric("treadle_connections", 2)
	third := r.dialKts("kts46")
	if n, err := third.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a third connection is served")
	}
	first.Close()
	second.Close()
	r.wantMetric("treadle_connections", 0)
	hello := string(codec.AppendCall(nil, "hello"))
	c := r.dialKts("kts46")
	if _, err := io.WriteString(c, head(len(hello))+hello); err != nil {
		t.Fatal(err)
	}
	if status, _ := answer(t, c); status != 200 {
		t.Errorf("status %d", status)
	}
}

// TestKts46Stop: a call under way is answered before the server ends, though its change is
// on disk only then; later calls are not answered.
func TestKts46Stop(t *testing.T) {
	t.Parallel()
	d := newDisk()
	r := d.on(t, Options{Kts46: ktsOn})
	call := string(codec.AppendCall(nil, "createProject", "p"))
	c := r.dialKts("kts46")
	d.gate.Lock()
	if _, err := io.WriteString(c, head(len(call))+call); err != nil {
		t.Fatal(err)
	}
	r.until("the call to be under way", func() bool { return r.kts46().HasPending() })
	r.end()
	d.gate.Unlock()
	if status, body := answer(t, c); status != 200 || !strings.Contains(body, "<nil/>") {
		t.Errorf("status %d, %s", status, body)
	}
	r.wait()
	if w := (ktsCaller{r.Server, t}).post(kts46.SettingXML, "/RPC2", call); w.Code != 503 || w.Body.String() != "the server is stopping\n" {
		t.Errorf("a call is heard: %d %s", w.Code, w.Body)
	}
	again := d.on(t, Options{Kts46: ktsOn})
	if (ktsCaller{again.Server, t}).does("projectExists", "p") != true {
		t.Error("what was answered is lost")
	}
}

// TestKts46Converted: projects and tasks in a directory of format 3 are in the present one, under the
// revisions that its workers know, and again at the next start.
func TestKts46Converted(t *testing.T) {
	t.Parallel()
	d := format3(t)
	clock := sched.Time{Wall: 1795430300000, WallMicros: 1795430300000000}
	start := func() ktsCaller {
		s, err := newServer(Options{Data: "data", Shards: 4, Loops: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.clock = func() sched.Time { return clock }
		s.stop = func() {}
		s.journalOpts.FS = d
		if err := s.openJournal(); err != nil {
			t.Fatal(err)
		}
		return ktsCaller{s, t}
	}
	end := func(c ktsCaller) {
		if err := c.journal.close(); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		c := start()
		for _, j := range [][3]string{{"p", "a", "p.a: 0.5 (2/4)."}, {"p", "idle", "p.idle: 0 (0/4)."}, {`Straße "1"`, "größe", `Straße "1".größe: 0 (0/200).`}} {
			if got := c.does("getJobStatus", j[0], j[1]); got != j[2] {
				t.Errorf("%v, want %v", got, j[2])
			}
		}
		for _, s := range c.kts46().Samples() {
			if s.Name == "treadle_kts46_definitions_parsed_total" && s.Value != 0 || s.Name == "treadle_kts46_projects" && s.Value != 3 {
				t.Errorf("%s is %v", s.Name, s.Value)
			}
		}
		end(c)
	}
	c := start()
	defer end(c)
	_, sig, _ := strings.Cut(c.json("taskInProgress", "y", time.UnixMilli(1795430201314).UTC().Format("2006-01-02T15:04:05.000Z")), `"sig":"`)
	if got := c.json("taskFinished", "y", strings.TrimRight(sig, `"}`)); got != `"success"` {
		t.Errorf("taskFinished: %s", got)
	}
	if got := c.does("getJobStatus", `Straße "1"`, "größe"); got != `Straße "1".größe: 0.035 (7/200).` {
		t.Errorf("%v", got)
	}
	if got := c.does("getNewJobId", "p"); got != int64(3) {
		t.Errorf("the next job id is %v", got)
	}
	for _, want := range [][3]string{{"z", "instant", "statistics"}, {"zz", "a", "simulation"}} {
		if task, _ := c.does("getJob", want[0]).(codec.Struct); task.Get("job") != want[1] || task.Get("type") != want[2] {
			t.Errorf("%s is given %v, want %s", want[0], task, want[1:])
		}
	}
}
