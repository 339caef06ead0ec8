package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// collectPause is the time between the end of one forced collection and the next.
	collectPause = time.Second
	// changePause is the time between two changes of a policy: that of 10M jobs takes seconds.
	changePause = 5 * time.Second
	// collectPath is a profile that begins with a collection.
	collectPath = "/debug/pprof/heap?gc=1"
	// questionLimit bounds one question to the server over HTTP: a collection of a heap of gigabytes takes a while.
	questionLimit = time.Minute
)

// httpGet reads a page of the server over HTTP.
func httpGet(ctx context.Context, address, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = reply.Body.Close() }()
	page, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s was answered %s", path, reply.Status)
	}
	return string(page), err
}

// repeatDuring runs a phase, and meanwhile calls do again and again, with a pause after each time.
func repeatDuring(ctx context.Context, pause time.Duration, phase func() error, do func(ctx context.Context) error) error {
	ctx, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				ended <- fmt.Errorf("beside the load: %w", err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		ended <- nil
	}()
	err := phase()
	end()
	return errors.Join(err, <-ended)
}
