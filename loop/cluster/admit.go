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

// hello returns the first frame of this node on a connection.
func (t *transport) hello(kind, to string) hello {
	return hello{
		Version: protocolVersion, Kind: kind, Cluster: t.o.Cluster, Origin: t.identity.origin,
		From: t.o.ID, Incarnation: t.identity.incarnation, To: to,
	}
}

// checkCertificate returns an error if the certificate of a client is not for the host of the node whose id it gives. A
// client checks the certificate of the server itself.
func (t *transport) checkCertificate(c net.Conn, id string) error {
	secure, ok := c.(*tls.Conn)
	if !ok || t.o.Cert == "" {
		return nil
	}
	p, _ := t.node.member(id) // checkHello has found it
	host, _, _ := net.SplitHostPort(p.Address)
	if err := secure.ConnectionState().PeerCertificates[0].VerifyHostname(host); err != nil {
		return fmt.Errorf("the certificate is not that of node %q: %w", id, err)
	}
	return nil
}

// errPeerRemoved refuses a node that was removed from the cluster.
var errPeerRemoved = errors.New("it was removed from the cluster")

// checkHello returns an error if this node does not work with the other end of a connection. A node with a new data
// directory is another node, even with the same id: it has forgotten its votes and acknowledgements. So checkHello
// stores the incarnation of a node that it sees for the first time.
func (t *transport) checkHello(h *hello) error {
	joins := t.identity.origin == "" || h.Kind == kindJoin && h.Origin == ""
	switch {
	case h.Removed && h.Cluster == t.o.Cluster && (joins || h.Origin == t.identity.origin): // of another cluster it says nothing about this node
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
	case !slices.Contains([]string{kindRaft, kindSnapshot, kindForward, kindStatus, kindChange, kindJoin}, h.Kind):
		return fmt.Errorf("node %q asks for %q", h.From, h.Kind)
	case len(h.Incarnation) != identitySize:
		return fmt.Errorf("node %q does not identify its data directory", h.From)
	}
	if t.node != nil {
		if err := t.node.checkMember(h.From); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.incarnations[h.From] {
	case h.Incarnation:
		return nil
	case "":
		next := maps.Clone(t.incarnations)
		next[h.From] = h.Incarnation
		if err := t.storeIncarnations(formatIncarnations(next)); err != nil {
			return err // an incarnation that is not stored would be forgotten with the process
		}
		t.incarnations = next
		t.startWhenAllMet()
		return nil
	}
	return fmt.Errorf("node %q has another data directory than before: a node that has lost its own cannot come back under its id", h.From)
}

// startWhenAllMet lets the node take part once it has met all nodes with which the cluster began. Until then it could
// elect a node that has lost its data directory. The caller holds mu.
func (t *transport) startWhenAllMet() {
	if t.node == nil || !t.node.awaitingPeers.Load() {
		return
	}
	if missing := t.neverMet(); len(missing) > 0 {
		t.o.Log.Info("this node waits until it has met all nodes with which its cluster begins", "node", t.o.ID, "missing", missing)
		return
	}
	t.o.Log.Info("this node has met all others", "node", t.o.ID)
	t.node.awaitingPeers.Store(false)
}

// neverMet returns the ids of the first nodes that this node has never met, if it is a first node itself. The caller
// holds mu.
func (t *transport) neverMet() (ids []string) {
	origin := strings.Fields(t.identity.origin)
	if t.identity.number > uint64(len(origin)) {
		return nil // it has joined
	}
	for i, id := range origin {
		if uint64(i+1) != t.identity.number && t.incarnations[id] == "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// noteHost notes the host of another node, see slotsFor.
func (t *transport) noteHost(a net.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.knownHosts[hostOf(a)] = true
}

// slotsFor returns the semaphore for a connection that has not said who it is. Hosts of known nodes have their own, so
// that others cannot exhaust it.
func (t *transport) slotsFor(a net.Addr) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.knownHosts[hostOf(a)] {
		return t.knownSlots
	}
	return t.unknownSlots
}

func hostOf(a net.Addr) string {
	host, _, _ := net.SplitHostPort(a.String()) // of a TCP address
	return host
}
