//go:build invariants

package fuzz

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"treadle/codec/dwork"
	"treadle/codec/dwork/dworkpb"
	"treadle/codec/periodic"
	"treadle/loop"
)

// The peers of a dwork script: two connections of ZeroMQ, and a worker of Periodic and a slave of Gloom that do tasks
// too.
const (
	dworkDealer = iota
	dworkReq
	dworkWorker
	dworkSlave
	dworkPeers
)

var dworkPorts = []string{"dwork", "dwork", "periodic", "gloom-slaves"}

// Of ZMTP: what a client begins with, and the flags of frames.
const (
	zmqMore = 1 << iota
	zmqLong
	zmqCommand
	zmqGreeting = 64
)

func zmqFrame(flags byte, body []byte) []byte {
	if len(body) > 0xff {
		return append(binary.BigEndian.AppendUint64([]byte{flags | zmqLong}, uint64(len(body))), body...)
	}
	return append([]byte{flags, byte(len(body))}, body...)
}

func dworkHellos() [][]byte {
	hello := func(socket string) []byte {
		greeting := make([]byte, zmqGreeting)
		copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL")
		ready := "\x05READY\x0bSocket-Type\x00\x00\x00" + string(rune(len(socket))) + socket + "\x08Identity\x00\x00\x00\x00"
		return append(greeting, zmqFrame(zmqCommand, []byte(ready))...)
	}
	return [][]byte{hello("DEALER"), hello("REQ"), periodicHellos()[plainWorker], nil}
}

// dworkRequest is a payload as a message, behind the envelope of its peer.
func dworkRequest(peer int, payload []byte) (b []byte) {
	if peer == dworkDealer {
		b = zmqFrame(zmqMore, []byte("\x00id"))
	}
	return append(append(b, zmqMore, 0), zmqFrame(0, payload)...)
}

func dworkStep(peer, kind int, bytes ...byte) []byte {
	return byteStep(dworkPeers, peer, kind, bytes)
}

// dworkScript reads a script. Requests of dwork are payloads, those of the others as in theirs.
func dworkScript(in []byte) []step {
	return byteScript(in, dworkPeers, func(peer int, b []byte) []byte {
		switch peer {
		case dworkSlave:
			return gloomFrame(b)
		case dworkWorker:
			return shortRequest(periodic.Plain, b)
		default:
			return dworkRequest(peer, b)
		}
	})
}

// checkHub: what a peer was sent is a greeting, a READY and messages; each of these answers a request with its
// envelope, and all of the requests are answered when nothing else was sent.
func checkHub(t *testing.T, peer int, l connRecord) {
	t.Helper()
	rest := l.sent
	if len(rest) < zmqGreeting {
		if len(rest) > 0 || l.asked > 0 && !l.raw {
			t.Fatalf("the hub begins with %q", l.sent)
		}
		return
	}
	var message [][]byte
	answers := 0
	for rest = rest[zmqGreeting:]; len(rest) > 0; {
		flags, size, head := rest[0], uint64(0), 2
		switch {
		case len(rest) < 2 || flags&zmqLong != 0 && len(rest) < 9:
			t.Fatalf("the hub sends half a frame: %q", rest)
		case flags&zmqLong != 0:
			size, head = binary.BigEndian.Uint64(rest[1:]), 9
		default:
			size = uint64(rest[1])
		}
		if size > uint64(len(rest)-head) {
			t.Fatalf("the hub sends half a frame: %q", rest)
		}
		body := rest[head : head+int(size)]
		if rest = rest[head+int(size):]; flags&zmqCommand != 0 {
			continue
		}
		if message = append(message, body); flags&zmqMore != 0 {
			continue
		}
		var q dwork.Query
		if n := len(message); n < 2 || len(message[n-2]) != 0 || !l.raw && n != 3-peer {
			t.Fatalf("the hub sends the message %q", message)
		}
		if err := dwork.DecodeReply(body, &q); err != nil {
			t.Fatalf("the hub answers %x: %v", body, err)
		}
		answers, message = answers+1, nil
	}
	if message != nil || !l.raw && answers != l.asked {
		t.Fatalf("%d requests have %d answers, and a message begins with %q: %q", l.asked, answers, message, l.sent)
	}
}

// FuzzDworkSession: workers and users of dwork that send ZeroMQ's bytes or payloads, anything of either, come and go,
// and workers of the other protocols that do tasks beside them.
func FuzzDworkSession(f *testing.F) {
	say := func(peer int, text string) []byte {
		var m dworkpb.QueryMsg
		if err := prototext.Unmarshal([]byte(text), &m); err != nil {
			f.Fatal(err)
		}
		b, err := proto.Marshal(&m)
		if err != nil {
			f.Fatal(err)
		}
		return dworkStep(peer, sendsRequest, b...)
	}
	var all []byte
	for i, p := range dworkPayloads(f) {
		if len(p) < 200 {
			all = append(all, dworkStep(i/2%2, sendsRequest, p...)...)
		}
		if i%20 == 19 {
			f.Add(all)
			all = nil
		}
	}
	create := say(dworkReq, `type: Create task { name: "a" origin: "o" } task { name: "b" origin: "o" pred { name: "a" } } task { name: "c" origin: "" }`)
	f.Add(slices.Concat(create, say(dworkDealer, `type: Steal location: "w" n: 2`), say(dworkReq, `type: Transfer location: "w" task { name: "a" origin: "" pred { name: "c" } }`),
		dworkStep(dworkDealer, hangsUp), say(dworkDealer, `type: Exit location: "w"`), say(dworkReq, `type: Lookup name: "b"`), []byte{waits * dworkPeers, 99}))
	f.Add(slices.Concat(create, dworkStep(dworkSlave, sendsRequest, []byte(`{"action":"join","type":"dwork"}`)...), dworkStep(dworkWorker, sendsRequest, append([]byte{1, byte(periodic.CanDo), 5}, "dwork"...)...),
		dworkStep(dworkWorker, sendsRequest, 2, byte(periodic.GrabJob)), dworkStep(dworkSlave, sendsRequest, []byte(`{"action":"respond","body":1}`)...), dworkStep(dworkWorker, hangsUp), say(dworkReq, `type: Steal location: "x"`)))
	hello := dworkHellos()[dworkDealer]
	f.Add(slices.Concat(dworkStep(dworkDealer, sendsRaw, hello[:70]...), dworkStep(dworkDealer, sendsRaw, hello[70:]...), dworkStep(dworkDealer, sendsRaw, []byte("\x04\x0a\x04PING\x00\x01ctx\x01\x00\x00\x02\x08\x00\x00\x01x")...),
		dworkStep(dworkDealer, sendsRaw, []byte("\x01\x01a\x01\x00\x01\x01b\x00\x00")...), dworkStep(dworkReq, sendsRaw, []byte("GET / HTTP/1.1\r\n\r\n")...), create))
	f.Add(slices.Concat(create, dworkStep(dworkReq, sendsRaw, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), dworkStep(dworkReq, sendsRaw, 2, 0, 0, 0, 0, 0, 0, 2, 0, 'x'), create,
		dworkStep(dworkDealer, sendsRaw, 3, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 'x'), create))
	f.Fuzz(func(t *testing.T, in []byte) {
		o := loop.Options{MaxFrame: 1 << 10, Gloom: loop.GloomOptions{MaxFrame: 1 << 10}, HandshakeTimeout: time.Hour, FrameTimeout: time.Hour}
		script := dworkScript(in[:min(len(in), sessionBytes)])
		for peer, records := range samePieceByPiece(t, o, dworkPorts, dworkHellos(), script, 1+len(in)%7, true) {
			for _, l := range records {
				switch {
				case peer < dworkWorker:
					checkHub(t, peer, l)
				case peer == dworkSlave:
					checkSlave(t, l)
				case !areResponses(l.sent, periodic.Plain) && !areResponses(l.sent, periodic.CRC):
					t.Fatalf("the worker was sent %q, which is not made of responses", l.sent)
				}
			}
		}
	})
}
