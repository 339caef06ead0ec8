package store_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// authority makes a certificate authority with one certificate for 127.0.0.1. It returns the file with that
// certificate.
func authority(t *testing.T) (file string, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	file = filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return file, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// overTLS listens with TLS in front of a fake and returns the address.
func overTLS(t *testing.T, to string, pair tls.Certificate) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", to)
			if err != nil {
				front.Close()
				continue
			}
			copying := func(to, from net.Conn) {
				_, _ = io.Copy(to, from) // until one connection ends
				to.Close()
				from.Close()
			}
			go copying(back, front)
			go copying(front, back)
		}
	}()
	return l.Addr().String()
}

// pings opens the database of a configuration as a node does and returns the error of a ping.
func pings(t *testing.T, text string) error {
	t.Helper()
	c, err := config.Parse([]byte(text))
	must(t, err)
	site, err := store.Open(c.Connection(config.ComponentNode))
	if err != nil {
		return err
	}
	defer site.Close()
	ctx, cancel := context.WithTimeout(t.Context(), sitetest.Patience)
	defer cancel()
	for ctx.Err() == nil { // until an attempt to connect has ended
		err = site.Ping(ctx)
		if err == nil || !strings.Contains(err.Error(), "deadline") || strings.Contains(err.Error(), "Last error") {
			break
		}
	}
	return site.Explain(err)
}

// TestTLS: TLS with a certificate authority of the site, by attributes or by the address. The error for a certificate
// of another authority names the settings.
func TestTLS(t *testing.T) {
	ca, pair := authority(t)
	other, _ := authority(t)
	address := overTLS(t, sitetest.StartFake(t).Address(), pair)
	// The driver's error is the last one of the time, so that needs to be long enough for a handshake on a busy
	// machine.
	const limits = "timeoutMS=10000&serverSelectionTimeoutMS=2000"
	f := func(query, attributes, want string) {
		t.Run(query+attributes, func(t *testing.T) {
			t.Parallel()
			err := pings(t, fmt.Sprintf(`{"mongohost": "mongodb://%s/?%s%s", "attributes": {%s}}`, address, limits, query, attributes))
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
	const named = "mongohost or ssl of attributes"
	f("", fmt.Sprintf(`"ssl": {"SSL_ca_file": %q}`, ca), "")
	f("&tls=true&tlsCAFile="+ca, "", "")
	f("", `"ssl": {"SSL_verify_mode": 0}`, "")
	f("", fmt.Sprintf(`"ssl": {"SSL_ca_file": %q}`, other), named)
	f("&tls=true&tlsCAFile="+other, "", named)
	f("", `"ssl": true`, named)
	f("", `"ssl": {"SSL_ca_file": "/no/such/file"}`, "attributes: ssl: cannot read SSL_ca_file")
	f("", fmt.Sprintf(`"ssl": {"SSL_cert_file": %q}`, ca), "attributes: ssl: SSL_cert_file")
}

// TestAuthentication: passwords of auth, of attributes and of the address, each with its user and database. The error
// for a wrong password names the setting.
func TestAuthentication(t *testing.T) {
	d := sitetest.StartFake(t)
	must(t, d.Require("jobs", map[string]string{config.ComponentNode: "pencil", "alice": "p:ß"}))
	f := func(login, database, more, want string) {
		t.Helper()
		err := pings(t, fmt.Sprintf(`{"mongohost": "mongodb://%s%s/?%s", "database": %q, %s}`, login, d.Address(), sitetest.Limits, database, more))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("as %s with %s: %v, want %q", login, more, err, want)
		}
	}
	f("", "jobs", `"auth": {"disbatchd": "pencil", "task_runner": "x"}`, "")
	f("", "jobs", `"attributes": {"username": "alice", "password": "p:ß", "db_name": "jobs"}`, "")
	f("alice:p%3A%C3%9F@", "jobs", `"gfs": false`, "see mongohost") // without authSource
	f("", "jobs", `"auth": {"disbatchd": "wrong"}`, "see disbatchd of auth")
	f("", "other", `"auth": {"disbatchd": "pencil"}`, "see disbatchd of auth") // the database is the authSource, as in the original
	f("", "jobs", `"attributes": {"username": "alice", "password": "x", "db_name": "jobs"}`, "see username and password of attributes")
	f("bob:x@", "jobs", `"gfs": false`, "see mongohost")
	f("", "jobs", `"auth": {"task_runner": "pencil"}`, "requires authentication")
}

// TestClientOptions: the options of the driver come from mongohost, attributes and the password of the component.
func TestClientOptions(t *testing.T) {
	c, err := config.Parse([]byte(`{
	"mongohost": "db1:27017,db2", "database": "jobs", "attributes": { "ssl": { "SSL_verify_mode": 0, }, "w": 1 },
	"auth": { "disbatchd": "a # b", "task_runner": "c" } }`))
	must(t, err)
	o, err := store.ClientOptions(c.Connection(config.ComponentNode))
	must(t, err)
	if o.Auth == nil || o.Auth.Username != "disbatchd" || o.Auth.AuthSource != "jobs" || o.TLSConfig == nil || !o.TLSConfig.InsecureSkipVerify || len(o.Hosts) != 2 {
		t.Errorf("the driver is told %+v", o)
	}
	if o, err = store.ClientOptions(c.Connection(config.ComponentWeb)); err != nil || o.Auth != nil {
		t.Errorf("a component without a password: %v, %v", o, err)
	}
}

// TestServerSelectionTimeout: the search for a server ends before the driver's default, unless the address has a
// time-out.
func TestServerSelectionTimeout(t *testing.T) {
	for address, want := range map[string]time.Duration{
		"db": store.ConnectTimeout, "mongodb://db/?serverSelectionTimeoutMS=70000": 70 * time.Second,
	} {
		o, err := store.ClientOptions((&config.File{MongoHost: address}).Connection(config.ComponentWeb))
		must(t, err)
		if got := o.ServerSelectionTimeout; got == nil || *got != want {
			t.Errorf("%s: a server is looked for for %v, want %v", address, got, want)
		}
	}
	if err := pings(t, `{"mongohost": "mongodb://127.0.0.1:1/?`+sitetest.Limits+`"}`); err == nil || !strings.Contains(err.Error(), "see mongohost in the configuration") {
		t.Errorf("got %v", err)
	}
}
