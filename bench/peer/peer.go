// Package peer has the servers of the comparison, a file for each protocol: the bytes that the load generator exchanges
// with the server, and the choices made to be fair to it.
package peer

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"treadle/bench/load"
)

// Contender is one server in the comparison.
type Contender struct {
	Name     string
	Version  string
	Path     string        // path of the program
	Protocol load.Protocol // nil: its rows bring their own
	Missing  string        // the programs that the machine lacks; the peer cannot be started
	// Start runs a fresh server; nil: none to run.
	Start func(ctx context.Context) (*Server, error)
}

// All lists Treadle with its variants, every peer, and the limits. All servers run one thread for connections and jobs.
// Those with a place keep their jobs on that disk, the others in memory alone.
func All(treadle string) []Contender {
	beanstalkd := program{name: "beanstalkd", versionFlag: "-v", protocol: newBeanstalkd(), arguments: "-l 127.0.0.1 -p {port0}"}
	gearmand := program{name: "gearmand", versionFlag: "--version", protocol: newGearman(), arguments: "-t 0 -L 127.0.0.1 -p {port0} -l {directory}/log"}
	redis := program{name: "redis-server", versionFlag: "--version", protocol: NewRedis(load.WorkloadLen),
		arguments: `--bind 127.0.0.1 --port {port0} --dir {directory} --save ""`}
	faktory, faktoryAlways := faktoryProgram(redisInMemory), faktoryProgram(redisSynced)
	disk := DiskPlace()
	inMemory := []Contender{
		beanstalkd.peer("beanstalkd", "", ""), gearmand.peer("gearmand", "", ""), redis.peer("redis", "", "--appendonly no"), faktory.peer("faktory", "", ""),
	}
	onDisk := []Contender{
		redis.peer("redis always", disk, "--appendonly yes --appendfsync always"),
		redis.peer("redis everysec", disk, "--appendonly yes --appendfsync everysec"),
		beanstalkd.peer("beanstalkd -f0", disk, "-b {directory} -f0"), beanstalkd.peer("beanstalkd -f50", disk, "-b {directory} -f50"),
		faktoryAlways.peer("faktory always", disk, ""), replicated(disk),
	}
	return slices.Concat(treadles(treadle), inMemory, treadlesOnDisk(treadle, disk), []Contender{cluster(treadle, disk)}, onDisk, limits())
}

// program is a server that a machine may have installed.
type program struct {
	name, versionFlag string
	needs             string // another program that it starts; empty: none
	protocol          load.Protocol
	arguments         string
	prepare           func(ctx context.Context, s *Server) error // as in Command
}

// peer returns the program with more arguments and a place for its directory. Without the program, or the one that it
// needs, the peer is missing.
func (p program) peer(name, place, more string) Contender {
	path := findProgram(p.name)
	for _, needed := range []string{p.name, p.needs} {
		if needed != "" && findProgram(needed) == "" {
			return Contender{Name: name, Protocol: p.protocol, Missing: needed}
		}
	}
	c := Command{Path: path, place: place, Arguments: strings.Fields(p.arguments + " " + more), prepare: p.prepare}
	return Contender{Name: name, Protocol: p.protocol, Path: path, Version: version(path, p.versionFlag), Start: c.Start}
}

// maxMessage is far above the size of any message of a run.
const maxMessage = 4 << 20

// systemDirectories are searched, the first being PATH: Debian keeps gearmand in another, outside an ordinary user's
// PATH.
var systemDirectories = []string{"", "/usr/sbin", "/usr/local/sbin", "/sbin"}

// findProgram returns the path of a program, or "" when the machine has none.
func findProgram(program string) string {
	for _, directory := range systemDirectories {
		if path, err := exec.LookPath(filepath.Join(directory, program)); err == nil {
			path, _ = filepath.Abs(path) // it fails only without a working directory
			return path
		}
	}
	return ""
}

// version asks a program for its version: the second word of its output, or the rest of a word that begins with "v=".
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

// frameLength returns the length of the message at the front of in: a header that begins with magic and ends with the
// size of the rest, apart from more bytes behind it. A length of 0 without an error: more bytes are needed. A size
// above most is malformed: it must fail, and not wait for ever.
func frameLength(protocol string, in []byte, magic string, header, sizeAt, most int) (end int, err error) {
	if len(in) < header {
		return 0, nil
	}
	size := int(binary.BigEndian.Uint32(in[sizeAt:]))
	if string(in[:len(magic)]) != magic || size > most {
		return 0, load.Unexpected(protocol, in)
	}
	if end = header + size; len(in) < end {
		return 0, nil
	}
	return end, nil
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
