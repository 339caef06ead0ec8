package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
)

// The notes of a node's data directory. NODE says which node it is, PEERS which data directories the others have.
const (
	identityNote = "NODE"
	peersNote    = "PEERS"
)

// identitySize is the length of the text that identifies a data directory.
const identitySize = 32

const identityForm = "treadle node 1\ncluster %s\nnode %s\nmembers %s\nincarnation %s\n"

// Start opens the data directory of a node and its port, and takes part in the cluster.
func Start(o Options) (n *Node, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 128 << 20
	}
	s, fresh, err := openStorage(o.Journal, o.voters())
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.replica.Close())
		}
	}()
	identity, err := identify(&o, s, fresh)
	if err != nil {
		return nil, err
	}
	peers, err := s.replica.Note(peersNote)
	if err != nil {
		return nil, err
	}
	if n, err = newNode(o, s); err != nil {
		return nil, err
	}
	if n.port, err = listen(&n.o, n, identity, parseKnown(peers)); err != nil {
		return nil, err
	}
	n.start(n.port)
	n.port.serve()
	return n, nil
}

// identify returns the text that identifies the data directory. A new directory gets one.
func identify(o *Options, s *storage, fresh bool) (string, error) {
	if fresh {
		var b [identitySize / 2]byte
		_, _ = rand.Read(b[:]) // it never fails
		identity := hex.EncodeToString(b[:])
		return identity, s.replica.SetNote(identityNote, fmt.Sprintf(identityForm, o.Cluster, o.ID, o.members(), identity))
	}
	note, err := s.replica.Note(identityNote)
	if err != nil {
		return "", err
	}
	lines := strings.Split(note, "\n")
	if len(lines) != 6 || len(lines[4]) != len("incarnation ")+identitySize {
		return "", fmt.Errorf("the file NODE in %s cannot be read", o.Journal.Dir)
	}
	identity := lines[4][len("incarnation "):]
	if note != fmt.Sprintf(identityForm, o.Cluster, o.ID, o.members(), identity) {
		return "", fmt.Errorf("the data directory %s is of node %q in the cluster %q with the nodes %q, not of node %q in %q with %q", o.Journal.Dir,
			strings.TrimPrefix(lines[2], "node "), strings.TrimPrefix(lines[1], "cluster "), strings.TrimPrefix(lines[3], "members "), o.ID, o.Cluster, o.members())
	}
	return identity, nil
}

// parseKnown and formatKnown convert the note PEERS: a line of id and incarnation for each node.
func parseKnown(note string) map[string]string {
	known := make(map[string]string)
	for line := range strings.Lines(note) {
		if id, incarnation, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			known[id] = incarnation
		}
	}
	return known
}

func formatKnown(known map[string]string) string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(known)) {
		fmt.Fprintf(&b, "%s %s\n", id, known[id])
	}
	return b.String()
}
