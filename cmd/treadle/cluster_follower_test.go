package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// freePort returns an address at which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 { // below the ports that the kernel gives connections, which may take one before the server has it
		address := fmt.Sprintf("127.0.0.1:%d", 16384+rand.IntN(16384))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}

// webNodes are nodes with HTTP.
type webNodes struct {
	*testNodes
	http []string
}

// ask asks a node, and returns the status and the body; 0: it has no answer.
func (n *webNodes) ask(i int, method, path string, body io.Reader) (status int, answer string) {
	n.t.Helper()
	r, err := http.NewRequestWithContext(n.t.Context(), method, "http://"+n.http[i]+path, body)
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/html, */*")
	to := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := to.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		return 0, err.Error()
	}
	return a.StatusCode, string(b)
}

// until asks a node until the answer has a text.
func (n *webNodes) until(i int, path, text string) {
	n.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		_, got := n.ask(i, "GET", path, nil)
		if strings.Contains(got, text) {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("node %s answers %q at %s, want %q", nodeID(i), got, path, text)
		}
	}
}

// TestClusterFollower: a follower has probes and metrics of its own, and passes all other requests of HTTP on. One that
// the leader cannot answer any more ends without an answer. Without a leader, the node shows the cluster at the address
// of any page.
func TestClusterFollower(t *testing.T) {
	t.Parallel()
	n := &webNodes{testNodes: newNodes(t)}
	for range n.peers {
		n.http = append(n.http, freePort(t))
	}
	n.serves = func(i int) []string {
		return []string{"--periodic", "unix://" + n.socket(i), "--only", "periodic", "--http", n.http[i]}
	}
	n.start(0)
	n.until(0, "/readyz", "waiting until this node has met all nodes with which its cluster begins: b c")
	if status, _ := n.ask(0, "GET", "/livez", nil); status != http.StatusOK {
		t.Errorf("/livez of a node that waits has the status %d", status)
	}
	n.start(1)
	n.start(2)
	leader := n.leader()
	for i := range n.peers {
		role, says := "follower", "ok: follower of "+nodeID(leader)+", 0 entries behind\n"
		if i == leader {
			role, says = "leader", "ok: leader\n"
		}
		n.until(i, "/readyz", says)
		n.until(i, "/metrics", fmt.Sprintf("treadle_cluster_role{role=%q} 1\n", role))
	}
	follower := (leader + 1) % 3
	n.until(leader, "/metrics", fmt.Sprintf("treadle_cluster_node_behind_entries{node=%q} 0\n", nodeID(follower)))

	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // on a busy machine the leader may change
		status, got := n.ask(follower, "POST", "/api/v1/jobs", strings.NewReader(`{"queue":"q","name":"n","workload":"`+string(payload)+`"}`))
		if status == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a submission gets %d, %s", status, got)
		}
	}
	n.until(leader, "/api/v1/jobs?filter=queue:q", `"name":"n"`)
	if status, got := n.ask(follower, "GET", "/api/v1/job/workload?queue=q&name=n", nil); status != http.StatusOK || got != string(payload) {
		t.Errorf("the payload gets %d and has %d bytes: %.200s", status, len(got), got)
	}
	if status, got := n.ask(follower, "GET", "/", nil); status != http.StatusOK || !strings.Contains(got, "<title>Overview") {
		t.Errorf("the page gets %d, %.200s", status, got)
	}

	for tries := 1; ; tries++ {
		leader = n.leader()
		follower = (leader + 1) % 3
		answered := make(chan int, 1)
		go func() {
			status, _ := n.ask(follower, "POST", "/api/v1/reserve", strings.NewReader(`{"queues":["none"],"wait":"5s"}`))
			answered <- status
		}()
		n.until(leader, "/api/v1/queues", `"none"`)
		n.kill(leader)
		status := <-answered
		if status == 0 {
			break
		}
		if tries == 3 {
			t.Fatalf("a request that the leader may have got has the answer %d", status)
		}
		n.start(leader) // on a busy machine another one may have led
	}
	n.until(follower, "/readyz", "ok: ")
	n.until(follower, "/api/v1/jobs?filter=queue:q", `"name":"n"`)
	n.until(follower, "/cluster", "</svg>unreachable")
	n.until(follower, "/", "node "+nodeID(leader)+" cannot be reached")

	n.kill(3 - leader - follower)
	n.until(follower, "/api/v1/cluster", `"kind":"no-leader"`)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		status, got := n.ask(follower, "GET", "/jobs", nil)
		if status == http.StatusServiceUnavailable && strings.Contains(got, "does not serve now") && strings.Count(got, "</svg>unreachable") == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the page of a node without a leader gets %d, %.2000s", status, got)
		}
	}
}
