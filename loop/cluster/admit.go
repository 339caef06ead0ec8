package cluster

import (
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
)

// hello returns this node's first frame.
func (t *transport) hello(kind, to string) hello {
	return hello{
		Version: protocolVersion, Kind: kind, Cluster: t.o.Cluster, Origin: t.identity.origin,
		From: t.o.ID, Incarnation: t.identity.incarnation, To: to,
	}
}

// certified returns an error if the certificate of a client is not that of the host of the node that it says it is. A
// client checks the server's itself.
func (t *transport) certified(c net.Conn, id string) error {
	secure, ok := c.(*tls.Conn)
	if !ok || t.o.Cert == "" {
		return nil
	}
	p, _ := t.node.member(id) // it was admitted
	host, _, _ := net.SplitHostPort(p.Address)
	if err := secure.ConnectionState().PeerCertificates[0].VerifyHostname(host); err != nil {
		return fmt.Errorf("the certificate is not that of node %q: %w", id, err)
	}
	return nil
}

// errGone is why a node is refused that was removed from the cluster.
var errGone = errors.New("it was removed from the cluster")

// admit returns why the other end of a connection is no node that this one works with. A node whose data directory is
// new is another node, even with the same id: it has forgotten what it has voted and acknowledged.
func (t *transport) admit(h *hello) error {
	joins := t.identity.origin == "" || h.Kind == kindJoin && h.Origin == ""
	switch {
	case h.Removed && h.Cluster == t.o.Cluster && (joins || h.Origin == t.identity.origin): // not another cluster's word
		return fmt.Errorf("%w: node %q says so", errRemoved, h.From)
	case h.Error != "":
		return errors.New(h.Error)
	case h.Version != protocolVersion:
		return fmt.Errorf("node %q speaks version %d between nodes, node %q version %d", h.From, h.Version, t.o.ID, protocolVersion)
	case h.Cluster != t.o.Cluster:
		return fmt.Errorf("node %q is of the cluster %q, node %q of %q", h.From, h.Cluster, t.o.ID, t.o.Cluster)
	case h.Origin != t.identity.origin && !joins:
		return fmt.Errorf("node %q began in a cluster of %q, node %q in one of %q: give the first nodes the same --peers, and later ones --cluster-join", h.From, h.Origin, t.o.ID, t.identity.origin)
	case h.To != t.o.ID:
		return fmt.Errorf("node %q looks for node %q at the address of node %q", h.From, h.To, t.o.ID)
	case h.From == t.o.ID:
		return fmt.Errorf("no other node is called %q", h.From)
	case !slices.Contains([]string{kindRaft, kindSnapshot, kindPass, kindStatus, kindChange, kindJoin}, h.Kind):
		return fmt.Errorf("node %q asks for %q", h.From, h.Kind)
	case len(h.Incarnation) != identitySize:
		return fmt.Errorf("node %q does not identify its data directory", h.From)
	}
	if t.node != nil {
		if err := t.node.knows(h.From); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.known[h.From] {
	case h.Incarnation:
		return nil
	case "":
		known := maps.Clone(t.known)
		known[h.From] = h.Incarnation
		if err := t.keep(formatKnown(known)); err != nil {
			return err // what only the memory has would be forgotten with the process
		}
		t.known = known
		t.met()
		return nil
	}
	return fmt.Errorf("node %q has another data directory than before: a node that has lost its own cannot come back under its id", h.From)
}

// met lets the node take part when it has met all nodes with which the cluster began. Before that it could take one
// that has lost its data directory for a new one, and elect it. mu is held.
func (t *transport) met() {
	if t.node == nil || !t.node.waits.Load() {
		return
	}
	if missing := t.missing(); len(missing) > 0 {
		t.o.Log.Info("this node waits until it has met all nodes with which its cluster begins", "node", t.o.ID, "missing", missing)
		return
	}
	t.o.Log.Info("this node has met all others", "node", t.o.ID)
	t.node.waits.Store(false)
}

// missing returns the ids of the first nodes that this one has never met, if it is one of them.
func (t *transport) missing() (ids []string) {
	origin := strings.Fields(t.identity.origin)
	if t.identity.number > uint64(len(origin)) {
		return nil // it has joined
	}
	for i, id := range origin {
		if uint64(i+1) != t.identity.number && t.known[id] == "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// learn notes an address of another node, see place.
func (t *transport) learn(a net.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.homes[hostOf(a)] = true
}

// place returns the places of those that connect from an address, before they say who they are: others cannot take
// those of the nodes.
func (t *transport) place(a net.Addr) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.homes[hostOf(a)] {
		return t.neighbours
	}
	return t.strangers
}

func hostOf(a net.Addr) string {
	host, _, _ := net.SplitHostPort(a.String()) // of a TCP address
	return host
}
