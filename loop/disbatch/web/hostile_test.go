package web

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
	"treadle/loop/web"
)

// TestSlowBodies: incomplete bodies delay no other request.
func TestSlowBodies(t *testing.T) {
	s := newWebSite(t)
	s.client.Timeout = sitetest.Patience
	for range maxRequests + maxLarge {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		must(t, err)
		defer c.Close()
		_, err = io.WriteString(c, "POST /tasks/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
		must(t, err)
	}
	for _, body := range []string{"{}", strings.Repeat(" ", largeBody) + "{}"} {
		s.says("POST", "/tasks/search", body, http.StatusOK, "[]")
	}
}

// slowPeer records whether the server has ended its connection.
type slowPeer struct {
	http.ResponseWriter
	ended bool
}

func (o *slowPeer) SetReadDeadline(time.Time) error { return nil }
func (o *slowPeer) SetWriteDeadline(end time.Time) error {
	o.ended = end.Before(time.Now())
	return nil
}

// TestBudget: over the limit the budget evicts the body or reply that has not moved for the longest, and never a small
// one.
func TestBudget(t *testing.T) {
	on := newTransfers(maxHeld)
	begin := func(peer *slowPeer) *web.Transfer {
		_, one := on.Begin(t.Context(), peer)
		return one
	}
	peers := make([]slowPeer, 6)
	small, moving := begin(&peers[0]), begin(&peers[1])
	small.Resize(freeHeld)
	for i := range peers[2:] {
		moving.Resize(maxHeld / 2)
		stuck := begin(&peers[i+2])
		stuck.Resize(maxHeld/2 - freeHeld)
	}
	for i, p := range peers {
		if want := i == 2 || i == 3 || i == 4; p.ended != want {
			t.Errorf("peer %d is ended: %v", i, p.ended)
		}
	}
	small.Resize(2 * maxHeld)
	if _, held, _ := on.State(); peers[0].ended || held != 1 {
		t.Errorf("the only one is given up, or %d more are there", held-1)
	}
	small.End()
	if _, held, bytes := on.State(); bytes != 0 || held != 0 {
		t.Errorf("%d bytes are left of %d", bytes, held)
	}
}

// TestEvictedRequestIsTold: over the limit the request that has waited for its turn for the longest is told to try
// again; the others are served.
func TestEvictedRequestIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan bool)
		const size = largeBody + 1
		h := bounded(newTransfers(5*size/2), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-leave }))
		var all sync.WaitGroup
		replies := make([]*httptest.ResponseRecorder, maxLarge+3)
		peers := make([]slowPeer, len(replies))
		for i := range replies {
			replies[i] = httptest.NewRecorder()
			peers[i].ResponseWriter = replies[i]
			all.Go(func() {
				h.ServeHTTP(&peers[i], httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat(" ", size))))
			})
			synctest.Wait()
		}
		if a := replies[maxLarge]; a.Code != http.StatusServiceUnavailable || !strings.Contains(a.Body.String(), "try again") {
			t.Errorf("it is told %d %s", a.Code, a.Body)
		}
		close(leave)
		all.Wait()
		for i, a := range replies {
			if peers[i].ended || i != maxLarge && a.Code != http.StatusOK {
				t.Errorf("request %d: %d %s, ended: %v", i, a.Code, a.Body, peers[i].ended)
			}
		}
	})
}

// TestNoTurnInTime: a search with a large result that gets no turn in time is not logged as a fault of the database.
func TestNoTurnInTime(t *testing.T) {
	s := newWebSite(t)
	q := s.Queue(d("name", "q", "plugin", "A"))
	_, err := s.Tasks.InsertOne(s.Ctx, d("queue", q.ID, "status", 1, "params", d("a", strings.Repeat("x", largeBody))))
	must(t, err)
	c := commandInterface{config: &config.File{}, store: s.Store, log: slog.New(slog.NewTextHandler(failing{t}, nil))}
	for path, search := range map[string]func(w http.ResponseWriter, r *http.Request){
		"/search": c.searchPage,
		"/json":   func(w http.ResponseWriter, r *http.Request) { send(w, c.postSearch(r, params{fields: bson.D{}})) },
		"/old":    func(w http.ResponseWriter, r *http.Request) { send(w, c.legacySearch(r, params{fields: bson.D{}})) },
	} {
		ctx, cancel := context.WithCancel(s.Ctx)
		w := httptest.NewRecorder()
		search(w, httptest.NewRequestWithContext(hurried{ctx, cancel}, "GET", path+"?limit=1", nil))
		cancel()
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "ask for fewer tasks") {
			t.Errorf("%s: %d %.1000s", path, w.Code, w.Body)
		}
	}
}

// hurried is a request's context that ends when the request asks for its large turn.
type hurried struct {
	context.Context
	cancel context.CancelFunc
}

// Value implements context.Context.
func (h hurried) Value(key any) any {
	if key != (largeKey{}) {
		return h.Context.Value(key)
	}
	h.cancel()
	return func() bool { return false }
}

// failing fails the test on any log line.
type failing struct{ t *testing.T }

// Write implements io.Writer.
func (f failing) Write(b []byte) (int, error) {
	f.t.Errorf("%s", b)
	return len(b), nil
}

// TestManyValues: a value with too many values in it is refused, wherever they stand.
func TestManyValues(t *testing.T) {
	for text, want := range map[string]bool{`[0,0,0]`: true, `{"a":{"b":{}}}`: true, `[[],0,0,0]`: false, `[[],[[]]]`: true, `{"a":0,"a":0,"a":0,"a":0}`: false} {
		p := jsonParser{json.NewDecoder(strings.NewReader(text)), 4}
		if _, err := p.value(0); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	s := newWebSite(t)
	s.says("POST", "/tasks/q", "["+strings.Repeat("0,", maxValues)+"0]", http.StatusBadRequest, "more than 2097152 values: create the tasks in several requests")
}

// TestDeepAndLong: a reply that indenting would make far longer is one line.
func TestDeepAndLong(t *testing.T) {
	f := func(n int, lines bool) {
		t.Helper()
		var deep any = make([]int, n)
		for range maxDepth - 1 {
			deep = []any{deep}
		}
		text, err := encode(deep, true)
		if got := strings.Contains(string(text), "\n "); err != nil || got != lines || len(text) > 200*maxPretty {
			t.Errorf("%d values are %d bytes, in lines: %v, %v", n, len(text), got, err)
		}
	}
	f(maxPretty/2-maxDepth, true)
	f(maxPretty/2, false)
}

// TestLargeTasksFound: a search holds a bounded part of its result, without outputs that the request did not ask for.
func TestLargeTasksFound(t *testing.T) {
	s := newWebSite(t)
	q := s.Queue(d("name", "q", "plugin", "A"))
	const tasks = maxResult/(15<<20) + 1
	for range tasks {
		_, err := s.Tasks.InsertOne(s.Ctx, d("queue", q.ID, "status", 1, "node", "n", "stdout", strings.Repeat("x", 15<<20), "params", d("a", 1)))
		must(t, err)
	}
	for path, short := range map[string]string{"/tasks/search": `{}`, "/search-tasks-json": `{"terse":1}`} {
		if text, _ := s.json("POST", path, short, http.StatusOK); strings.Count(text, `"stdout":"`+terse+`"`) != tasks || len(text) > maxPretty {
			t.Errorf("%s: %.1000s", path, text)
		}
		s.says("POST", path, `{"terse":0}`, http.StatusBadRequest, "ask for fewer")
		s.says("POST", path, `{"terse":0,"limit":1,"options":{"limit":1}}`, http.StatusOK, "xxxx")
	}
	for query, want := range map[string]int{"?limit=100": http.StatusOK, "?limit=100&output=1": http.StatusBadRequest} {
		if status, _, text := s.do("GET", "/search"+query, "-", ""); status != want || len(text) > 1<<20 {
			t.Errorf("the page %s: %d, %d bytes", query, status, len(text))
		}
	}
}

// TestLargeTasksFromQuery: tasks with many bytes are created in several insertions.
func TestLargeTasksFromQuery(t *testing.T) {
	s := newWebSite(t)
	q := s.Queue(d("name", "q", "plugin", "A"))
	const each, tasks = 1 << 20, 24
	before := 0
	f := func(params string) {
		t.Helper()
		s.json("POST", "/tasks/q/tasks", `{"filter":{"status":5},"params":`+params+`}`, http.StatusOK)
		if s.Fake == nil {
			return
		}
		calls := s.Fake.Calls("insert") - before
		if want := (tasks*each + insertBytes - 1) / insertBytes; calls < want {
			t.Errorf("%d insertions of %d MiB, want %d or more", calls, tasks, want)
		}
		before += calls
	}
	for range tasks {
		_, err := s.Tasks.InsertOne(s.Ctx, d("queue", q.ID, "status", 5, "params", d("a", strings.Repeat("y", each))))
		must(t, err)
	}
	if s.Fake != nil {
		before = s.Fake.Calls("insert")
	}
	f(`{"a":"document.params.a"}`)
	f(`{"a":"` + strings.Repeat("x", each) + `"}`)
	if n, err := s.Store.CountTasks(s.Ctx, d("queue", q.ID, "status", store.StatusQueued)); err != nil || n != 2*tasks {
		t.Errorf("%d tasks, %v", n, err)
	}
}
