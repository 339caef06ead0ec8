package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	codec "treadle/codec/admin"
)

// TestDemo: treadle demo serves its pages, has jobs of every protocol done, and ends with a signal.
func TestDemo(t *testing.T) {
	t.Parallel()
	demo := start(t, true, "demo", "--http", "127.0.0.1:0")
	_, address, _ := strings.Cut(demo.until(" is at "), " is at ")
	demo.drain()
	get := func(path string) string {
		reply, err := http.Get(strings.TrimSuffix(address, "/") + path)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		body, err := io.ReadAll(reply.Body)
		if err != nil || reply.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d, %v", path, reply.StatusCode, err)
		}
		return string(body)
	}
	if page := get("/"); !strings.Contains(page, "Busiest queues") {
		t.Errorf("the overview is %.300q", page)
	}
	done := make(map[string]bool)
	pause := time.NewTicker(dripPause)
	defer pause.Stop()
	for end := time.Now().Add(patience); len(done) < 6; <-pause.C {
		if time.Now().After(end) {
			t.Fatalf("only jobs of %v are done", done)
		}
		var all codec.Queues
		if err := json.Unmarshal([]byte(get("/api/v1/queues")), &all); err != nil {
			t.Fatal(err)
		}
		for _, q := range all.Queues {
			if q.DoneTotal > 0 {
				for _, protocol := range q.Protocols {
					done[protocol] = true
				}
			}
		}
	}
	demo.signal(syscall.SIGINT)
	demo.exit(0)
}
