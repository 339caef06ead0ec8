package main

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"treadle/loop/dwork/zmq"
)

// TestDworkWorkOverRestart: a hub that is killed while a command runs and comes back finds
// the task complete, and the worker goes on to the next.
func TestDworkWorkOverRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := startHub(t, dir)
	h.says("", 0, "create", "a")
	h.says("", 0, "create", "b", "a")
	gate := filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, false, "dwork", "-s", h.socket, "work", "--", "sh", "-c", `echo began $1 >&2; test $1 = b || read x <`+gate, "sh")
	w.until("began a")
	h.signal(syscall.SIGKILL)
	h.exit(-1)
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	w.until("trying again until it is back")
	h = startHub(t, dir)
	w.until("connected to")
	w.until("began b")
	w.exit(0)
	h.says("dhub: 0 active tasks, 0 ready.\n", 0, "status")
}

// scriptedHub answers requests, told by their types, in order, and closes all connections
// at one that has no answer. It ends with its script and returns the wrong requests.
func scriptedHub(l net.Listener, script [][2]string) (wrong []string) {
	hub := zmq.Listen(l, zmq.Options{})
	for i := 0; i < len(script); {
		<-hub.Ready()
		for _, r := range hub.Take(nil) {
			if i == len(script) || string(r.Payload[:2]) != script[i][0] {
				return append(wrong, string(r.Payload))
			}
			if script[i][1] == "" {
				i++
				hub.Close()
				again, err := net.Listen("tcp", l.Addr().String())
				if err != nil {
					return append(wrong, err.Error())
				}
				hub = zmq.Listen(again, zmq.Options{})
				break
			}
			r.Reply([]byte(script[i][1]))
			i++
		}
	}
	hub.Close()
	return wrong
}

// TestDworkWorkLostReply: what a lost reply to a steal brought is given back, and a lost
// reply to anything else is asked for again.
func TestDworkWorkLostReply(t *testing.T) {
	t.Parallel()
	const (
		steal, complete, exit   = "\x08\x01", "\x08\x02", "\x08\x07"
		task, notFound, ok, end = "\x08\x03\x12\x06\x0a\x01a\x12\x01o", "\x08\x05", "\x08\x06", "\x08\x07"
	)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	wrong := make(chan []string, 1)
	go func() {
		wrong <- scriptedHub(l, [][2]string{
			{steal, ""},       // the hub gives a task, and nobody hears of it
			{steal, notFound}, // no other is there
			{exit, ok}, {steal, task},
			{complete, ""}, {complete, end}, // it is stopping
			{complete, notFound}, // it had heard it the first time
			{steal, end}, {exit, ok},
		})
	}()
	out, errs, code := treadle(t, "", "dwork", "-s", l.Addr().String(), "work", "--", "echo")
	select {
	case got := <-wrong:
		if len(got) > 0 || code != 0 || out != "a\n" {
			t.Errorf("exit code %d, %q, %q; not as in the script: %q", code, out, errs, got)
		}
	case <-time.After(patience):
		t.Fatalf("exit code %d, %q, %q; the script goes on", code, out, errs)
	}
	if !like(errs, "treadle: lost the hub at *trying again*treadle: connected to *treadle: lost the hub*\"a\" is done, but the hub does not have it as this worker's any more\n") {
		t.Errorf("it said %s", errs)
	}
}
