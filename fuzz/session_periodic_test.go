//go:build invariants

package fuzz

import (
	"encoding/binary"
	"slices"
	"testing"

	"treadle/codec/periodic"
	"treadle/loop"
)

// The peers of a Periodic script: clients and workers in both framings, and two that speak Gloom over the same queues.
const (
	plainClient = iota
	plainWorker
	crcClient
	crcWorker
	gloomMaster
	gloomSlave
	periodicPeers
)

var periodicPorts = []string{"periodic", "periodic", "periodic", "periodic", "gloom-masters", "gloom-slaves"}

func periodicHellos() (hellos [][]byte) {
	for _, h := range []periodic.Hello{
		{Framing: periodic.Plain, Role: periodic.Client}, {Framing: periodic.Plain, Role: periodic.Worker},
		{Framing: periodic.CRC, Role: periodic.Client}, {Framing: periodic.CRC, Role: periodic.Worker},
	} {
		hellos = append(hellos, periodic.AppendHello(nil, &h))
	}
	return append(hellos, nil, nil)
}

func periodicStep(peer, kind int, bytes ...byte) []byte {
	return byteStep(periodicPeers, peer, kind, bytes)
}

// periodicScript reads a script. A request is in its peer's framing: the last byte of the message id, the command, the
// arguments.
func periodicScript(in []byte) (script []step, dumps bool) {
	script = byteScript(in, periodicPeers, func(peer int, b []byte) []byte {
		switch {
		case peer >= gloomMaster:
			return gloomFrame(b)
		case peer >= crcClient:
			return shortRequest(periodic.CRC, b)
		default:
			return shortRequest(periodic.Plain, b)
		}
	})
	for _, s := range script {
		dumps = dumps || slices.Contains(s.bytes, byte(periodic.Dump))
	}
	return script, dumps
}

// shortRequest is the request whose message id, command and arguments these are; nil: not all are there.
func shortRequest(fr periodic.Framing, b []byte) []byte {
	if len(b) < 2 {
		return nil
	}
	return periodicRequest(&periodic.Frame{MsgID: uint32(b[0]), Cmd: periodic.Command(b[1])}, fr, b[2:])
}

// forWorkers are the commands of a captured stream that a worker sent.
var forWorkers = []periodic.Command{
	periodic.GrabJob, periodic.SchedLater, periodic.WorkDone, periodic.WorkFail, periodic.CanDo, periodic.CantDo, periodic.Sleep,
	periodic.Broadcast, periodic.Acquire, periodic.Release, periodic.WorkData, periodic.JobAssigned, periodic.JobUnassigned,
}

// periodicScenes makes scripts of the captured requests, client's and worker's, in the order of their capture.
func periodicScenes(f *testing.F, file string, header, client int) (scripts [][]byte) {
	f.Helper()
	var script []byte
	for i, p := range periodicPackets(f, file, "req") {
		if len(p) < header+5 || len(p) > header+200 {
			continue
		}
		peer := client
		if slices.Contains(forWorkers, periodic.Command(p[header+4])) {
			peer++
		}
		script = append(script, periodicStep(peer, sendsRequest, p[header+3:]...)...)
		if i%20 == 19 {
			scripts, script = append(scripts, script), nil
		}
	}
	return append(scripts, script)
}

// areResponses reports whether all that a connection was sent are frames of a framing, with the right checksums.
func areResponses(sent []byte, fr periodic.Framing) bool {
	for len(sent) > 0 {
		var r periodic.Response
		n, err := periodic.NextResponse(sent, fr, periodic.MaxPayload, &r)
		if err != nil || n == 0 {
			return false
		}
		sent = sent[n:]
	}
	return true
}

// FuzzPeriodicSession: clients and workers in both framings, in every version, and a master and a slave of Gloom, that
// send anything, come and go. A DUMP is taken off the event loop: what it shows depends on how the rest was cut.
func FuzzPeriodicSession(f *testing.F) {
	versions := []string{"2023", "2019", "2020", "2026", "2019-02"}
	for version := range versions {
		for _, s := range periodicScenes(f, "periodic-plain.txt", periodic.Plain.HeaderLen(), plainClient) {
			f.Add(byte(version), s)
		}
		for _, s := range periodicScenes(f, "periodic-crc.txt", periodic.CRC.HeaderLen(), crcClient) {
			f.Add(byte(version), s)
		}
	}
	ask := func(peer int, cmd periodic.Command, args string) []byte {
		return periodicStep(peer, sendsRequest, append([]byte{9, byte(cmd)}, args...)...)
	}
	const job = "\x01f\x01n\x00\x00\x00\x01w\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	first := string(binary.BigEndian.AppendUint64([]byte("\x0e\x10\x00\x00\x00\x00\x00"), 1))
	cross := slices.Concat(ask(plainClient, periodic.RunJob, job), periodicStep(gloomSlave, sendsRequest, []byte(`{"action":"join","type":"f"}`)...),
		periodicStep(gloomSlave, sendsRequest, []byte(`{"action":"respond","body":1}`)...),
		ask(plainWorker, periodic.CanDo, "\x01f"), ask(plainWorker, periodic.GrabJob, ""), ask(crcWorker, periodic.CanDo, "\x01f"), ask(crcWorker, periodic.GrabJob, ""),
		periodicStep(gloomMaster, sendsRequest, []byte(`{"action":"submit","id":"n","type":"f","body":1}`)...), ask(plainClient, periodic.SubmitJob, job),
		ask(crcWorker, periodic.WorkDone, "\x01f\x01nx"), ask(plainWorker, periodic.WorkFail, first), periodicStep(gloomMaster, hangsUp), periodicStep(crcWorker, hangsUp))
	f.Add(byte(0), cross)
	f.Add(byte(3), append(cross, slices.Concat(ask(crcWorker, periodic.Acquire, "\x01l\x00\x01\x01f\x01n"), ask(crcClient, periodic.RecvData, job),
		ask(crcWorker, periodic.WorkData, "\x01f\x01npart"), []byte{waits * periodicPeers, 200}, ask(crcWorker, periodic.Release, "\x01l\x01f\x01n"))...))
	f.Add(byte(0), slices.Concat(periodicStep(plainClient, sendsRaw, periodicHellos()[crcClient]...), periodicStep(plainClient, sendsRaw, []byte("\x00REQ\x00\x00\x00\x05")...),
		ask(crcClient, periodic.Ping, ""), periodicStep(crcClient, sendsRaw, []byte("\x00REQ\x00\x00\x00\x05\x00\x00\x00\x01\x09")...)))
	f.Fuzz(func(t *testing.T, version byte, in []byte) {
		script, dumps := periodicScript(in[:min(len(in), sessionBytes)])
		o := loop.Options{Periodic: loop.PeriodicOptions{CRC: versions[int(version)%len(versions)]}, Gloom: loop.GloomOptions{MaxFrame: 1 << 10}, MaxFrame: 1 << 10}
		for peer, all := range samePieceByPiece(t, o, periodicPorts, periodicHellos(), script, 1+len(in)%7, !dumps) {
			for _, l := range all {
				switch {
				case peer == gloomMaster:
					checkMaster(t, l)
				case peer == gloomSlave:
					checkSlave(t, l)
				case !areResponses(l.sent, periodic.Plain) && !areResponses(l.sent, periodic.CRC):
					t.Fatalf("peer %d was sent %q, which is not made of responses", peer, l.sent)
				}
			}
		}
	})
}
