//go:build invariants

package fuzz

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"treadle/loop"
)

// A session target plays a script of what several peers send to one server in memory. After each step the structures
// of the scheduler must agree, and when all have left nothing of them may stay. Then the script is played again with
// everything that is sent cut in pieces: each peer must be sent the same bytes.

// Longer scripts find nothing more: the invariants are checked after each step, in proportion to all there is, and the
// fuzzer is kept busy making inputs shorter.
const (
	sessionSteps = 32
	sessionBytes = 1 << 10
)

// step is one thing that a peer does.
type step struct {
	peer  int
	do    func(s *sessions, peer int)
	bytes []byte // that a script of bytes has for it
}

// The kinds of steps of a script of bytes. One takes a byte for its peer and kind, a byte for how many follow, and
// these.
const (
	sendsRaw     = iota // any bytes
	sendsRequest        // a well-formed request, which the bytes stand for
	hangsUp
	waits // as many tenths of a second as bytes are announced
	stepKinds
)

func byteStep(peers, peer, kind int, bytes []byte) []byte {
	return append([]byte{byte(kind*peers + peer), byte(len(bytes))}, bytes...)
}

// byteScript reads a script of bytes. requested makes the request that bytes stand for; nil: they stand for none.
func byteScript(in []byte, peers int, requested func(peer int, b []byte) []byte) (script []step) {
	for len(in) >= 2 {
		peer, kind, size := int(in[0])%peers, int(in[0])/peers%stepKinds, int(in[1])
		b := in[2:min(2+size, len(in))]
		if in = in[2:]; kind == waits {
			script = append(script, step{peer: peer, do: wait(time.Duration(size) * time.Second / 10)})
			continue
		}
		in = in[len(b):]
		s := step{peer: peer, bytes: b}
		switch kind {
		case hangsUp:
			s.do = hangUp
		case sendsRaw:
			s.do = raw(b)
		default:
			frame := requested(peer, b)
			if frame == nil {
				continue
			}
			s.do = request(frame)
		}
		script = append(script, s)
	}
	return script
}

// sessions is one play of a script.
type sessions struct {
	t        *testing.T
	server   *loop.Offline
	ports    []string // by peer
	hellos   [][]byte // by peer, what its connections begin with unless the script says otherwise
	services map[string]*memListener
	peers    []sessionPeer
	piece    int            // bytes sent at a time, 0: all
	records  [][]connRecord // by peer, its connections
}

// sessionPeer is a connection to the server.
type sessionPeer interface {
	Send([]byte) // may change the bytes
	Read() []byte
	Closed() bool
	Close()
}

// connRecord is one connection: what it was sent, and whether the server ended it; how many well-formed requests it
// sent, and whether it sent other bytes too.
type connRecord struct {
	sent   []byte
	closed bool
	asked  int
	raw    bool
}

// byChance is what the libraries below the server send otherwise each time: the order of the properties in ZMTP's
// READY, and HTTP's date.
var byChance = regexp.MustCompile(`(?s)\x05READY.{35}|Date: [^\r]*\r`)

func (l connRecord) String() string {
	return fmt.Sprintf("%q, closed: %v", byChance.ReplaceAll(l.sent, nil), l.closed)
}

// connected returns a peer's connection, a new one after the end of the one before. greet makes it say its hello.
func (s *sessions) connected(peer int, greet bool) sessionPeer {
	if p := s.peers[peer]; p != nil {
		if !p.Closed() {
			return p
		}
		p.Close()
	}
	if d := s.services[s.ports[peer]]; d != nil {
		s.peers[peer] = d.connect()
	} else {
		s.peers[peer] = s.server.Connect(s.ports[peer])
	}
	s.records[peer] = append(s.records[peer], connRecord{})
	if greet {
		s.peers[peer].Send(bytes.Clone(s.hellos[peer]))
	}
	return s.peers[peer]
}

// send sends what a connection takes of b.
func (s *sessions) send(p sessionPeer, b []byte) {
	size := len(b)
	if s.piece > 0 {
		size = s.piece
	}
	for piece := range slices.Chunk(b, max(size, 1)) {
		p.Send(bytes.Clone(piece))
	}
}

// record is that of a peer's last connection.
func (s *sessions) record(peer int) *connRecord { return &s.records[peer][len(s.records[peer])-1] }

// raw is a step that sends bytes, which may be anything.
func raw(b []byte) func(*sessions, int) {
	return func(s *sessions, peer int) {
		p := s.connected(peer, false)
		s.record(peer).raw = true
		s.send(p, b)
	}
}

// request is a step that sends a well-formed frame behind a hello.
func request(b []byte) func(*sessions, int) {
	return func(s *sessions, peer int) {
		p := s.connected(peer, true)
		s.record(peer).asked++
		s.send(p, b)
	}
}

// hangUp is a step that ends the connection.
func hangUp(s *sessions, peer int) { s.connected(peer, false).Close() }

// wait is a step in which time passes.
func wait(d time.Duration) func(*sessions, int) {
	return func(s *sessions, _ int) { s.server.Advance(d) }
}

// play plays a script and returns the connections of each peer. Where a port is one of servicePorts, there are
// goroutines of the server's: they are in a bubble, which tells when they have nothing to do, and that none is left.
func play(t *testing.T, o loop.Options, ports []string, hellos [][]byte, script []step, piece int) (records [][]connRecord) {
	t.Helper()
	if !slices.ContainsFunc(ports, isServicePort) {
		return playAll(t, o, ports, hellos, script, piece)
	}
	synctest.Test(t, func(t *testing.T) { records = playAll(t, o, ports, hellos, script, piece) })
	return records
}

func playAll(t *testing.T, o loop.Options, ports []string, hellos [][]byte, script []step, piece int) [][]connRecord {
	t.Helper()
	// One shard: a STATUS lists the queues shard by shard.
	o.Shards = 1
	o.Loops = 1
	// The numbers of runs, which are in handles, begin at the same one.
	server, err := loop.NewOfflineIn(o, loop.Environment{FirstRun: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := &sessions{t: t, server: server, ports: ports, hellos: hellos, piece: piece,
		services: openServices(t, server, ports), peers: make([]sessionPeer, len(ports)), records: make([][]connRecord, len(ports))}
	for i, step := range script[:min(len(script), sessionSteps)] {
		step.do(s, step.peer)
		server.Settle()
		for j, p := range s.peers {
			if p != nil {
				now := s.record(j)
				now.sent, now.closed = append(now.sent, p.Read()...), p.Closed()
			}
		}
		if err := server.Check(); err != nil {
			t.Fatalf("after step %d: %v", i, err)
		}
	}
	for _, p := range s.peers {
		if p != nil {
			p.Close()
		}
	}
	if err := server.Check(); err != nil {
		t.Fatalf("when all have left: %v", err)
	}
	return s.records
}

// samePieceByPiece plays a script whole and with all that is sent in pieces, and returns the connections of the whole
// one. Unless compare is set it may differ.
func samePieceByPiece(t *testing.T, o loop.Options, ports []string, hellos [][]byte, script []step, piece int, compare bool) [][]connRecord {
	t.Helper()
	want := play(t, o, ports, hellos, script, 0)
	got := play(t, o, ports, hellos, script, piece)
	for i := range want {
		if compare && fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
			t.Fatalf("peer %d, %d bytes at a time, was sent\n%v, all at once\n%v", i, piece, got[i], want[i])
		}
	}
	return want
}
