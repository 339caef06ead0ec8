package loop

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	codec "treadle/codec/admin"
	"treadle/codec/periodic"
)

// connections reads all pages of connections.
func (a api) connections(query string, limit int) (all []codec.Connection) {
	a.t.Helper()
	for after, pages := "", 0; pages < 100; pages++ {
		var page codec.Connections
		path := fmt.Sprintf("/connections?limit=%d&after=%s%s", limit, after, query)
		if code := a.do(http.MethodGet, path, "", nil, &page); code != http.StatusOK {
			a.t.Fatalf("%s: %d", path, code)
		}
		all = append(all, page.Connections...)
		if after = page.Next; after == "" {
			return all
		}
	}
	a.t.Fatal("the pages have no end")
	return nil
}

func (a api) closeConnection(body string) int { return a.postConnections("close", body) }

// postConnections posts to a path below /connections and returns the status.
func (a api) postConnections(path, body string) int {
	a.t.Helper()
	return a.do(http.MethodPost, "/connections/"+path, "application/json", strings.NewReader(body), nil)
}

// TestAPIConnections: each connection is shown once, with what its peer does, on pages of any size. One that is closed
// ends, its jobs go back, and its id means no other one.
func TestAPIConnections(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Loops: 2})
	a := api{t, r}
	var peers []*testConn
	for range 5 {
		peers = append(peers, r.greet(periodic.Client))
	}
	w := r.greet(periodic.Worker)
	for n := range viewedQueues + 1 {
		w.send(request(uint32(n), periodic.CanDo, str8(fmt.Sprint("f", n))))
	}
	peers[0].ask(1, periodic.SubmitJob, job("f0", "j"), byte(periodic.Success))
	w.send(request(20, periodic.GrabJob), request(21, periodic.GrabJob))
	assigned(t, w.next())

	for _, limit := range []int{1, 2, 1000} {
		seen := make(map[string]codec.Connection)
		for _, c := range a.connections("", limit) {
			if _, twice := seen[c.ID]; twice {
				t.Errorf("limit %d: %s is there twice", limit, c.ID)
			}
			seen[c.ID] = c
		}
		if len(seen) != len(peers)+1 {
			t.Errorf("limit %d: %d connections", limit, len(seen))
		}
	}
	if n := len(a.connections("&protocol=gloom", 2)); n > 0 {
		t.Errorf("%d connections of Gloom", n)
	}
	var worker codec.Connection
	r.until("the job to be seen at its worker", func() bool {
		for _, c := range a.connections("&protocol=periodic", 3) {
			if c.Role == "worker" {
				worker = c
			}
		}
		return worker.Running == 1 && worker.Waiting == 1
	})
	if worker.Received == 0 || worker.Sent == 0 || worker.Since == 0 || len(worker.Queues) != viewedQueues || worker.MoreQueues != 1 || worker.Queues[0] != "f0" {
		t.Errorf("%+v", worker)
	}

	if code := a.postConnections("quiet", `{"id":"`+worker.ID+`"}`); code != http.StatusConflict {
		t.Errorf("quiet, of a worker that cannot be asked: got %d, want 409", code)
	}
	if code := a.closeConnection(`{"id":"` + worker.ID + `"}`); code != http.StatusOK {
		t.Errorf("close: %d", code)
	}
	w.wantClosed()
	r.until("its job to be ready", func() bool { return a.queue("f0").Ready == 1 })
	for body, want := range map[string]int{
		`{"id":"` + worker.ID + `"}`: http.StatusNotFound, `{"id":"3w5e11264sgsf"}`: http.StatusNotFound, `{"id":"zzzzzzzzzzzzzzzzzzz"}`: http.StatusBadRequest,
		`{"id":""}`: http.StatusBadRequest, `{}`: http.StatusBadRequest, `{"id":"-1"}`: http.StatusBadRequest,
	} {
		for _, path := range []string{"close", "quiet"} {
			if code := a.postConnections(path, body); code != want {
				t.Errorf("%s %s: %d, want %d", path, body, code, want)
			}
		}
	}
	for _, query := range []string{"?after=_", "?limit=0", "?limit=-1", "?limit=1001", "?after=%zz"} {
		if code := a.do(http.MethodGet, "/connections"+query, "", nil, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, code)
		}
	}
	if n := len(a.connections("", 1000)); n != len(peers) {
		t.Errorf("%d connections are left", n)
	}
}

// TestAPIConnectionsOfServices: connections that no event loop has are shown and closed as the others.
func TestAPIConnectionsOfServices(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", Kts46: ktsOn})
	a := api{t, r}
	for range 3 {
		r.dialKts("kts46")
	}
	var all []codec.Connection
	r.until("three connections", func() bool {
		all = a.connections("&protocol=kts46", 2)
		return len(all) == 3
	})
	for _, c := range all {
		if c.Since == 0 || !strings.Contains(c.Remote, "127.0.0.1") {
			t.Errorf("%+v", c)
		}
		if code := a.closeConnection(`{"id":"` + c.ID + `"}`); code != http.StatusOK {
			t.Errorf("close: %d", code)
		}
	}
	r.until("no connection", func() bool { return len(a.connections("&protocol=kts46", 2)) == 0 })
}
