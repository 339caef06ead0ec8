package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"treadle/loop/zmq"
)

// TestBesiege attacks an echo in every way: the attackers begin, end when they are told to, and count themselves.
func TestBesiege(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := zmq.Listen(ln, zmq.Options{})
	defer l.Close()
	go func() {
		for {
			select {
			case <-t.Context().Done():
				return
			case <-l.Ready():
				for _, r := range l.Take(nil) {
					r.Reply(r.Payload)
				}
			}
		}
	}()
	for i, r := range attackRows() {
		if r.victim != "dwork" || r.attack.do == nil || testing.Short() && i > 4 {
			continue
		}
		lifeline, end := io.Pipe()
		said, out := io.Pipe()
		failed := make(chan error, 1)
		go func() { failed <- besiege(t.Context(), r.name, ln.Addr().String(), lifeline, out) }()
		lines := bufio.NewReader(said)
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintln(attackers) {
			t.Fatalf("%s: said %q, %v", r.name, line, err)
		}
		end.Close()
		made := 0
		if _, err := fmt.Fscanln(lines, &made); err != nil || made < attackers {
			t.Errorf("%s: made %d connections, %v", r.name, made, err)
		}
		if err := <-failed; err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
	if err := besiege(t.Context(), "dwork, no attack", "", strings.NewReader(""), io.Discard); err == nil {
		t.Error("a row without attackers has some")
	}
}

// TestAttackVerdict: the target is for the longest wait of each row that has attackers, and no other row's.
func TestAttackVerdict(t *testing.T) {
	under := func(name string, longest float64) sample {
		return sample{Section: attackSection, Row: name, JobsPerSecond: 1, Submit: quantiles{P999: 1, Max: longest}}
	}
	f := func(want string, samples ...sample) {
		t.Helper()
		r := &report{Medians: samples}
		if got := r.attackVerdict(); !strings.HasSuffix(got, want+"\n") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(": met by 2 of 2 rows", under("a", 10), under("b", 99_999), sample{Row: "drain", Submit: quantiles{Max: 1e6}})
	f(": met by 1 of 3 rows; not by b (153 ms), c (100 ms)", under("a", 10), under("b", 153_000), under("c", 100_000))
}
