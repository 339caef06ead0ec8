// Package peer has the servers that are compared, one file for each: how the server is started, which bytes the load
// generator speaks with it, and what was chosen to be fair to it.
package peer

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"treadle/bench/load"
)

// Peer is one server in the comparison.
type Peer struct {
	Name     string
	Version  string
	Path     string        // of the program
	Protocol load.Protocol // nil: its rows bring their own
	Ours     bool          // a Treadle; the others are its peers
	Limit    bool          // no job server but a limit that Treadle is compared with
	Missing  string        // the program that the machine does not have; such a peer cannot be started
	// Start runs a fresh server; nil: there is none to run.
	Start func(ctx context.Context) (*Server, error)
}

// All lists Treadle with its variants and limits, unless its path is empty, and every peer. All of them run one thread
// for connections and jobs; those behind the limits keep their jobs on disk, the others in memory alone.
func All(treadle string) []Peer {
	disk := Command{place: DiskPlace()}
	return slices.Concat(
		treadles(treadle),
		[]Peer{beanstalkdPeer("beanstalkd", Command{}), gearmandPeer(), redisPeer("redis", Command{}, "")},
		limits(treadle),
		treadlesOnDisk(treadle, disk),
		[]Peer{
			redisPeer("redis always", disk, "always"), redisPeer("redis everysec", disk, "everysec"),
			beanstalkdPeer("beanstalkd -f0", disk, "-f0"), beanstalkdPeer("beanstalkd -f50", disk, "-f50"),
		},
		diskLimit(treadle))
}

// installed is a peer whose program is started by the command, or one that is missing.
func installed(name, program, versionFlag string, speaks load.Protocol, c Command) Peer {
	p := Peer{Name: name, Protocol: speaks, Path: find(program)}
	if p.Path == "" {
		p.Missing = program
		return p
	}
	c.Path = p.Path
	p.Version, p.Start = version(p.Path, versionFlag), c.Start
	return p
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

// version asks a program for its version: the second word of what it prints, or what stands behind "v=".
func version(path, flag string) string {
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

// askLines sends a request and gives the lines of the reply to read, until it returns false or an error.
func askLines(conn net.Conn, request string, read func(line string) (more bool, err error)) error {
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if more, err := read(lines.Text()); !more || err != nil {
			return err
		}
	}
	return cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}
