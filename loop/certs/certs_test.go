package certs_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"treadle/loop/certs"
	"treadle/loop/certs/certtest"
)

// handshake returns the name in the certificate that a client gets, and the error of the server or the client.
func handshake(t *testing.T, server, client *tls.Config) (name string, err error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a pipe would block the alerts of both
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	failed := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			defer c.Close()
			secured := tls.Server(c, server)
			if err = secured.Handshake(); err == nil {
				_, err = secured.Write([]byte("x"))
			}
		}
		failed <- err
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err == nil {
		defer c.Close()
		name = c.ConnectionState().PeerCertificates[0].Subject.CommonName
		_, err = c.Read(make([]byte, 1)) // TLS 1.3 refuses a client here
	}
	if of := <-failed; err == nil {
		err = of
	}
	return name, err
}

// TestReload: a handshake has the certificates that the files have, also those of clients; a pair that cannot be used
// leaves the old one in use.
func TestReload(t *testing.T) {
	dir, ours, theirs := t.TempDir(), certtest.New(t, "ours"), certtest.New(t, "theirs")
	expires := time.Now().Add(time.Hour).Truncate(time.Second)
	first := ours.Issue(dir, "server", expires)
	client := ours.Issue(t.TempDir(), "client", expires)
	s, err := certs.Open(first, tls.VersionTLS12, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if !s.Expiry().Equal(expires) {
		t.Errorf("it expires at %v, want %v", s.Expiry(), expires)
	}
	f := func(when string, own *certs.Files, want string) {
		t.Helper()
		name, err := handshake(t, s.Config(), ours.Client(own))
		if want == "" && (err != nil || name != "server") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v, want %q", when, name, err, want)
		}
	}
	f("a client with a certificate", &client, "")
	f("a client without one", nil, "certificate required")
	foreign := theirs.Issue(t.TempDir(), "stranger", expires)
	f("a client of another authority", &foreign, "tls: ")
	expired := ours.Issue(t.TempDir(), "late", time.Now().Add(-time.Minute))
	f("a client that has expired", &expired, "tls: ")

	key, err := os.ReadFile(first.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(first.Key, key[:len(key)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), first.Key) || s.Failures() != 1 {
		t.Errorf("half a key: %v, %d failures", err, s.Failures())
	}
	if err := s.Reload(); err != nil || s.Failures() != 1 {
		t.Errorf("half a key, seen again: %v, %d failures", err, s.Failures())
	}
	f("half a key", &client, "")

	ours.Issue(dir, "server", expires.Add(time.Minute))
	if err := s.Reload(); err != nil || !s.Expiry().Equal(expires.Add(time.Minute)) {
		t.Errorf("a new pair: %v, it expires at %v", err, s.Expiry())
	}
	if err := os.Rename(foreign.CA, first.CA); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // the next handshake looks by itself
	f("a client of the former authority", &client, "tls: ")
	if name, err := handshake(t, s.Config(), ours.Client(&foreign)); err != nil || name != "server" {
		t.Errorf("a client of the new authority: %q, %v", name, err)
	}
}

// TestOpenFails: files that cannot be used are named.
func TestOpenFails(t *testing.T) {
	dir, a := t.TempDir(), certtest.New(t, "ours")
	good := a.Issue(dir, "server", time.Now().Add(time.Hour))
	other := a.Issue(dir, "other", time.Now().Add(time.Hour))
	f := func(files certs.Files, want string) {
		t.Helper()
		if _, err := certs.Open(files, tls.VersionTLS12, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", files, err, want)
		}
	}
	f(certs.Files{Cert: dir + "/none", Key: good.Key}, dir+"/none: no such file")
	f(certs.Files{Cert: good.Cert, Key: other.Key}, "private key does not match public key")
	f(certs.Files{Cert: good.Cert, Key: good.Key, CA: good.Key}, good.Key+": it has no certificate")
}
