package client

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"treadle/codec/periodic"
)

// scripted runs a server with one script a connection, in order.
func scripted(t *testing.T, scripts ...func(p *peer)) (address string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, script := range scripts {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			nc.SetDeadline(time.Now().Add(hangTimeout))
			script(&peer{nc, t, periodic.Plain})
			nc.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return path
}

// TestPreferCRC checks that the CRC framing is used with a server that speaks it, and the 2018 framing
// with one that closes the connection.
func TestPreferCRC(t *testing.T) {
	const crcHello, plainHello = "00524551000000013c0c8ea102", "005245510000000102"
	old := scripted(t,
		func(p *peer) { p.want(crcHello) },
		func(p *peer) { p.want(plainHello); p.reply("01020304"); _, _ = io.Copy(io.Discard, p) })
	w, err := DialWorker(within(t), old, Options{PreferCRC: true})
	check(t, err, nil)
	if w.UsesCRC() {
		t.Error("the CRC framing is used with a server of 2018")
	}
	w.Close()

	w, err = DialWorker(within(t), scripted(t, func(p *peer) {
		p.want(crcHello)
		p.framing = periodic.CRC
		p.reply("1e01020304")
		p.wantRequest("00000001160774696d656f7574")
		p.reply("00000001180000003c")
		_, _ = io.Copy(io.Discard, p)
	}), Options{PreferCRC: true})
	check(t, err, nil)
	if !w.UsesCRC() {
		t.Error("the framing of 2018 is used with a present server")
	}
	if seconds, err := w.ConfigGet(within(t), "timeout"); seconds != 60 || err != nil {
		t.Errorf("its time-out is %d, %v", seconds, err)
	}
	w.Close()

	// A server that speaks neither framing causes one error.
	hangUp := func(p *peer) {}
	_, err = DialWorker(within(t), scripted(t, hangUp, hangUp), Options{PreferCRC: true})
	if !errors.As(err, new(*PeerError)) {
		t.Errorf("a server that closes both connections: %v", err)
	}
	if _, err = DialWorker(within(t), t.TempDir()+"/none", Options{PreferCRC: true}); !errors.As(err, new(*DialError)) {
		t.Errorf("no server: %v", err)
	}
}
