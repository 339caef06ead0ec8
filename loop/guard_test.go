package loop

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// webAsk sends a request to one of the HTTP ports: host is its Host header, "" for the address; headers are names and
// values by turns.
func (r *testServer) webAsk(port, method, path, body, host string, headers ...string) (status int, text string) {
	r.t.Helper()
	address := r.http
	if port != "http" {
		address = r.address(port)
	}
	request, err := http.NewRequest(method, "http://"+address+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if host != "" {
		request.Host = host
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(all)
}

const createProject = `<?xml version="1.0"?><methodCall><methodName>createProject</methodName><params><param><value><string>%s</string></value></param></params></methodCall>`

// TestPagesOfOtherSites: requests that a page of another site makes a browser send change nothing and are refused, on
// each HTTP port. Requests of the original clients pass.
func TestPagesOfOtherSites(t *testing.T) {
	t.Parallel()
	r := startServer(t, Options{Kts46: ktsOn, HTTP: "127.0.0.1:0", Dwork: DworkOptions{Listen: []string{"tcp://127.0.0.1:0"}}, AllowHosts: []string{"jobs.example"}})
	ask := func(want int, port, method, path, body, host string, headers ...string) {
		t.Helper()
		status, text := r.webAsk(port, method, path, body, host, headers...)
		if status != want {
			t.Errorf("%s: %s %s of %q with %q: %d %.100s, want %d", port, method, path, host, headers, status, text, want)
		}
		if want == http.StatusForbidden && !strings.Contains(text, "--allow-host") {
			t.Errorf("%s: the text does not name the setting: %s", port, text)
		}
	}
	creates := func(want int, name, host string, headers ...string) {
		t.Helper()
		ask(want, "kts46", "POST", "/RPC2", fmt.Sprintf(createProject, name), host, headers...)
		if exists := (ktsCaller{r.Server, t}).does("projectExists", name); exists != (want == 200) {
			t.Errorf("the project %q with %q: %v", name, headers, exists)
		}
	}
	creates(403, "a", "", "Content-Type", "text/plain", "Origin", "http://evil.example")
	creates(403, "b", "", "Content-Type", "text/plain", "Origin", "null")
	creates(403, "c", "", "Content-Type", "text/plain", "Sec-Fetch-Site", "cross-site")
	creates(403, "d", "evil.example:46210", "Content-Type", "text/xml", "Sec-Fetch-Site", "same-origin", "Origin", "http://evil.example:46210")
	creates(403, "e", "evil.example")
	creates(200, "f", "", "Content-Type", "text/xml", "User-Agent", "xmlrpclib.py/1.0.1 (by www.pythonware.com)")
	creates(200, "g", "", "Content-Type", "text/plain")
	creates(200, "h", "localhost:46210")
	creates(200, "i", "jobs.example:46210")

	const hello = `{"method":"hello","params":[],"id":1}`
	ask(403, "kts46-json", "POST", "/jsonrpc", hello, "", "Content-Type", "text/plain", "Origin", "http://evil.example")
	ask(403, "kts46-json", "POST", "/jsonrpc", hello, "evil.example")
	ask(200, "kts46-json", "POST", "/jsonrpc", hello, "", "Content-Type", "application/x-www-form-urlencoded")
	for _, path := range []string{"/", "/status", "/metrics", "/healthz"} { // all show the status
		ask(403, "kts46-json", "GET", path, "", "evil.example")
		ask(403, "kts46-json", "GET", path, "", "", "Sec-Fetch-Site", "cross-site")
		ask(200, "kts46-json", "GET", path, "", "")
	}
	ask(403, "http", "GET", "/dwork/graph", "", "evil.example")
	ask(200, "http", "GET", "/dwork/graph", "", "")
	ask(403, "http", "GET", "/debug/pprof/", "", "evil.example")
	ask(403, "http", "POST", "/debug/pprof/symbol", "0x1", "", "Content-Type", "text/plain", "Origin", "http://evil.example")
	ask(200, "http", "GET", "/metrics", "", "monitor.example")
	ask(200, "http", "GET", "/healthz", "", "probe.example")
	for reason, want := range map[string]int{"host": 9, "origin": 9} {
		if got := r.metric(`treadle_http_refused_total{reason="` + reason + `"}`); got != want {
			t.Errorf("%d requests are counted as refused for their %s, want %d", got, reason, want)
		}
	}
}

// TestAllowHostRefused: a setting that names no host is refused at the start.
func TestAllowHostRefused(t *testing.T) {
	t.Parallel()
	var wrong *OptionError
	if _, err := newServer(Options{Data: NoData, AllowHosts: []string{"http://jobs.example"}}); !errors.As(err, &wrong) || wrong.Setting != "allow-host" {
		t.Errorf("%v", err)
	}
}
