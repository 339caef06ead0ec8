package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"treadle/loop/certs"
	"treadle/loop/certs/certtest"
	"treadle/loop/client"
)

// TestClusterTLS: nodes with certificates are one server, whose clients over TLS reach it at each node, also after the
// leader is killed. A node whose certificate is of another authority takes no part, and the log says why.
func TestClusterTLS(t *testing.T) {
	t.Parallel()
	n := newNodes(t)
	ours, theirs := certtest.New(t, "ours"), certtest.New(t, "theirs")
	expires := time.Now().Add(time.Hour)
	mine := ours.Issue(t.TempDir(), "client", expires)
	own, at, web := make([]certs.Files, 3), make([]string, 3), make([]string, 3)
	for i := range own {
		own[i] = ours.Issue(t.TempDir(), nodeID(i), expires)
		_, port, _ := strings.Cut(freePort(t), ":")
		at[i] = "localhost:" + port
		_, port, _ = strings.Cut(freePort(t), ":")
		web[i] = "localhost:" + port
	}
	n.serves = func(i int) []string {
		f := own[i]
		return []string{
			"--cluster-cert", f.Cert, "--cluster-key", f.Key, "--cluster-ca", f.CA, "--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA,
			"--periodic", "unix://" + n.socket(i), "--periodic", "tls://" + at[i], "--only", "periodic", "--http", "tls://" + web[i],
		}
	}
	for i := range own {
		n.start(i)
	}
	leader := n.leader()
	for i := range own {
		submitTLS(t, at[i], mine, fmt.Sprint("job", i))
		foreignPost(t, ours, mine, web[i])
	}
	n.kill(leader)
	n.leader()
	for _, i := range n.up() {
		submitTLS(t, at[i], mine, fmt.Sprint("later", i))
	}

	own[leader] = theirs.Issue(t.TempDir(), "stranger", expires)
	stranger := start(t, false, n.args(leader)...)
	stranger.until("certificate")
	stranger.drain()
	submitTLS(t, at[n.leader()], mine, "last")
}

// submitTLS submits a job over TLS, and again while the cluster has no leader.
func submitTLS(t *testing.T, at string, files certs.Files, name string) {
	t.Helper()
	address := fmt.Sprintf("tls://%s?ca=%s&cert=%s&key=%s", at, files.CA, files.Cert, files.Key)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ; ; time.Sleep(50 * time.Millisecond) {
		c, err := client.Dial(ctx, address, client.Options{})
		if err == nil {
			err = c.Submit(ctx, &client.Job{Func: "f", Name: name})
			c.Close()
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", address, err)
		}
	}
}

// foreignPost checks that a node answers a probe over TLS, and refuses what a page of another site sends.
func foreignPost(t *testing.T, authority *certtest.Authority, files certs.Files, at string) {
	t.Helper()
	to := http.Client{Transport: &http.Transport{TLSClientConfig: authority.Client(&files), DisableKeepAlives: true}}
	f := func(method, path string, want int) {
		t.Helper()
		r := worked(http.NewRequestWithContext(t.Context(), method, "https://"+at+path, strings.NewReader(`{"queue":"q","name":"n"}`)))(t)
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Content-Type", "application/json")
		a := worked(to.Do(r))(t)
		defer a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("%s of %s at %s: %s, want %d", method, path, at, a.Status, want)
		}
	}
	f(http.MethodGet, "/livez", http.StatusOK)
	f(http.MethodPost, "/api/v1/jobs", http.StatusForbidden)
}
