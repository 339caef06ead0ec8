package client_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"treadle/codec/gloom"
	"treadle/loop"
	"treadle/loop/client"
)

// TestGloomAgainstServer calls every verb once against the real server.
func TestGloomAgainstServer(t *testing.T) {
	dir := t.TempDir()
	masters, slaves := "unix://"+filepath.Join(dir, "m"), "unix://"+filepath.Join(dir, "s")
	server(t, loop.Options{Gloom: loop.GloomOptions{Masters: []string{masters}, Slaves: []string{slaves}}})
	ctx, cancel := context.WithTimeout(context.Background(), hangTimeout)
	defer cancel()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func() *client.Slave {
		t.Helper()
		s, err := client.DialSlave(ctx, slaves)
		ok(err)
		t.Cleanup(s.Close)
		ok(s.Join(ctx, client.GloomText("t")))
		return s
	}
	job := func(id string) *client.GloomJob {
		return &client.GloomJob{ID: client.GloomText(id), Type: client.GloomText("t"), Priority: 1, Body: client.GloomValue([]byte("hi"))}
	}
	type answer struct {
		body []byte
		err  error
	}
	m, err := client.DialMaster(ctx, masters)
	ok(err)
	defer m.Close()
	answers := make(chan answer)
	run := func(id string) {
		body, err := m.Run(ctx, job(id))
		answers <- answer{body, err}
	}
	take := func(s *client.Slave, id string) {
		t.Helper()
		j, err := s.Next(ctx)
		ok(err)
		if got := fmt.Sprintf("%s %s %s", j.ID, j.Type, j.Body); got != `"`+id+`" "t" "hi"` {
			t.Fatalf("got %s, want %q", got, id)
		}
	}

	s := open()
	go run("a")
	take(s, "a")
	ok(s.Respond(ctx, []byte("[1, 2]")))
	if a := <-answers; string(a.body) != "[1, 2]" || a.err != nil {
		t.Errorf("got %s, %v", a.body, a.err)
	}
	go run("b")
	for range 4 {
		take(s, "b")
		s.Close()
		s = open()
	}
	var refused *client.GloomError
	if a := <-answers; !errors.As(a.err, &refused) || refused.Name != gloom.JobFailed {
		t.Errorf("after four deaths: %v", a.err)
	}
	if j, err := s.Leave(ctx); j != nil || err != nil {
		t.Errorf("leaving: %v, %v", j, err)
	}
	ok(m.Submit(ctx, job("c")))
	if err := m.Submit(ctx, job("c")); !errors.As(err, &refused) || refused.Name != gloom.IDExists {
		t.Errorf("the id again: %v", err)
	}
	take(open(), "c") // not to the slave that has left
}
