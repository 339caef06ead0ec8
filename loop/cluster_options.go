package loop

import (
	"errors"
	"time"

	"treadle/loop/cluster"
	"treadle/loop/journal"
	"treadle/loop/protocol"
)

// ClusterOptions are the settings of a node of a cluster. Without Name a server is alone.
type ClusterOptions struct {
	Name   string        `name:"cluster" placeholder:"NAME" help:"Name of the cluster that this server is a node of; all its nodes are one server (default: none)."`
	Node   string        `name:"node" placeholder:"ID" help:"Which of --peers this node is (default: none)."`
	Peers  []string      `name:"peers" placeholder:"ID=HOST:PORT,..." help:"Nodes with which the cluster begins, this one too, the same on each, with the addresses at which they reach each other; with --cluster-join this node and some to ask (default: none)."`
	Listen string        `name:"cluster-listen" placeholder:"HOST:PORT" help:"Where this node listens for the others, if its address in --peers is not its own, as behind a load balancer or in a container (default: that address)."`
	Clock  time.Duration `name:"cluster-clock" default:"1m" min:"1s" placeholder:"TIME" help:"How far the clock of this node may be from those of a majority, if it is to lead: due times are of the leader's clock (default: ${default})."`
	Join   bool          `name:"cluster-join" help:"Join a cluster that runs: with an empty data directory, wait for treadle cluster add (default: false)."`
	Secret string        `name:"cluster-secret" placeholder:"FILE" help:"File with a random text of at least 32 characters that all nodes have, and that no other user can read; nodes of one machine need none (default: none)."`
	Cert   string        `name:"cluster-cert" placeholder:"FILE" help:"Certificate of this node, in place of --cluster-secret, for its host in --peers and for both ends of a connection (default: none)."`
	Key    string        `name:"cluster-key" placeholder:"FILE" help:"Key of --cluster-cert (default: none)."`
	CA     string        `name:"cluster-ca" placeholder:"FILE" help:"Certificate that has signed those of all nodes (default: none)."`
}

// options returns the options of package cluster, without those of the server.
func (o *ClusterOptions) options() (c cluster.Options, err error) {
	peers, err := cluster.ParsePeers(o.Peers)
	return cluster.Options{
		Cluster: o.Name, ID: o.Node, Peers: peers, Listen: o.Listen, Join: o.Join, ClockLimit: o.Clock,
		Cert: o.Cert, Key: o.Key, CA: o.CA, Secret: o.Secret,
	}, err
}

// validateCluster returns an *OptionError for settings with which a node cannot work.
func (o *Options) validateCluster() error {
	c := &o.Cluster
	if c.Name == "" {
		if c.Node != "" || len(c.Peers) > 0 || c.Listen != "" || c.Join || c.Secret != "" || c.Cert != "" || c.Key != "" || c.CA != "" {
			return protocol.BadOption("cluster", "it is empty, and other settings of a cluster are given: name the cluster")
		}
		return nil
	}
	options, err := c.options()
	switch {
	case err != nil:
		return &OptionError{Setting: "peers", Err: err}
	case len(c.Peers) == 0:
		return &OptionError{Setting: "peers", Err: errors.New("name all nodes of the cluster, as in a=10.0.0.1:5200,b=10.0.0.2:5200,c=10.0.0.3:5200")}
	case o.Data == NoData:
		return protocol.BadOption("cluster", "a node of a cluster keeps its jobs in --data, which is %s", NoData)
	case o.Sync != journal.Always.String():
		return protocol.BadOption("sync", "a cluster acknowledges what a majority of its nodes has synced: leave it at %s", journal.Always)
	}
	if err := options.Check(); err != nil {
		return &OptionError{Setting: "peers", Err: err}
	}
	if err := options.CheckListen(); err != nil {
		return &OptionError{Setting: "cluster-listen", Err: err}
	}
	return nil
}
