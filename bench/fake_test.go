package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"treadle/bench/load"
	"treadle/bench/peer"
)

// The ways in which the fake server can be told to misbehave.
const (
	flawless   = "flawless"
	duplicates = "duplicates" // assigns the tenth job twice
	loses      = "loses"      // acknowledges the tenth job and drops it
	forgets    = "forgets"    // takes no notice of completions
	crashes    = "crashes"    // ends at the tenth job
	refuses    = "refuses"    // ends before it listens
	withholds  = "withholds"  // does not acknowledge the tenth completion; in the CRC framing
)

// TestMain runs a server when the test program is started as a child of itself.
func TestMain(m *testing.M) {
	serve := map[string]func() error{
		"fake-server":  func() error { return serveFake(os.Args[2], os.Args[3], os.Args[4]) },
		"-echo-frames": func() error { return load.ServeFrameEcho(context.Background(), os.Args[2]) },
		"serve-api":    func() error { return serveAPI(os.Args[2], os.Args[3]) },
	}[os.Args[min(1, len(os.Args)-1)]]
	if serve != nil {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// fakePeer is a Periodic server with one flaw, run as a child process.
func fakePeer(t *testing.T, name, flaw, socket string) peer.Contender {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return peer.Contender{Name: name, Version: "1.0", Protocol: peer.NewPeriodic(peer.PeriodicOptions{}),
		Start: peer.Command{Path: program, Socket: socket, Arguments: []string{"fake-server", flaw, "{port0}", "{directory}"}}.Start}
}

// The parts of the Periodic protocol that the fake server reads and writes, apart from those of bench/peer which it
// tests.
const (
	periodicHeaderLen, periodicCRCHeaderLen, periodicCRCAt = 8, 12, 8

	periodicGrabJob   = 1
	periodicWorkDone  = 3
	periodicJobAssign = 5
	periodicCanDo     = 7
	periodicPing      = 9
	periodicPong      = 10
	periodicSubmitJob = 13
	periodicStatus    = 14
	periodicSuccess   = 16
	periodicData      = 30
)

// fake is as little of a Periodic server as the load generator needs: one function, no names, one lock.
type fake struct {
	flaw string

	mu      sync.Mutex
	count   int        // jobs submitted
	queue   [][]byte   // Job records
	running int        // jobs assigned and not completed
	done    int        // completions
	slots   []fakeSlot // grabs that wait
}

// fakeConn is a connection in one of the two framings.
type fakeConn struct {
	net.Conn
	crc bool
}

type fakeSlot struct {
	conn  fakeConn
	msgID []byte
}

// serveFake listens on a port and on a unix socket until it is killed.
func serveFake(flaw, port, directory string) error {
	if flaw == refuses {
		return errors.New("this server does not want to")
	}
	f := &fake{flaw: flaw}
	local, err := net.Listen("unix", filepath.Join(directory, "fake.sock"))
	if err != nil {
		return err
	}
	remote, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	go f.accept(local)
	f.accept(remote)
	return nil
}

func (f *fake) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			f.converse(conn)
			f.leave(conn)
		}()
	}
}

// converse answers one connection until it ends.
func (f *fake) converse(plain net.Conn) {
	r := bufio.NewReader(plain)
	first, err := r.Peek(periodicHeaderLen + 1)
	if err != nil {
		return
	}
	conn := fakeConn{Conn: plain, crc: first[periodicHeaderLen] > 2}
	if _, err := conn.readFrame(r); err != nil {
		return
	}
	id := []byte{0, 0, 0, 1}
	if conn.crc {
		id = append([]byte{periodicData}, id...)
	}
	conn.send(id)
	for {
		payload, err := conn.readFrame(r)
		if err != nil || len(payload) < 5 {
			return
		}
		f.handle(conn, payload[:4], payload[4], payload[5:])
	}
}

func (f *fake) handle(conn fakeConn, msgID []byte, command byte, args []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch command {
	case periodicPing:
		conn.reply(msgID, []byte{periodicPong})
	case periodicCanDo:
		if conn.crc {
			conn.reply(msgID, []byte{periodicSuccess})
		}
	case periodicStatus:
		jobs := len(f.queue) + f.running
		if conn.crc {
			conn.reply(msgID, fmt.Appendf(nil, "\x1eother,0,3,0,0,1\n%s,1,%d,%d,0,1", load.QueueName, jobs, f.running))
		} else {
			conn.reply(msgID, fmt.Appendf(nil, "other,0,3,0,1\n%s,1,%d,%d,1", load.QueueName, jobs, f.running))
		}
	case periodicWorkDone:
		f.done++
		if conn.crc && (f.done != 10 || f.flaw != withholds) {
			conn.reply(msgID, []byte{periodicSuccess})
		}
		if f.flaw != forgets {
			f.running--
		}
		if f.done == f.count && f.count >= 10_000 { // a measurement waits until its memory is given back
			debug.FreeOSMemory()
		}
	case periodicGrabJob:
		f.slots = append(f.slots, fakeSlot{conn, msgID})
	case periodicSubmitJob:
		f.count++
		conn.reply(msgID, []byte{periodicSuccess})
		f.submit(args)
	}
	for len(f.queue) > 0 && len(f.slots) > 0 {
		handle := []byte("\x02id")
		if f.slots[0].conn.crc {
			handle = nil
		}
		f.slots[0].conn.reply(f.slots[0].msgID, slices.Concat([]byte{periodicJobAssign}, handle, f.queue[0]))
		f.queue, f.slots = f.queue[1:], f.slots[1:]
		f.running++
	}
}

func (f *fake) submit(record []byte) {
	tenth := f.count == 10
	switch {
	case tenth && f.flaw == crashes:
		fmt.Fprintln(os.Stderr, "the tenth job was too much")
		os.Exit(3)
	case tenth && f.flaw == loses:
		return
	case tenth && f.flaw == duplicates:
		f.queue = append(f.queue, record)
	}
	f.queue = append(f.queue, record)
}

// leave forgets the grabs of a connection that ended.
func (f *fake) leave(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slots = slices.DeleteFunc(f.slots, func(s fakeSlot) bool { return s.conn.Conn == conn })
}

func (c fakeConn) reply(msgID, body []byte) { c.send(slices.Concat(msgID, body)) }

func (c fakeConn) send(payload []byte) {
	frame := binary.BigEndian.AppendUint32([]byte("\x00RES"), uint32(len(payload)))
	if c.crc {
		frame = binary.BigEndian.AppendUint32(frame, crc32.ChecksumIEEE(payload))
	}
	_, _ = c.Write(append(frame, payload...))
}

// readFrame returns the payload of the next request.
func (c fakeConn) readFrame(r *bufio.Reader) ([]byte, error) {
	header := make([]byte, periodicHeaderLen)
	if c.crc {
		header = make([]byte, periodicCRCHeaderLen)
	}
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	payload := make([]byte, binary.BigEndian.Uint32(header[4:]))
	_, err := io.ReadFull(r, payload)
	if err == nil && c.crc && binary.BigEndian.Uint32(header[periodicCRCAt:]) != crc32.ChecksumIEEE(payload) {
		return nil, load.ErrMalformed
	}
	return payload, err
}
