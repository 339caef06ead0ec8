package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
)

// contender is one server in the comparison.
type contender struct {
	name     string
	version  string
	path     string // of the program, of Treadle alone: a Disbatch node is started otherwise than a server
	protocol protocol
	ours     bool   // a Treadle; the others are its peers
	variant  string // takes part in the rows that ask for this variant alone; "": in all
	base     string // the contender to compare a Treadle with, in place of the peers
	gloom    bool   // has Gloom addresses too, and takes part in the rows that need them
	start    func(ctx context.Context) (*server, error)
}

// systemDirectories are searched after PATH: Debian keeps gearmand there, outside an ordinary user's PATH.
var systemDirectories = []string{"/usr/sbin", "/usr/local/sbin", "/sbin"}

// find returns the path of a program, or "" when the machine has none.
func find(program string) string {
	if path, err := exec.LookPath(program); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			return path
		}
	}
	for _, directory := range systemDirectories {
		if path, err := exec.LookPath(filepath.Join(directory, program)); err == nil {
			return path
		}
	}
	return ""
}

// The variants of Treadle.
const (
	twoLoops = "2 loops" // has two event loops
	overUnix = "unix"    // talks over its unix socket
	inCRC    = "crc"     // talks in the CRC framing of Periodic, over TCP
)

// serveArguments make a Treadle listen on its ports, in every protocol that it speaks.
func serveArguments(ports [portCount]string, more ...string) []string {
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

// contenders lists Treadle with its variants, unless its path is empty, and every peer that the machine has. All of them
// run one thread for connections and jobs, and all but the durable ones, which come last, keep their jobs in memory alone.
func contenders(treadle string) []contender {
	const socket = "periodic.sock"
	serve := command{path: treadle, gloom: true, arguments: func(ports [portCount]string, directory string) []string {
		return serveArguments(ports, append(profiles(treadle), "--periodic", "unix://"+filepath.Join(directory, socket), "--data", "none")...)
	}}
	local := serve
	local.socket = socket
	double := serve
	double.arguments = func(ports [portCount]string, directory string) []string {
		return append(serve.arguments(ports, directory), "--loops", "2")
	}
	var list []contender
	if treadle != "" {
		version := ask(treadle, "--version")
		list = append(list,
			contender{name: "treadle", version: version, path: treadle, protocol: newPeriodic(), ours: true, gloom: true, start: serve.start},
			contender{name: "treadle unix", version: version, protocol: newPeriodic(), ours: true, variant: overUnix, start: local.start},
			contender{name: "treadle 2 loops", version: version, protocol: newPeriodic(), ours: true, variant: twoLoops, start: double.start},
			contender{name: "treadle crc", version: version, protocol: newPeriodicCRC(), ours: true, variant: inCRC, base: "treadle", start: serve.start},
		)
	}
	for _, peer := range []struct {
		name      string
		program   string
		version   string // the flag that prints it
		protocol  protocol
		arguments func(ports [portCount]string, directory string) []string
	}{
		{"beanstalkd", "beanstalkd", "-v", newBeanstalkd(), func(ports [portCount]string, _ string) []string {
			return []string{"-l", "127.0.0.1", "-p", ports[0]}
		}},
		{"gearmand", "gearmand", "--version", newGearman(), func(ports [portCount]string, directory string) []string {
			return []string{"-t", "0", "-L", "127.0.0.1", "-p", ports[0], "-l", filepath.Join(directory, "log")}
		}},
		{"redis", "redis-server", "--version", newRedis(), func(ports [portCount]string, directory string) []string {
			return []string{
				"--bind", "127.0.0.1", "--port", ports[0], "--dir", directory, "--save", "", "--appendonly", "no",
			}
		}},
	} {
		path := find(peer.program)
		if path == "" {
			continue
		}
		list = append(list, contender{
			name: peer.name, version: ask(path, peer.version), protocol: peer.protocol,
			start: command{path: path, arguments: peer.arguments}.start,
		})
	}
	if c, err := echoContender(); err == nil && treadle != "" { // no path to this program: no limit to compare with
		list = append(list, c)
	}
	if c, err := frameEchoContender(); err == nil && treadle != "" {
		list = append(list, c)
	}
	return append(list, durables(treadle)...)
}

// ask runs a program for its version: the second word of what it prints, or what stands behind "v=".
func ask(path, flag string) string {
	said, _ := exec.Command(path, flag).CombinedOutput()
	words := strings.Fields(string(said))
	for _, word := range words {
		if number, ok := strings.CutPrefix(word, "v="); ok {
			return number
		}
	}
	if len(words) < 2 {
		return "unknown"
	}
	return words[1]
}
