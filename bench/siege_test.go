package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"treadle/codec/kts46"
	"treadle/loop/dwork/zmq"
)

// TestBesiege attacks an echo, and one of calls, in every way: the attackers begin, end when they are told to, and count themselves.
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
	calls := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // however long it is
		_, _ = w.Write(kts46.AppendAnswer(nil, nil))
	}))
	defer calls.Close()
	doors := map[string]string{"dwork": ln.Addr().String(), "kts46": calls.Listener.Addr().String(), "kts46-json": calls.Listener.Addr().String()}
	for i, r := range attackRows() {
		if doors[r.victim] == "" || r.attack.do == nil || r.attack.count == idlers || testing.Short() && i%8 != 4 {
			continue
		}
		count, err := r.attack.connections()
		if err != nil {
			t.Fatal(err)
		}
		lifeline, end := io.Pipe()
		said, out := io.Pipe()
		failed := make(chan error, 1)
		go func() { failed <- besiege(t.Context(), r.name, doors[r.victim], lifeline, out) }()
		lines := bufio.NewReader(said)
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintln(count) {
			t.Fatalf("%s: said %q, %v", r.name, line, err)
		}
		end.Close()
		made := 0
		if _, err := fmt.Fscanln(lines, &made); err != nil || made < count {
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
