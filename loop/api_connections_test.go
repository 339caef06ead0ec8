package loop

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"treadle/codec/periodic"
)

// apiConn is a connection to --http that stays open.
type apiConn struct {
	t      *testing.T
	client http.Client
	url    string
}

func (r *testServer) apiConn() *apiConn {
	c := &apiConn{r.t, http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}, "http://" + r.http}
	r.t.Cleanup(c.client.CloseIdleConnections)
	return c
}

// get returns the status, the header and the text of an answer.
func (c *apiConn) get(path string) (status int, header http.Header, text string) {
	c.t.Helper()
	answer, err := c.client.Get(c.url + path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, answer.Header, string(body)
}

// gets asks for a page and wants a status.
func (c *apiConn) gets(path string, want int) {
	c.t.Helper()
	if status, _, text := c.get(path); status != want {
		c.t.Errorf("%s: %d %s, want %d", path, status, text, want)
	}
}

// TestMaxAPIConnections: a connection to the HTTP API beyond its limit is refused and told the setting. Those that are
// open, probes and workers of other protocols are served. A closed connection and a reload make room.
func TestMaxAPIConnections(t *testing.T) {
	t.Parallel()
	const queues = "/api/v1/queues"
	o := Options{HTTP: "127.0.0.1:0", MaxAPIConnections: 2, MaxConnections: 20}
	r := startServer(t, o)
	first, second, third := r.apiConn(), r.apiConn(), r.apiConn()
	first.gets(queues, http.StatusOK)
	second.gets(queues, http.StatusOK)
	status, header, text := third.get(queues)
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || header.Get("Content-Type") != "application/json" ||
		!strings.HasPrefix(text, `{"error":"`) || !strings.Contains(text, "--max-api-connections") {
		t.Errorf("%d %v %s", status, header, text)
	}
	r.wantMetric(`treadle_connections_refused_total{protocol="admin"}`, 1)
	r.wantMetric("treadle_connections", 2)
	first.gets(queues, http.StatusOK)
	for _, probe := range []string{"/livez", "/readyz", "/metrics"} {
		third.gets(probe, http.StatusOK)
	}
	r.greet(periodic.Client).ping()

	first.client.CloseIdleConnections()
	r.until("the closed connection makes room", func() bool {
		status, _, _ := third.get(queues)
		return status == http.StatusOK
	})
	first.gets(queues, http.StatusServiceUnavailable)
	o.MaxAPIConnections = 3
	if err := r.Reload(o); err != nil {
		t.Fatal(err)
	}
	first.gets(queues, http.StatusOK)
}

// TestMaxConnectionsOfAPI: those of the API are among --max-connections.
func TestMaxConnectionsOfAPI(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{HTTP: "127.0.0.1:0", MaxAPIConnections: 100, MaxConnections: 4})
	all := []*apiConn{r.apiConn(), r.apiConn(), r.apiConn()}
	for _, c := range all[:2] { // Periodic has a share of two
		c.gets("/api/v1/queues", http.StatusOK)
	}
	status, _, text := all[2].get("/api/v1/queues")
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "--max-connections") {
		t.Errorf("%d %s", status, text)
	}
}
