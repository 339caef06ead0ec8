package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"treadle/loop"
	"treadle/loop/cluster"
)

// clusterCmd looks at a cluster, through a node of this machine.
type clusterCmd struct {
	Status clusterStatusCmd `cmd:"" help:"Show the nodes of a cluster, which one leads and how far behind the others are."`
}

// Help is printed by treadle cluster --help.
func (clusterCmd) Help() string {
	return `A cluster is several servers that are one: treadle help cluster says how to start it.

	treadle cluster status --data /var/lib/treadle`
}

type clusterStatusCmd struct {
	Data string `name:"data" placeholder:"DIR" default:"./treadle-data" help:"Data directory of a node that runs on this machine (default: ${default})."`
	JSON bool   `name:"json" help:"Print JSON, one object a node."`
}

// Help is printed by treadle cluster status --help.
func (clusterStatusCmd) Help() string {
	return `Asks a node of this machine, which asks all others. ENTRIES is the last entry of the log on the node's disk, BEHIND how many the leader has more, STORED the last one that is in the node's store. The exit code is 1 when no node leads.

	treadle cluster status --data /var/lib/treadle`
}

// Run prints the status.
func (s *clusterStatusCmd) Run(con *console) error {
	status, err := askCluster(s.Data)
	if err != nil {
		return err
	}
	if s.JSON {
		err = writeLines(con.out, status.Nodes)
	} else {
		err = printCluster(con.out, status.Nodes)
	}
	if _, ok := leaderOf(status); err == nil && !ok {
		err = fmt.Errorf("no node of the cluster %q leads: a majority of its %d nodes must run and reach each other", status.Cluster, len(status.Nodes))
	}
	return err
}

// askTimeout bounds the answer of a node, which waits for all others.
const askTimeout = 20 * time.Second

// askCluster asks the node with a data directory.
func askCluster(data string) (s cluster.Status, err error) {
	path, err := filepath.Abs(filepath.Join(data, loop.ClusterSocket))
	if err != nil {
		return s, err
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		err = fmt.Errorf("no node of a cluster runs with the data directory %s: %w", data, errors.Unwrap(errors.Unwrap(err)))
		return s, coded{err, exitUnreachable, "unreachable"}
	}
	defer func() { _ = c.Close() }() // it was only read
	_ = c.SetDeadline(time.Now().Add(askTimeout))
	err = json.NewDecoder(c).Decode(&s)
	return s, err
}

// leaderOf returns the node that leads.
func leaderOf(s cluster.Status) (leader cluster.NodeStatus, ok bool) {
	for _, n := range s.Nodes {
		if n.Role == "leader" && (!ok || n.Term > leader.Term) {
			leader, ok = n, true
		}
	}
	return leader, ok
}

// printCluster prints the table of the nodes, and below it what is wrong with them.
func printCluster(w io.Writer, nodes []cluster.NodeStatus) error {
	leader, _ := leaderOf(cluster.Status{Nodes: nodes})
	lines := [][]string{{"NODE", "ADDRESS", "ROLE", "TERM", "ENTRIES", "BEHIND", "STORED"}}
	for _, n := range nodes {
		if n.Role == "" {
			lines = append(lines, []string{n.ID, n.Address, "unreachable", "-", "-", "-", "-"})
			continue
		}
		behind := "-"
		if leader.ID != "" {
			behind = number(int64(max(n.Last, leader.Last) - n.Last))
		}
		lines = append(lines, []string{n.ID, n.Address, n.Role, number(int64(n.Term)), number(int64(n.Last)), behind, number(int64(n.Applied))})
	}
	if err := align(w, lines, 3); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Error != "" {
			if _, err := fmt.Fprintf(w, "%s: %s\n", n.ID, oneLine(n.Error)); err != nil {
				return err
			}
		}
	}
	return nil
}
