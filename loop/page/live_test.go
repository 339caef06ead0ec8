package page

import (
	"bufio"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

// pipeListener accepts the other ends of pipes, which have no buffer.
type pipeListener struct {
	connect chan net.Conn
	closed  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connect:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	close(l.closed)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// TestStreamNeverRead: a client that does not read its stream is given up after streamTime, and its place is free
// again. One that reads is served until streamLife.
func TestStreamNeverRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		docs := fstest.MapFS{"docs/a.md": {Data: []byte("# A: text\n\ntext\n")}}
		s := New(Options{Docs: docs, Topics: []string{"a"}}, http.NotFoundHandler(), func(*http.Request) error { return nil }, func() int { return 10 })
		l := &pipeListener{make(chan net.Conn), make(chan struct{})}
		server := http.Server{Handler: http.HandlerFunc(s.live)}
		go func() { _ = server.Serve(l) }()
		defer server.Close()
		open := func() net.Conn {
			here, there := net.Pipe()
			l.connect <- there
			if _, err := here.Write([]byte("GET /live?at=/docs HTTP/1.1\r\nHost: here\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			return here
		}
		count := func() int {
			synctest.Wait()
			s.streams.mu.Lock()
			defer s.streams.mu.Unlock()
			return s.streams.open
		}
		began, events := time.Now(), new(atomic.Int64)
		stalled, reader := open(), open()
		go func() {
			for lines := bufio.NewScanner(reader); lines.Scan(); {
				if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && events.Add(1) == 1 && !strings.HasPrefix(text, `[["health",`) {
					t.Errorf("the stream begins with %s", text)
				}
			}
			if lasted := time.Since(began); lasted < streamLife || lasted > streamLife+time.Minute {
				t.Errorf("the stream that is read ends after %v", lasted)
			}
			reader.Close()
		}()
		if n := count(); n != 2 {
			t.Fatalf("%d streams are open", n)
		}
		time.Sleep(streamTime + time.Millisecond)
		if n := count(); n != 1 || events.Load() == 0 {
			t.Errorf("%d streams are open, %d events came", n, events.Load())
		}
		if _, err := stalled.Write([]byte("x")); err == nil {
			t.Error("the stalled connection is open")
		}
		time.Sleep(streamLife)
		if n := count(); n != 0 {
			t.Errorf("%d streams are open after their time", n)
		}
	})
}

// TestStreamBeginsWithThePage: a stream begins with all cells, as the browser may have loaded the page before what has
// changed since, and goes on with those that change.
func TestStreamBeginsWithThePage(t *testing.T) {
	cells := cellsOf([]byte(`<main><div data-live="b"><i>1</i><b data-live="c">2</b></div><p data-live="a">3</p></main>`))
	want := [][2]string{{"a", "3"}, {"b", `<i>1</i><b data-live="c">2</b>`}, {"c", "2"}}
	if got := everyCell(cells); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
