package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// post returns a POST request, or its beginning: rest stands behind the first header lines.
func post(path, rest string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + rest
}

// chunks returns the beginning of a POST request with a chunked body.
func chunks(path, rest string) string {
	return post(path, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"+rest)
}

// whole returns a complete POST request.
func whole(path, body string) string {
	return post(path, fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
}

// paths maps the protocols over HTTP to a path that answers.
var paths = map[string]string{"kts46": "/RPC2", "kts46-json": "/jsonrpc", "http": "/metrics", "disbatch": "/tasks/search"}

// onHTTP adds the texts of says for each protocol of paths to others.
func onHTTP(others map[string][]string, says func(path string) []string) map[string][]string {
	for protocol, path := range paths {
		others[protocol] = says(path)
	}
	return others
}

// crooked returns malformed and ambiguous requests to a path. Each ends in a way that closes the connection.
func crooked(path string) []string {
	all := []string{
		post(path, "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"),
		post(path, "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
		post(path, "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
		post(path, "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
		post(path, "Content-Length: -1\r\n\r\n"),
		post(path, "Content-Length: 99999999999999999999\r\n\r\n"),
		post(path, "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"),
		post(path, "Expect: nothing\r\n\r\n"),
		post(path, strings.Repeat("a: b\r\n", 1<<16)),
		post(path, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n"),
		chunks(path, "fffffffffffffffff\r\n"),
		chunks(path, "-1\r\n"),
		"GET http://user@elsewhere" + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET /" + strings.Repeat("x", 1<<16) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"GET " + path + "\r\n",
		"GET " + path + " HTTP/1.1\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"CONNECT elsewhere:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	}
	for i := range all {
		all[i] += "\r\nno request\r\n\r\n"
	}
	return all
}

// unending maps beginnings of requests to a path to the text that is repeated behind each.
func unending(path string) map[string]string {
	all := map[string]string{
		post(path, ""):                  "a: b\r\n",
		"GET /":                         "x",
		chunks(path, "1;"):              "x",
		chunks(path, "1\r\nx\r\n0\r\n"): "a: b\r\n",
		chunks(path, ""):                "1\r\n \r\n",
		chunks(path, "100000000\r\n"):   " ",
		"":                              "\r\n",
	}
	for _, method := range []string{"HEAD", "OPTIONS", "BREW"} { // of what takes no time: else the system holds the answers of minutes
		all[method] = " /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n" + method
	}
	return all
}

// shapes sends all of these to each port of HTTP.
func (s *attack) shapes() {
	var all sync.WaitGroup
	for protocol, path := range paths {
		if s.ports[protocol] == "" {
			continue
		}
		for range s.scale {
			for _, text := range crooked(path) {
				all.Go(func() {
					c := s.dial(protocol)
					_, _ = io.WriteString(c, text)
					s.wantHungUp(c, fmt.Sprintf("%s, %.200q", protocol, text))
				})
			}
			for first, again := range unending(path) {
				all.Go(func() {
					c := s.dial(protocol)
					if err := neverRead(c, first, again); errors.Is(err, os.ErrDeadlineExceeded) {
						s.t.Errorf("%s, %q and again %q: the server neither reads nor hangs up", protocol, first, again)
					}
				})
			}
		}
	}
	all.Wait()
}

// asks sends a request on a connection of its own, and returns the answer.
func (s *attack) asks(protocol, request string) (status int, body string) {
	s.t.Helper()
	c := s.dial(protocol)
	defer c.Close()
	go func() { _, _ = io.WriteString(c, request) }() // an error shows in what is read
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Errorf("%s: %.200q is not answered: %v", protocol, request, err)
		return 0, ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(s.t, err)
	return answer.StatusCode, string(text)
}

// silent opens more connections without a request than the HTTP port takes, then makes requests beside them.
func (s *attack) silent() {
	for i := range 100 { // more of them only take longer to be hung up on
		c := s.dial("http")
		defer c.Close()
		_, _ = io.WriteString(c, []string{"", "GET /hea"}[i%2]) // it may have been hung up on
	}
	for range 10 {
		if status, _ := s.asks("http", endless["http"]); status != http.StatusOK {
			s.t.Errorf("status %d", status)
		}
	}
}

// disbatchHostiles are the attacks on a Disbatch command interface.
var disbatchHostiles = []struct {
	name   string
	memory int  // that it may take more
	waits  bool // as in hostiles
	attack func(s *attack)
}{
	// Two of the shapes are bodies without an end: the server holds as much of them as its budget allows, twice while a
	// buffer grows.
	{name: "shapes of HTTP", memory: 256 << 20, waits: true, attack: (*attack).shapes},
	{name: "bodies that come slowly", attack: func(s *attack) {
		for range s.files(200 * s.scale) {
			c := s.dial("disbatch")
			defer c.Close()
			_, err := io.WriteString(c, post("/tasks/search", "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"))
			must(s.t, err)
		}
		if status, body := s.asks("disbatch", whole("/tasks/search", "{}")); status != http.StatusOK {
			s.t.Errorf("%d %s", status, body)
		}
	}},
	{name: "large bodies that do not come to their end", memory: 512 << 20, attack: func(s *attack) {
		const size = 30 << 20
		text := strings.Repeat(" ", size)
		for range 20 * s.scale {
			c := s.dial("disbatch")
			defer c.Close()
			_, err := io.WriteString(c, post("/tasks/search", fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", size+1)+text))
			must(s.t, err)
		}
	}},
	{name: "bodies of very many values", memory: 512 << 20, attack: func(s *attack) {
		s.rest = true // what is allowed of them keeps a processor busy for seconds
		for range s.scale {
			var all sync.WaitGroup
			for _, text := range []string{"{},", "[],", "0,", `{"":0},`} {
				all.Go(func() {
					if status, body := s.asks("disbatch", whole("/tasks/search", "["+strings.Repeat(text, 30<<20/len(text))+"0]")); status != http.StatusBadRequest {
						s.t.Errorf("%d %.200s", status, body)
					}
				})
			}
			all.Wait()
		}
	}},
	{name: "replies that are not read", memory: 512 << 20, attack: func(s *attack) {
		if status, body := s.asks("disbatch", whole("/queues", `{"name":"q","plugin":"C"}`)); status != http.StatusOK {
			s.t.Fatalf("%d %s", status, body)
		}
		if status, body := s.asks("disbatch", whole("/tasks/q", `[{"a":"`+strings.Repeat("x", 8<<20)+`"}]`)); status != http.StatusOK {
			s.t.Fatalf("%d %.200s", status, body)
		}
		search := whole("/tasks/search", "{}")
		for range 40 { // far more than may be on their way; what more of them keep busy is the database
			c := s.dialFrom(net.Dialer{Control: littleRoom}, "disbatch")
			defer c.Close()
			_, err := io.WriteString(c, search)
			must(s.t, err)
		}
		if status, body := s.asks("disbatch", search); status != http.StatusOK || len(body) < 8<<20 {
			s.t.Errorf("%d, %d bytes", status, len(body))
		}
	}},
}

// TestHostileDisbatch is TestHostile of the command interface.
func TestHostileDisbatch(t *testing.T) {
	longFor(t)
	t.Parallel()
	for _, h := range disbatchHostiles {
		t.Run(h.name, func(t *testing.T) {
			if h.waits {
				t.Parallel()
			}
			s := newAttack(t, h.memory)
			d := startDCIBy(t, s.start, "")
			s.socket, s.server, s.ports["disbatch"] = "", d.process, strings.TrimPrefix(d.url, "http://")
			s.withProbes(func() { h.attack(s) })
			s.server.signal(syscall.SIGTERM)
			s.server.exit(0)
		})
	}
}
