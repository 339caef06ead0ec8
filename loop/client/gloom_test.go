package client

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"

	"treadle/codec/gloom"
	"treadle/codec/periodic"
)

// json returns a Gloom frame around a JSON text, built without the codec.
func json(text string) string {
	return hex.EncodeToString(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
}

func master(t *testing.T, script func(p *peer)) *Master {
	t.Helper()
	m, err := DialMaster(within(t), listen(t, periodic.Plain, script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func slave(t *testing.T, script func(p *peer)) *Slave {
	t.Helper()
	s, err := DialSlave(within(t), listen(t, periodic.Plain, script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const (
	submitted = `{"ok":true,"id":"a"}`
	unknown   = `{"error":"unknown_action","reason":"ping"}`
)

var jobA = &GloomJob{ID: GloomText("a"), Type: GloomText("t"), Body: []byte("[1]")}

// TestMaster checks the bytes of a submit and the meaning of its replies.
func TestMaster(t *testing.T) {
	f := func(what string, wait bool, answers []string, body, says string) {
		t.Helper()
		m := master(t, func(p *peer) {
			p.want(json(`{"action":"submit","id":"a","type":"t","body":[1]}`))
			all := ""
			for _, a := range answers {
				all += json(a)
			}
			p.send(all)
			if says != ErrClosed.Error() {
				p.drain()
			}
		})
		var got []byte
		var err error
		if wait {
			got, err = m.Run(within(t), jobA)
		} else {
			err = m.Submit(within(t), jobA)
		}
		if string(got) != body || (err == nil) != (says == "") || err != nil && !strings.HasSuffix(err.Error(), says) {
			t.Errorf("%s: got %q, %v; want %q, %q", what, got, err, body, says)
		}
	}
	const response, exists, failed = `{"id":"a","body":{"x": 1}}`, `{"error":"id_exists","reason":"a"}`, `{"error":"job_failed","reason":"a"}`
	f("run", true, []string{submitted, response}, `{"x": 1}`, "")
	f("others' answers", true, []string{
		`{"id":"b","body":1}`, `{"error":"job_failed","reason":"b"}`, submitted, `{"id":7,"body":1}`, `{"error":"job_failed","reason":7}`, response,
	}, `{"x": 1}`, "")
	f("id exists", true, []string{submitted, exists}, "", "(the server answered id_exists)")
	f("id exists, said at once", true, []string{exists}, "", "(the server answered id_exists)")
	f("job failed", true, []string{submitted, failed}, "", "the job failed (the server answered job_failed)")
	f("refused", true, []string{`{"error":"invalid_type","reason":"priority"}`}, "", `the server answered invalid_type: "priority"`)
	f("closed", true, []string{submitted}, "", ErrClosed.Error())
	f("submit", false, []string{submitted, unknown}, "", "")
	f("submit, others' answers", false, []string{submitted, response, `{"error":"job_failed","reason":"b"}`, unknown}, "", "")
	f("submit, id exists", false, []string{submitted, exists, unknown}, "", "(the server answered id_exists)")
	f("submit, closed", false, []string{submitted}, "", ErrClosed.Error())
	const elsewhere = " (is it another protocol's socket? -H or TREADLE_GLOOM_MASTERS names the server)"
	f("no object", true, []string{"1"}, "", ErrNotGloom.Error()+elsewhere)
	f("no JSON", true, []string{"{]"}, "", ErrNotGloom.Error()+elsewhere)
}

// TestMasterSubmit checks that Submit sends a probe and waits for its refusal.
func TestMasterSubmit(t *testing.T) {
	m := master(t, func(p *peer) {
		p.want(json(`{"action":"submit","id":"a","type":null,"priority":-5,"body":"x"}`))
		p.send(json(submitted))
		p.want(json(`{"action":"ping"}`))
		p.send(json(unknown))
		p.drain()
	})
	j := &GloomJob{ID: GloomText("a"), Type: []byte("null"), Priority: -5, Body: GloomValue([]byte("x"))}
	check(t, m.Submit(within(t), j), nil)
}

// TestGloomError checks that a program can tell the errors apart.
func TestGloomError(t *testing.T) {
	m := master(t, func(p *peer) {
		p.want(json(`{"action":"submit","id":"a","type":"t","body":[1]}`))
		p.send(json(`{"error":"job_failed","reason":"a"}`))
		p.drain()
	})
	_, err := m.Run(within(t), jobA)
	var refused *GloomError
	if !errors.As(err, &refused) || *refused != (GloomError{gloom.JobFailed, `"a"`}) {
		t.Errorf("got %#v", err)
	}
}

func TestSlave(t *testing.T) {
	const job = `{"action":"job","id":"a","type":"t","body":[1]}`
	s := slave(t, func(p *peer) {
		p.want(json(`{"action":"join","type":"t"}`))
		p.send(json(`{"ok":true}`) + json(job))
		p.want(json(`{"action":"respond","body":{"x": 1}}`))
		p.send(json(`{"ok":true}`))
		p.want(json(`{"action":"join","type":` + gloom.Leaving + `}`))
		p.send(json(strings.Replace(job, `"a"`, "7", 1)) + json(`{"ok":true}`))
		p.want(json(`{"action":"respond","body":2}`))
		p.send(json(`{"ok":true}`))
		p.want(json(`{"action":"join","type":` + gloom.Leaving + `}`))
		p.send(json(`{"ok":true}`))
		p.drain()
	})
	ctx := within(t)
	check(t, s.Join(ctx, GloomText("t")), nil)
	got, err := s.Next(ctx)
	check(t, err, nil)
	if !reflect.DeepEqual(got, jobA) {
		t.Errorf("got %+v, want %+v", got, jobA)
	}
	check(t, s.Respond(ctx, []byte(`{"x": 1}`)), nil)
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Next(cancelled)
	check(t, err, context.Canceled)
	late, err := s.Leave(ctx)
	check(t, err, nil)
	if late == nil || string(late.ID) != "7" {
		t.Fatalf("the job on its way: got %+v", late)
	}
	check(t, s.Respond(ctx, []byte("2")), nil)
	if late, err := s.Leave(ctx); late != nil || err != nil {
		t.Errorf("got %+v, %v", late, err)
	}
}

// TestSlaveEarlyJob checks that Next returns a job that arrived before the reply to a join.
func TestSlaveEarlyJob(t *testing.T) {
	s := slave(t, func(p *peer) {
		p.want(json(`{"action":"join","type":"t"}`))
		p.send(json(`{"action":"job","id":"a","type":"t","body":[1]}`) + json(`{"ok":true}`))
		p.drain()
	})
	check(t, s.Join(within(t), GloomText("t")), nil)
	got, err := s.Next(within(t))
	if err != nil || !reflect.DeepEqual(got, jobA) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestSlaveFailures(t *testing.T) {
	f := func(answer string, call func(s *Slave) error, says string) {
		t.Helper()
		s := slave(t, func(p *peer) {
			p.send(answer)
			if !strings.HasPrefix(says, ErrClosed.Error()) {
				p.drain()
			}
		})
		if err := call(s); err == nil || !strings.HasSuffix(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", answer, err, says)
		}
	}
	next := func(s *Slave) error { _, err := s.Next(within(t)); return err }
	respond := func(s *Slave) error { return s.Respond(within(t), []byte("1")) }
	const elsewhere = " (is it another protocol's socket? -H or TREADLE_GLOOM_SLAVES names the server)"
	f("", next, ErrClosed.Error()+elsewhere)
	f(json(`{"ok":true}`)[:20], next, ErrClosed.Error()+elsewhere)
	f(json(`{"error":"x","reason":1}`), next, "the server answered x: 1")
	f(json(`{"id":1,"body":1}`), next, ErrNotGloom.Error())
	f(json(`{"error":"invalid_state","reason":"not_processing"}`), respond, `invalid_state: "not_processing"`)
	f(json(`{"id":1,"body":1}`), respond, "an unexpected message")
	f(ascii("HTTP/1.1 400 Bad Request\r\n"), next, ErrNotGloom.Error()+", it looks like HTTP"+elsewhere)
	f("005245530000000401020304", next, ErrNotGloom.Error()+", it looks like Periodic"+elsewhere)
	f("ffffffff7b", next, ErrNotGloom.Error()+", it looks like ZeroMQ, as dwork does"+elsewhere)
}

// TestGloomTooLarge checks that the reason is returned when the server closes the connection before
// it has read the job.
func TestGloomTooLarge(t *testing.T) {
	m := master(t, func(p *peer) {
		p.want("00100000")
		p.send(json(`{"error":"size_error","reason":"length too large"}`))
	})
	j := *jobA
	j.Body = GloomText(strings.Repeat("x", 1<<20-len(`{"action":"submit","id":"a","type":"t","body":""}`)))
	_, err := m.Run(within(t), &j)
	if err == nil || !strings.HasSuffix(err.Error(), `--gloom-max-frame (the server answered size_error)`) {
		t.Errorf("got %v", err)
	}
}

func TestGloomDialFailure(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	l.Close()
	_, masterErr := DialMaster(within(t), closed)
	_, slaveErr := DialSlave(within(t), closed)
	for setting, err := range map[string]error{"-H or TREADLE_GLOOM_MASTERS": masterErr, "-H or TREADLE_GLOOM_SLAVES": slaveErr} {
		want := fmt.Sprintf("cannot connect to tcp://%s: connection refused (is `treadle serve` running? %s names the server)", closed, setting)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestGloomValues(t *testing.T) {
	f := func(data, value string) {
		t.Helper()
		if got := GloomValue([]byte(data)); string(got) != value {
			t.Errorf("%q: got %s, want %s", data, got, value)
		}
	}
	f(" {\"a\": [1] }\n", `{"a": [1] }`)
	f("hello\n", `"hello\n"`)
	f("", `""`)
	f("\xff", `{"base64":"/w=="}`)
	if got := GloomCharacters(GloomText("a\n\"ü")); got != "a\n\"ü" {
		t.Errorf("got %q", got)
	}
	if got := GloomCharacters([]byte(`{"a":1}`)); got != `{"a":1}` {
		t.Errorf("got %q", got)
	}
}
