package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// The notes of a node's data directory. NODE has the identity of the node, PEERS the incarnations of the others.
const (
	identityNote = "NODE"
	peersNote    = "PEERS"
)

// identity is the content of NODE besides the names of the cluster and the node.
type identity struct {
	number      uint64 // in Raft; 0: the node was not added yet
	origin      string // ids of the nodes with which the cluster began; empty while number is 0
	incarnation string // of this directory alone
}

// identitySize is the length of an incarnation.
const identitySize = 32

const identityForm = "treadle node 3\ncluster %s\nnode %s\nnumber %d\norigin %s\nincarnation %s\n"

// format returns the text of NODE.
func (i *identity) format(o *Options) string {
	return fmt.Sprintf(identityForm, o.Cluster, o.ID, i.number, i.origin, i.incarnation)
}

// setDefaults replaces zero values by defaults.
func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 128 << 20
	}
	if o.ClockLimit == 0 {
		o.ClockLimit = time.Minute
	}
}

// Start opens the data directory of a node and its port, and takes part in the cluster. A node that joins waits until
// it is added or ctx ends.
func Start(ctx context.Context, o Options) (n *Node, err error) {
	if err := errors.Join(o.Check(), o.CheckListen()); err != nil {
		return nil, err
	}
	o.setDefaults()
	var begin *members
	if !o.Join {
		begin = firstMembers(o.Peers)
	}
	o.Journal.Adopt = !o.Join && len(o.Peers) == 1 // the jobs of one node among several would be in no entry
	s, fresh, err := openStorage(o.Journal, begin)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.replica.Close())
		}
	}()
	if fresh && begin != nil && len(o.Peers) == 2 {
		return nil, errors.New("of two nodes none can be lost: begin a cluster with three, or with one, to which others are added")
	}
	id, err := identify(&o, s, fresh)
	if err != nil {
		return nil, err
	}
	peers, err := s.replica.Note(peersNote)
	if err != nil {
		return nil, err
	}
	t, err := listen(&o, id, parseIncarnations(peers))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	t.storeIncarnations = func(text string) error { return s.replica.SetNote(peersNote, text) }
	known := &members{}
	if s.replica.Applied().Index == 0 {
		if known, err = t.join(ctx); err == nil {
			err = s.replica.SetNote(identityNote, t.identity.format(&o))
		}
		if err != nil {
			return nil, err
		}
	}
	if n, err = newNode(o, s, t.identity.number, known); err != nil {
		return nil, err
	}
	n.transport, t.node = t, n
	t.mu.Lock()
	if len(t.neverMet()) > 0 {
		n.awaitingPeers.Store(true)
		t.startWhenAllMet()
	}
	t.mu.Unlock()
	n.start(t)
	t.serve()
	n.goroutines.Go(n.watchOthers)
	return n, nil
}

// identify returns the identity of the data directory. A new directory gets one.
func identify(o *Options, s *storage, fresh bool) (id identity, err error) {
	if fresh {
		var b [identitySize / 2]byte
		_, _ = rand.Read(b[:]) // it never fails
		id.incarnation = hex.EncodeToString(b[:])
		if !o.Join {
			id.number, id.origin = o.number(o.ID), strings.Join(o.ids(), " ")
		}
		return id, s.replica.SetNote(identityNote, id.format(o))
	}
	note, err := s.replica.Note(identityNote)
	if err != nil {
		return id, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(note) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		fields[name] = value
	}
	id = identity{origin: fields["origin"], incarnation: fields["incarnation"]}
	if _, err := fmt.Sscan(fields["number"], &id.number); err != nil || len(id.incarnation) != identitySize || fields["treadle"] != "node 3" {
		return id, fmt.Errorf("the file NODE in %s cannot be read: it is damaged, or of another version of treadle", o.Journal.Dir)
	}
	if note != id.format(o) {
		return id, fmt.Errorf("the data directory %s is of node %q in the cluster %q, not of node %q in %q",
			o.Journal.Dir, fields["node"], fields["cluster"], o.ID, o.Cluster)
	}
	return id, nil
}

// joinPause is the time after which a node that is not added yet asks again.
const joinPause = 500 * time.Millisecond

// join asks the other nodes for the members and for the number of this node, until it is added.
func (t *transport) join(ctx context.Context) (*members, error) {
	for last := ""; ; {
		for _, p := range t.o.Peers {
			if p.ID == t.o.ID {
				continue
			}
			m, err := t.askJoin(ctx, p)
			if err == nil || errors.Is(err, errRemoved) {
				return m, err
			}
			if text := err.Error(); text != last {
				t.o.Log.Info("this node waits to be added to the cluster", "node", t.o.ID, "asked", p.ID, "answer", text)
				if last = text; t.o.OnWait != nil {
					t.o.OnWait(text)
				}
			}
		}
		select {
		case <-time.After(joinPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// askJoin asks a node for the members. It sets the identity of this node if that was added.
func (t *transport) askJoin(ctx context.Context, p Peer) (*members, error) {
	answer, err := t.askNode(ctx, p, t.hello(kindJoin, p.ID))
	if err != nil {
		return nil, err
	}
	m := &members{Nodes: answer.Nodes}
	own, ok := m.withID(t.o.ID)
	if !ok || answer.Origin == "" {
		return nil, fmt.Errorf("node %q does not say who the nodes are", p.ID)
	}
	t.identity.number, t.identity.origin = own.Number, answer.Origin
	return m, nil
}

// parseIncarnations and formatIncarnations convert the note PEERS: a line with id and incarnation for each node.
func parseIncarnations(note string) map[string]string {
	incarnations := make(map[string]string)
	for line := range strings.Lines(note) {
		if id, incarnation, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			incarnations[id] = incarnation
		}
	}
	return incarnations
}

func formatIncarnations(incarnations map[string]string) string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(incarnations)) {
		fmt.Fprintf(&b, "%s %s\n", id, incarnations[id])
	}
	return b.String()
}
