// Package certs keeps the certificates of TLS ports, and reads them again when their files change. It is of crypto/tls
// alone: what is served behind TLS, its callers know.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Files are the PEM files of a port.
type Files struct {
	Cert string // the port's certificate, followed by those between it and the root
	Key  string // of Cert
	CA   string // certificates that have signed those of clients; empty: clients need none
}

// FilesOf returns the files that an address names, as tls://host:port?cert=FILE&key=FILE&ca=FILE. Other addresses have
// none.
func FilesOf(address string) (files Files, err error) {
	address, query, found := strings.Cut(address, "?")
	if !found || !strings.HasPrefix(address, "tls://") {
		return files, nil
	}
	of := map[string]*string{"cert": &files.Cert, "key": &files.Key, "ca": &files.CA}
	values, err := url.ParseQuery(query)
	if err != nil {
		return files, fmt.Errorf("%q behind %s: %w", query, address, err)
	}
	for name := range values {
		if of[name] == nil {
			return files, fmt.Errorf("?%s= behind %s is none of cert, key and ca", name, address)
		}
		*of[name] = values.Get(name)
	}
	if (files.Cert == "") != (files.Key == "") {
		return files, fmt.Errorf("a certificate and its key go together, as in %s?cert=FILE&key=FILE", address)
	}
	return files, nil
}

// lookEvery is how often a handshake looks whether a file has changed.
const lookEvery = time.Second

// Store has the certificates of Files. Its methods may be called concurrently.
type Store struct {
	files Files
	least uint16
	log   *slog.Logger

	current  atomic.Pointer[state]
	failures atomic.Uint64

	mu     sync.Mutex
	looked time.Time
	seen   [3]os.FileInfo // of the files, when they were last read, also in vain; nil: the file was not there
}

// state is what one reading of the files gives.
type state struct {
	config *tls.Config
	expiry time.Time // the earliest of the certificate's and of its chain
}

// Open reads the files. least is the earliest version of TLS, as tls.VersionTLS12. The error names the file.
func Open(files Files, least uint16, log *slog.Logger) (*Store, error) {
	s := &Store{files: files, least: least, log: log, looked: time.Now()}
	s.seen = s.look()
	read, err := s.read()
	if err != nil {
		return nil, err
	}
	s.current.Store(read)
	return s, nil
}

// Config returns the configuration of a port. Each handshake has the certificates that the files have had at most a
// second before.
func (s *Store) Config() *tls.Config {
	return &tls.Config{
		MinVersion: s.least, SessionTicketsDisabled: s.files.CA != "", // a ticket would outlive a change of CA
		// Neither GetCertificate nor Certificates: the certificates of clients must be read again, too.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config(), nil },
	}
}

// config returns the present configuration.
func (s *Store) config() *tls.Config {
	s.mu.Lock()
	due := time.Since(s.looked) >= lookEvery
	s.mu.Unlock()
	if due {
		_ = s.Reload() // it is logged and counted; the old pair goes on
	}
	return s.current.Load().config
}

// Reload reads the files if they have changed. After an error, which it logs once for each change, what was read before
// stays in use.
func (s *Store) Reload() error {
	use, err := s.Prepare()
	if err == nil {
		use()
	}
	return err
}

// Prepare is Reload in two steps: what is read comes to use with use.
func (s *Store) Prepare() (use func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = time.Now()
	seen := s.look()
	if same(seen, s.seen) {
		return func() {}, nil
	}
	read, err := s.read()
	if err != nil {
		s.seen = seen
		s.failures.Add(1)
		s.log.Warn("a changed TLS certificate cannot be used: the old one stays", "error", err)
		return nil, err
	}
	return func() {
		s.mu.Lock()
		s.seen = seen
		s.mu.Unlock()
		s.current.Store(read)
		s.log.Info("the TLS certificate is read again", "file", s.files.Cert, "expires", read.expiry)
	}, nil
}

// Expiry returns when the present certificate, or one between it and the root, expires. As a handshake, it looks
// whether a file has changed.
func (s *Store) Expiry() time.Time {
	s.config()
	return s.current.Load().expiry
}

// Failures returns how often files that had changed could not be used.
func (s *Store) Failures() uint64 { return s.failures.Load() }

// ChecksClients reports whether clients need a certificate.
func (s *Store) ChecksClients() bool { return s.files.CA != "" }

// look returns what tells the files from later ones of their names.
func (s *Store) look() (seen [3]os.FileInfo) {
	for i, name := range []string{s.files.Cert, s.files.Key, s.files.CA} {
		seen[i], _ = os.Stat(name) // a file that is missing is as good as a bad one
	}
	return seen
}

// same reports whether two looks have seen the same files.
func same(a, b [3]os.FileInfo) bool {
	for i, x := range a {
		switch y := b[i]; {
		case x == nil || y == nil:
			if x != y {
				return false
			}
		case x.Size() != y.Size() || !x.ModTime().Equal(y.ModTime()) || !os.SameFile(x, y):
			return false
		}
	}
	return true
}

// read reads the files.
func (s *Store) read() (*state, error) {
	pair, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", s.files.Cert, s.files.Key, err)
	}
	read := &state{config: &tls.Config{MinVersion: s.least, Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: s.files.CA != ""}}
	for _, der := range pair.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.files.Cert, err)
		}
		if read.expiry.IsZero() || c.NotAfter.Before(read.expiry) {
			read.expiry = c.NotAfter
		}
	}
	if s.files.CA == "" {
		return read, nil
	}
	if read.config.ClientCAs, err = ReadPool(s.files.CA); err != nil {
		return nil, err
	}
	read.config.ClientAuth = tls.RequireAndVerifyClientCert
	return read, nil
}

// Client returns the configuration of a client that connects to a host. It trusts the authorities of the file CA, or
// those of the system if there is none, and has the certificate of Cert if there is one.
func (f Files) Client(host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	var err error
	if f.CA != "" {
		if c.RootCAs, err = ReadPool(f.CA); err != nil {
			return nil, err
		}
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("%s with %s: %w", f.Cert, f.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// ReadPool reads the certificates of a PEM file. The error names the file.
func ReadPool(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: %w", file, errors.New("it has no certificate in PEM form"))
	}
	return pool, nil
}
