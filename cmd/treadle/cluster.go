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
	"treadle/loop/journal"
)

// clusterCmd shows a cluster and changes it, through a node of this machine.
type clusterCmd struct {
	Status   clusterStatusCmd   `cmd:"" help:"Show the nodes of a cluster, which one leads and how far behind the others are."`
	Add      clusterAddCmd      `cmd:"" help:"Add a node, which then joins with treadle serve --cluster-join."`
	Remove   clusterRemoveCmd   `cmd:"" help:"Remove a node for ever, as when its disk is lost."`
	Transfer clusterTransferCmd `cmd:"" help:"Have another node lead, as before work on the machine of the leader."`
	Leave    clusterLeaveCmd    `cmd:"" help:"Make the data directory of a stopped node that of a single server: the way back, and the way on when most nodes are lost for ever."`
}

// Help implements kong.HelpProvider.
func (clusterCmd) Help() string {
	return `A cluster is several servers that are one: treadle help cluster says how to start it.

	treadle cluster status --data /var/lib/treadle
	treadle cluster add d=10.0.0.4:5200 --data /var/lib/treadle
	treadle cluster remove c --data /var/lib/treadle`
}

// clusterNode is the node that a command asks.
type clusterNode struct {
	Data string `name:"data" placeholder:"DIR" default:"./treadle-data" help:"Data directory of a node that runs on this machine (default: ${default})."`
	JSON bool   `name:"json" help:"Print JSON, one object a node."`
}

type clusterStatusCmd struct{ clusterNode }

// Help implements kong.HelpProvider.
func (clusterStatusCmd) Help() string {
	return `Asks a node of this machine, which asks all others. ENTRIES is the last entry of the log on the node's disk, BEHIND how many the leader has more, STORED the last one that is in the node's store. The exit code is 1 when no node leads.

	treadle cluster status --data /var/lib/treadle`
}

// Run prints the status.
func (s *clusterStatusCmd) Run(con *console) error {
	status, err := askCluster(s.Data, cluster.Change{Verb: cluster.AskStatus})
	if err != nil {
		return err
	}
	err = s.print(con, status)
	if err == nil && status.Leader() == nil {
		err = fmt.Errorf("no node of the cluster %q leads: a majority of its %d nodes must run and reach each other", status.Cluster, len(status.Nodes))
	}
	return err
}

// print prints the nodes.
func (c *clusterNode) print(con *console, status cluster.Status) error {
	if c.JSON {
		return writeLines(con.out, status.Nodes)
	}
	return printCluster(con.out, status.Nodes)
}

type clusterAddCmd struct {
	clusterNode
	Peer string `arg:"" name:"ID=HOST:PORT" help:"A new id, and the address at which the other nodes reach it."`
}

// Help implements kong.HelpProvider.
func (clusterAddCmd) Help() string {
	return `The new node gets the log from then on, and counts for a majority as soon as it has the rest. Start it with an empty data directory, the secret or certificates of the cluster, and --cluster-join; its --peers are it and nodes to ask:

	treadle cluster add d=10.0.0.4:5200 --data /var/lib/treadle
	treadle serve --cluster jobs --node d --peers a=10.0.0.1:5200,d=10.0.0.4:5200 --cluster-join --cluster-secret treadle.secret --data /var/lib/treadle`
}

// Run adds the node.
func (a *clusterAddCmd) Run(con *console) error {
	peers, err := cluster.ParsePeers([]string{a.Peer})
	if err != nil {
		return badUsage("%w", err)
	}
	return a.change(con, cluster.Change{Verb: cluster.AddNode, ID: peers[0].ID, Address: peers[0].Address})
}

type clusterRemoveCmd struct {
	clusterNode
	ID string `arg:"" name:"ID" help:"The node."`
}

// Help implements kong.HelpProvider.
func (clusterRemoveCmd) Help() string {
	return `The node need not run. If it does, it ends. Its id is never used again. It is refused when the nodes that are left could no longer decide anything.

	treadle cluster remove c --data /var/lib/treadle`
}

// Run removes the node.
func (r *clusterRemoveCmd) Run(con *console) error {
	return r.change(con, cluster.Change{Verb: cluster.RemoveNode, ID: r.ID})
}

type clusterTransferCmd struct {
	clusterNode
	ID string `arg:"" optional:"" name:"ID" help:"The node that is to lead (default: the one that has the most of the log)."`
}

// Help implements kong.HelpProvider.
func (clusterTransferCmd) Help() string {
	return `Clients connect again, and jobs that run are ready again, as after a restart.

	treadle cluster transfer b --data /var/lib/treadle`
}

// Run asks for another leader.
func (t *clusterTransferCmd) Run(con *console) error {
	return t.change(con, cluster.Change{Verb: cluster.Transfer, ID: t.ID})
}

type clusterLeaveCmd struct {
	Data string `name:"data" placeholder:"DIR" default:"./treadle-data" help:"Data directory of a node that does not run (default: ${default})."`
}

// Help implements kong.HelpProvider.
func (clusterLeaveCmd) Help() string {
	return `The directory keeps every job that the node has on its disk, and can be served by treadle serve without --cluster, or begin a new cluster as its only first node. Nothing of the old cluster may run any more, or jobs are done twice. A node that was behind lacks the last jobs: take the one with the most ENTRIES in treadle cluster status.

	treadle cluster leave --data /var/lib/treadle
	treadle serve --data /var/lib/treadle`
}

// Run makes the directory that of a single server.
func (l *clusterLeaveCmd) Run(con *console) error {
	if err := cluster.Leave(journal.Options{Dir: l.Data}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(con.out, "%s is that of a single server now\n", l.Data)
	return err
}

// change makes a change of the cluster, and prints the nodes.
func (c *clusterNode) change(con *console, change cluster.Change) error {
	status, err := askCluster(c.Data, change)
	if err != nil {
		return err
	}
	return c.print(con, status)
}

// askTimeout bounds the answer of a node, which waits for all others.
const askTimeout = 30 * time.Second

// askCluster asks the node with a data directory to make a change, and returns the state of the cluster.
func askCluster(data string, change cluster.Change) (s cluster.Status, err error) {
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
	var a cluster.Answer
	if err = json.NewEncoder(c).Encode(cluster.Request{Change: change}); err == nil {
		err = json.NewDecoder(c).Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return a.Status, err
}

// printCluster prints the table of the nodes, and their errors below it.
func printCluster(w io.Writer, nodes []cluster.NodeStatus) error {
	leader := (&cluster.Status{Nodes: nodes}).Leader()
	lines := [][]string{{"NODE", "ADDRESS", "ROLE", "TERM", "ENTRIES", "BEHIND", "STORED"}}
	for _, n := range nodes {
		if n.Role == "" {
			lines = append(lines, []string{n.ID, n.Address, "unreachable", "-", "-", "-", "-"})
			continue
		}
		behind := "-"
		if leader != nil {
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
