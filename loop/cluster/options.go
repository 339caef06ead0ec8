package cluster

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"treadle/loop/certs"
	"treadle/loop/journal"
)

// Options are the settings of a node.
type Options struct {
	Cluster string // the name that all nodes share
	ID      string // of this node; one of Peers
	// Peers are the nodes with which the cluster begins, this one included, in the same order on each. For a node that
	// joins they are this node and some nodes to ask. A node with a data directory reads the other nodes from there.
	Peers []Peer
	// Listen is the address on which this node listens for the others, if its address among Peers is that of another
	// machine, which forwards connections. Empty: the address among Peers.
	Listen string
	Join   bool // with a new data directory, Start waits until this node is added to the cluster
	// Cert, Key and CA are files of certificates for both ends of each connection. Secret is a file that all nodes
	// share instead. Without any of them, every address must be of this machine.
	Cert, Key, CA, Secret string
	MaxMessage            int // largest message in bytes; default 128 MiB
	// ClockLimit is how far the clock of a node that leads may differ from those of a majority; default 1 minute.
	ClockLimit time.Duration
	// OnWait, when set, is called while the node waits to be added, with the answer of another node.
	OnWait  func(why string)
	Journal journal.Options
	Log     *slog.Logger
}

// Peer is a node of the cluster, with the address on which it listens for the others.
type Peer struct{ ID, Address string }

// ParsePeers reads peers written as id=host:port.
func ParsePeers(text []string) (peers []Peer, err error) {
	for _, one := range text {
		id, address, ok := strings.Cut(one, "=")
		_, port, err := net.SplitHostPort(address)
		if !ok || !plainID(id) || err != nil || port == "" || port == "0" || strings.ContainsFunc(address, unicode.IsSpace) {
			return nil, fmt.Errorf("%q is not ID=HOST:PORT, with an id of at most %d letters, digits, - and _", one, maxID)
		}
		for _, p := range peers {
			if p.ID == id || p.Address == address {
				return nil, fmt.Errorf("%q has the id or the address of %s", one, p.ID)
			}
		}
		peers = append(peers, Peer{id, address})
	}
	return peers, nil
}

// maxID is the greatest length of an id: names of hosts are no longer.
const maxID = 63

// plainID reports whether a text can be an id: ids are in files and logs as they are.
func plainID(id string) bool {
	return id != "" && len(id) <= maxID && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

// Check returns an error if the options cannot work.
func (o *Options) Check() error {
	switch {
	case o.number(o.ID) == 0:
		return fmt.Errorf("no peer has the id %q of this node: %s", o.ID, strings.Join(o.ids(), ", "))
	case len(o.Peers) < 2 && o.Join:
		return errors.New("a node that joins a cluster needs another one to ask: name it beside this one")
	case len(o.Peers) > maxNodes:
		return fmt.Errorf("a cluster has %d nodes at most", maxNodes)
	case (o.Cert == "") != (o.Key == "") || (o.Cert == "") != (o.CA == ""):
		return errors.New("certificate, key and CA belong together")
	case o.Cert != "" && o.Secret != "":
		return errors.New("give certificates or a secret, not both")
	}
	for _, p := range o.Peers {
		if err := o.checkAddress(p.Address); err != nil {
			return err
		}
	}
	return nil
}

// CheckListen returns an error if Listen cannot work.
func (o *Options) CheckListen() error {
	if o.Listen == "" {
		return nil
	}
	if _, port, err := net.SplitHostPort(o.Listen); err != nil || port == "" || port == "0" {
		return fmt.Errorf("%q is not HOST:PORT", o.Listen)
	}
	return o.checkAddress(o.Listen)
}

// checkAddress returns an error if a node may not have an address.
func (o *Options) checkAddress(address string) error {
	host, _, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); o.Cert != "" || o.Secret != "" || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%s is beyond this machine, where anybody could pass for a node: give all nodes certificates or a secret", address)
}

func (o *Options) ids() (all []string) {
	for _, p := range o.Peers {
		all = append(all, p.ID)
	}
	return all
}

// minSecret is the least length of a secret: a stranger who has connected once can test guesses offline.
const minSecret = 32

// tls returns the configurations of both ends, or nil for plain connections.
func (o *Options) tls() (server, client *tls.Config, err error) {
	switch {
	case o.Cert != "":
		return o.certificates()
	case o.Secret != "":
		return o.shared()
	}
	return nil, nil, nil
}

// certificates returns configurations with the certificates of the files. A client also checks the name of the host.
func (o *Options) certificates() (server, client *tls.Config, err error) {
	own, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the certificate: %w", err)
	}
	pool, err := certs.ReadPool(o.CA)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the CA: %w", err)
	}
	all := []tls.Certificate{own}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: all, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool},
		&tls.Config{MinVersion: tls.VersionTLS13, Certificates: all, RootCAs: pool}, nil
}

// shared returns configurations for a shared secret: both ends derive a key from the secret and prove that they have
// it.
func (o *Options) shared() (server, client *tls.Config, err error) {
	info, err := os.Stat(o.Secret)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the secret: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, nil, fmt.Errorf("other users can read the secret: chmod 600 %s", o.Secret)
	}
	text, err := os.ReadFile(o.Secret)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the secret: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if len(secret) < minSecret {
		return nil, nil, fmt.Errorf("the secret in %s has %d characters, and needs %d random ones", o.Secret, len(secret), minSecret)
	}
	seed, err := hkdf.Key(sha256.New, []byte(secret), nil, "treadle cluster "+o.Cluster, ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(100, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, nil, err
	}
	both := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		InsecureSkipVerify: true, // VerifyConnection compares the key instead
		VerifyConnection: func(s tls.ConnectionState) error {
			if theirs, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !theirs.Equal(public) {
				return errors.New("the other node has another secret, or the secret of another cluster")
			}
			return nil
		},
	}
	return both, both, nil
}

// number returns the position of an id among the peers, from 1 on, or 0.
func (o *Options) number(id string) uint64 {
	return uint64(slices.IndexFunc(o.Peers, func(p Peer) bool { return p.ID == id }) + 1)
}
