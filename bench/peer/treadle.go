package peer

import (
	"context"
	"os/exec"
	"strings"

	"treadle/bench/load"
)

// Always is the Treadle that syncs its jobs before it acknowledges them.
const Always = "treadle always"

// serve makes a Treadle listen on its ports, in every protocol that it speaks.
const serve = "serve --periodic tcp://127.0.0.1:{port0} --gloom-masters tcp://127.0.0.1:{port1} --gloom-slaves tcp://127.0.0.1:{port2} " +
	"--dwork tcp://127.0.0.1:{port3} --kts46 tcp://127.0.0.1:{port4} --kts46-json tcp://127.0.0.1:{port5} --http 127.0.0.1:{port6} "

// variant returns a Treadle that serves with more arguments.
func variant(name, path, place, more string) (Peer, Command) {
	c := Command{Path: path, treadle: true, place: place, Arguments: strings.Fields(serve + more)}
	return Peer{Name: name, Path: path, Ours: true, Protocol: NewPeriodic(PeriodicOptions{}), Start: c.Start}, c
}

// treadles keep their jobs in memory: over TCP, over a unix socket, with two event loops, and in the CRC framing.
func treadles(path string) (list []Peer) {
	if path == "" {
		return nil
	}
	const memory = " --periodic unix://{directory}/periodic.sock --data none "
	pprof := "" // the setting that serves the profile that makes a Treadle collect; older programs serve it anyway
	if help, _ := exec.Command(path, "serve", "--help").CombinedOutput(); strings.Contains(string(help), "--pprof") {
		pprof = "--pprof on"
	}
	for _, name := range []string{"treadle", "treadle unix", "treadle 2 loops", "treadle crc"} {
		p, c := variant(name, path, "", pprof+memory)
		switch name {
		case "treadle unix":
			c.Socket = "periodic.sock"
		case "treadle 2 loops":
			c.Arguments = append(c.Arguments, "--loops", "2")
		case "treadle crc":
			p.Protocol = NewPeriodic(PeriodicOptions{CRC: true})
		}
		p.Version, p.Start = version(path, "--version"), c.Start
		list = append(list, p)
	}
	return list
}

// treadlesOnDisk keep a journal.
func treadlesOnDisk(path, place string) (list []Peer) {
	if path == "" {
		return nil
	}
	for _, mode := range []string{"always", "interval", "never"} {
		p, _ := variant("treadle "+mode, path, place, "--data {directory}/data --sync "+mode)
		list = append(list, p)
	}
	return list
}

// StartNode starts a Disbatch node of the program with a configuration file. A node whose tasks are done by workers of
// other protocols needs a server around it.
func StartNode(ctx context.Context, path, config string, workers bool) (*Server, error) {
	arguments := "disbatch node --http 127.0.0.1:{port0} --node " + load.QueueName + " --config"
	if workers {
		arguments = serve + "--data none --disbatch-node " + load.QueueName + " --disbatch"
	}
	return Command{Path: path, Arguments: append(strings.Fields(arguments), config)}.Start(ctx)
}
