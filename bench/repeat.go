package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"treadle/bench/peer"
)

const (
	// collectPause is the time between the end of one forced collection and the next.
	collectPause = time.Second
	// changePause is the time between two changes of a policy: that of 10M jobs takes seconds.
	changePause = 5 * time.Second
	// collectPath is a profile that begins with a collection.
	collectPath = "/debug/pprof/heap?gc=1"
)

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

// collect returns a function that makes the server collect its garbage.
func collect(s *peer.Server) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := httpGet(ctx, s.HTTP, collectPath)
		return err
	}
}

// togglePolicy returns a function that sets a policy for the queue, and takes it away at its next call.
func togglePolicy(s *peer.Server) func(ctx context.Context) error {
	set := false
	return func(ctx context.Context) error {
		p := peer.FairPolicy
		if set = !set; !set {
			p = peer.Policy{"key": nil, "fair": nil}
		}
		return s.SetPolicy(ctx, p)
	}
}
