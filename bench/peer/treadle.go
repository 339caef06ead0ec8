package peer

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	"treadle/bench/load"
)

// Always is the Treadle that syncs its jobs before it acknowledges them.
const Always = "treadle always"

// serveArguments make a Treadle listen on its ports, in every protocol that it speaks.
func serveArguments(ports Ports, more ...string) []string {
	return append([]string{
		"serve", "--periodic", "tcp://127.0.0.1:" + ports[0],
		"--gloom-masters", "tcp://127.0.0.1:" + ports[1], "--gloom-slaves", "tcp://127.0.0.1:" + ports[2], "--dwork", "tcp://127.0.0.1:" + ports[3],
		"--kts46", "tcp://127.0.0.1:" + ports[4], "--kts46-json", "tcp://127.0.0.1:" + ports[5], "--http", "127.0.0.1:" + ports[6],
	}, more...)
}

// profiles is the setting by which a Treadle serves the profile that makes it collect; one that does so anyway has none.
func profiles(treadle string) []string {
	if help, _ := exec.Command(treadle, "serve", "--help").CombinedOutput(); strings.Contains(string(help), "--pprof") {
		return []string{"--pprof", "on"}
	}
	return nil
}

// treadles are those that keep their jobs in memory: over TCP, over a unix socket, with two event loops, and in the CRC
// framing.
func treadles(path string) []Peer {
	if path == "" {
		return nil
	}
	const socket = "periodic.sock"
	base := Peer{Version: version(path, "--version"), Path: path, Ours: true, Protocol: NewPeriodic(PeriodicOptions{})}
	pprof := profiles(path)
	with := func(name, local string, more ...string) Peer {
		p := base
		p.Name = name
		p.Start = Command{Path: path, treadle: true, Socket: local, Arguments: func(ports Ports, directory string) []string {
			arguments := append(pprof[:len(pprof):len(pprof)], "--periodic", "unix://"+filepath.Join(directory, socket), "--data", "none")
			return serveArguments(ports, append(arguments, more...)...)
		}}.Start
		return p
	}
	crc := with("treadle crc", "")
	crc.Protocol = NewPeriodic(PeriodicOptions{CRC: true})
	return []Peer{with("treadle", ""), with("treadle unix", socket), with("treadle 2 loops", "", "--loops", "2"), crc}
}

// treadlesOnDisk keep a journal.
func treadlesOnDisk(path string, c Command) (list []Peer) {
	if path == "" {
		return nil
	}
	c.Path, c.treadle = path, true
	for _, mode := range []string{"always", "interval", "never"} {
		c.Arguments = func(ports Ports, directory string) []string {
			return serveArguments(ports, "--data", filepath.Join(directory, "data"), "--sync", mode)
		}
		list = append(list, Peer{Name: "treadle " + mode, Path: path, Ours: true, Protocol: NewPeriodic(PeriodicOptions{}), Start: c.Start})
	}
	return list
}

// diskLimit is nothing that could be started.
func diskLimit(treadle string) []Peer {
	if treadle == "" {
		return nil
	}
	return []Peer{{Name: RawDisk, Limit: true}}
}

// StartNode starts a Disbatch node of the program with a configuration file. A node whose tasks are done by workers of
// other protocols needs a server around it.
func StartNode(ctx context.Context, path, config string, workers bool) (*Server, error) {
	return Command{Path: path, Arguments: func(ports Ports, _ string) []string {
		if workers {
			return serveArguments(ports, "--data", "none", "--disbatch", config, "--disbatch-node", load.QueueName)
		}
		return []string{"disbatch", "node", "--config", config, "--node", load.QueueName, "--http", "127.0.0.1:" + ports[0]}
	}}.Start(ctx)
}
