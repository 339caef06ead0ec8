package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"treadle/codec/kts46"
)

// TestKts46Errors checks that the error of a failed call names the cause, without Python's
// exception class and without the details of the HTTP request.
func TestKts46Errors(t *testing.T) {
	f := func(want string, answer http.HandlerFunc) {
		t.Helper()
		s := httptest.NewServer(answer)
		defer s.Close()
		address := s.Listener.Addr().String()
		k := NewKts46(address)
		defer k.Close()
		err := k.CreateProject(context.Background(), "p")
		if want = strings.ReplaceAll(want, "ADDRESS", "tcp://"+address); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	fault := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(kts46.AppendFault(nil, &kts46.Fault{Code: 1, Text: text}))
		}
	}
	f("it is full.", fault("<class 'kts46.server.scheduler.SchedulerException'>:it is full."))
	f("Couldn't get it.", fault(`<type 'exceptions.KeyError'>:"Couldn't get it."`))
	f(`no "class"`, fault(`no "class"`))
	f("<b>:", fault("<b>:"))
	f("cannot talk to ADDRESS: it is no XML-RPC of the scheduler, it answered 404 Not Found: 404 page not found (is it another protocol's? By default port 46210 is that of kts46's XML-RPC; -H or TREADLE_KTS46 names the server)", http.NotFound)
	f("cannot talk to ADDRESS: the server closed the connection (is it another protocol's? By default port 46210 is that of kts46's XML-RPC; -H or TREADLE_KTS46 names the server)", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	f("the scheduler at ADDRESS answered 503 Service Unavailable: wait", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "wait", http.StatusServiceUnavailable) })
}

// TestKts46Interrupted checks the error of a cancelled call.
func TestKts46Interrupted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Read(make([]byte, 1))
			cancel()
			defer c.Close()
			<-t.Context().Done()
		}
	}()
	k := NewKts46(l.Addr().String())
	want := fmt.Sprintf("cannot talk to tcp://%s: interrupted", l.Addr())
	if err := k.CreateProject(ctx, "p"); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
