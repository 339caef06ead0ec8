package web

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// patience bounds what hangs.
const patience = 2 * time.Minute

// serve serves at an address of the system's choice until the test ends.
func serve(t *testing.T, change ...func(*http.Server)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := New(l, func() []Sample { return nil })
	for _, f := range change {
		f(&server.http)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// asked connects, says what there is to say, and returns the status of the answer, 0: none.
func asked(t *testing.T, address, text string) (c net.Conn, status int) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(c, text)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		status = answer.StatusCode
		answer.Body.Close()
	}
	return c, status
}

const health = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

// TestTurnAway: there is a number of connections beyond which others are turned away; when one
// of them leaves there is room again.
func TestTurnAway(t *testing.T) {
	address := serve(t)
	var first net.Conn
	for i := range maxConnections + 5 {
		c, status := asked(t, address, health)
		if i == 0 {
			first = c
		}
		if want := map[bool]int{true: 200}[i < maxConnections]; status != want {
			t.Fatalf("connection %d is answered %d, want %d", i, status, want)
		}
	}
	first.Close()
	for status, end := 0, time.Now().Add(patience); status != 200; {
		if _, status = asked(t, address, health); time.Now().After(end) {
			t.Fatal("there is no room again")
		}
	}
}

// TestLongProfile: a profile may take longer than a request may take to arrive.
func TestLongProfile(t *testing.T) {
	address := serve(t, func(s *http.Server) { s.ReadTimeout, s.ReadHeaderTimeout = time.Millisecond, patience })
	began := time.Now()
	_, status := asked(t, address, "GET /debug/pprof/mutex?seconds=1 HTTP/1.1\r\nHost: x\r\n\r\n")
	if took := time.Since(began); status != 200 || took < time.Second {
		t.Errorf("it is answered %d after %v", status, took)
	}
}

// TestUnfinishedRequest: whoever does not say what it has announced is not waited for.
func TestUnfinishedRequest(t *testing.T) {
	for _, rest := range []string{"Content-Length: 100\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n100\r\nx", "Content-Le"} {
		t.Run(fmt.Sprintf("%.12s", rest), func(t *testing.T) {
			t.Parallel()
			address := serve(t)
			c, _ := asked(t, address, "POST /healthz HTTP/1.1\r\nHost: x\r\n"+rest)
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is kept")
			}
		})
	}
}

// TestEndlessBody: whoever sends more than anybody needs to say gets no more answered, and no
// memory for it.
func TestEndlessBody(t *testing.T) {
	address := serve(t)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	list := strings.Repeat(fmt.Sprintf("%#x+", reflect.ValueOf(New).Pointer()), 1000)
	_, _ = fmt.Fprintf(c, "POST /debug/pprof/symbol HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 100*len(list))
	go func() {
		for range 100 {
			if _, err := io.WriteString(c, list); err != nil {
				return
			}
		}
	}()
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if n, _ := io.Copy(io.Discard, answer.Body); n > 10*maxBody {
		t.Errorf("%d bytes are answered", n)
	}
}
