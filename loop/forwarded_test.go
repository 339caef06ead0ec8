package loop

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"treadle/loop/cluster"
)

// forwardedServer starts a server of a cluster. open opens forwarded connections to its ports.
func forwardedServer(t *testing.T, o Options) (s *testServer, open func(setting string, ordinal int, client cluster.Client) net.Conn) {
	t.Helper()
	all := nodePorts{openNew: openAddress}
	t.Cleanup(all.close)
	ports := all.beginRole()
	s = startServer(t, o, func(s *Server) { s.listenOn, s.holdsLease = ports.open, func() bool { return true } })
	return s, func(setting string, ordinal int, client cluster.Client) net.Conn {
		t.Helper()
		c, err := ports.dialLocal(setting, ordinal, "b", client)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// TestForwardedHTTP: the HTTP API refuses a client of another machine, although its connection comes from the follower.
func TestForwardedHTTP(t *testing.T) {
	t.Parallel()
	_, open := forwardedServer(t, Options{HTTP: "127.0.0.1:0"})
	for address, want := range map[string]int{"127.0.0.1:4242": http.StatusOK, "[::1]:4242": http.StatusOK, "10.0.0.7:4242": http.StatusForbidden} {
		c := open("http", 0, cluster.Client{Network: "tcp", Address: address})
		if _, err := io.WriteString(c, "GET /api/v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != want {
			t.Errorf("%s gets %s, want %d", address, answer.Status, want)
		}
		_ = answer.Body.Close()
	}
}

// TestForwardedAddresses: the table of connections has the addresses of forwarded clients, and the audit their users.
func TestForwardedAddresses(t *testing.T) {
	t.Parallel()
	var o Options
	dir := t.TempDir()
	o.Admin.Listen, o.Kts46.Listen = []string{"unix://" + dir + "/a"}, []string{"tcp://127.0.0.1:0"}
	var log lockedBuffer
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	s, open := forwardedServer(t, o)
	user := uint32(4242)
	open("periodic", 0, cluster.Client{Network: "unix"})
	open("periodic", 1, cluster.Client{Network: "tcp", Address: "10.0.0.7:1"})
	open("kts46", 0, cluster.Client{Network: "tcp", Address: "10.0.0.8:2"})
	c := open("admin", 0, cluster.Client{Network: "unix", User: &user})
	if _, err := io.WriteString(c, "POST /api/v1/queues/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n"+`{"queue":"q"}`); err != nil {
		t.Fatal(err)
	}
	if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("a pause gets %v, %v", answer, err)
	}
	var got []string
	s.until("four connections", func() bool {
		got = nil
		for _, c := range (host{s.Server}).Connections(0, 10) {
			got = append(got, c.Protocol+" "+c.Remote)
		}
		return len(got) == 4
	})
	slices.Sort(got)
	if want := "admin unix://b, kts46 tcp://10.0.0.8:2, periodic tcp://10.0.0.7:1, periodic unix://b"; strings.Join(got, ", ") != want {
		t.Errorf("the connections are %s, want %s", strings.Join(got, ", "), want)
	}
	if !strings.Contains(log.String(), fmt.Sprintf("user=%d", user)) {
		t.Errorf("the audit does not name the user %d", user)
	}
}

// TestNodePorts: a port stays open between two roles, and the next role serves a connection that came meanwhile.
func TestNodePorts(t *testing.T) {
	t.Parallel()
	ports := nodePorts{openNew: openAddress}
	defer ports.close()
	for _, address := range []string{"tcp://127.0.0.1:0", "unix://" + t.TempDir() + "/p"} {
		first, err := ports.beginRole().open("periodic", address)
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan error, 1)
		go func() {
			_, err := first.Accept()
			accepted <- err
		}()
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-accepted; err != net.ErrClosed {
			t.Errorf("%s: Accept of a closed listener returns %v", address, err)
		}
		c, err := net.Dial(first.Addr().Network(), first.Addr().String())
		if err != nil {
			t.Fatalf("%s: between two roles: %v", address, err)
		}
		second, err := ports.beginRole().open("periodic", address)
		if err != nil {
			t.Fatal(err)
		}
		served, err := second.Accept()
		if err != nil || second.Addr().String() != first.Addr().String() {
			t.Fatalf("%s: %v at %s, which was %s", address, err, second.Addr(), first.Addr())
		}
		if _, err := first.Accept(); err != net.ErrClosed {
			t.Errorf("%s: Accept of the first listener returns %v", address, err)
		}
		_ = second.Close()
		ports.closeUnused()
		if _, err := net.Dial(first.Addr().Network(), first.Addr().String()); err == nil {
			t.Errorf("%s: it is open, although no role has it", address)
		}
		_, _ = c.Close(), served.Close()
	}
}
