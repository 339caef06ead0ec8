package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// BenchmarkTasks measures a node that claims, runs and finishes trivial tasks, on a fake that shares its processors.
func BenchmarkTasks(b *testing.B) {
	for plugin, entry := range map[string]string{"function": `{"kind": "function"}`, "exec": `{"kind": "exec", "command": ["/bin/true"]}`} {
		for _, threads := range []int{1, 4, 20} {
			b.Run(fmt.Sprintf("%s/threads=%d", plugin, threads), func(b *testing.B) { benchTasks(b, entry, threads) })
		}
	}
}

// benchStore returns the configuration and the store of a fake.
func benchStore(b *testing.B, entry string) (*config.File, *store.Store) {
	fake, err := mongotest.Start()
	check(b, err)
	b.Cleanup(fake.Stop)
	path := b.TempDir() + "/config.json"
	check(b, os.WriteFile(path, fmt.Appendf(nil, `{"mongohost": %q, "treadle_plugins": {"P": %s}}`, fake.Address(), entry), 0o600))
	c, err := config.Read(path)
	check(b, err)
	site, err := store.Open(c.Connection(config.ComponentWeb))
	check(b, err)
	b.Cleanup(site.Close)
	return c, site
}

// benchQueue makes a queue with the given threads, in the order of ids.
func benchQueue(b *testing.B, site *store.Store, threads int) store.Queue {
	_, err := site.InsertQueue(b.Context(), "q", "P")
	check(b, err)
	q, err := site.Queue(b.Context(), "q")
	check(b, err)
	sort := "fifo"
	_, err = site.UpdateQueue(b.Context(), &q, store.QueueChange{Limit: &threads, Sort: &sort})
	check(b, err)
	q, err = site.Queue(b.Context(), "q")
	check(b, err)
	return q
}

// benchNode runs a node until the end of the benchmark. It checks an empty queue again after the interval, which is not
// part of the cost of a task.
func benchNode(b *testing.B, c *config.File, interval time.Duration) {
	node, err := New(Options{
		Config: c, Name: "me", Interval: interval, Functions: newWorkers(false), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Executor: []string{"/usr/bin/env", runnerVariable + "=" + c.Path, os.Args[0]},
	})
	check(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- node.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		check(b, <-done)
	})
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func benchTasks(b *testing.B, entry string, threads int) {
	c, site := benchStore(b, entry)
	ctx := b.Context()
	q := benchQueue(b, site, threads)
	warm := 2 * threads
	_, err := site.InsertTasks(ctx, &q, sitetest.Payloads(warm)) // start the process that runs commands
	check(b, err)
	benchNode(b, c, 20*time.Millisecond)
	finished := func() {
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		<-ticker.C
		for _, status := range []int{store.StatusQueued, store.StatusClaimed, store.StatusRunning} {
			for ; ; <-ticker.C {
				left, err := site.Search(ctx, d("status", status), store.SearchOptions{Limit: 1}) // a count would cost more
				check(b, err)
				if len(left) == 0 {
					break
				}
			}
		}
	}
	finished()
	limit := func(n int) {
		_, err := site.UpdateQueue(ctx, &q, store.QueueChange{Limit: &n})
		check(b, err)
	}
	limit(0)
	<-time.After(200 * time.Millisecond) // ten ticks
	for left := b.N; left > 0; left -= 1000 {
		_, err = site.InsertTasks(ctx, &q, sitetest.Payloads(min(left, 1000)))
		check(b, err)
	}
	b.ResetTimer()
	limit(threads)
	finished()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// BenchmarkIdleNode measures an idle node: its part of a processor, including the fake's.
func BenchmarkIdleNode(b *testing.B) {
	c, site := benchStore(b, `{"kind": "function"}`)
	benchQueue(b, site, 4)
	benchNode(b, c, time.Second)
	const while = 5 * time.Second
	var before, after syscall.Rusage
	for range b.N {
		check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
		timer := time.NewTimer(while)
		<-timer.C
		check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	}
	used := time.Duration(after.Utime.Nano() - before.Utime.Nano() + after.Stime.Nano() - before.Stime.Nano())
	b.ReportMetric(100*used.Seconds()/while.Seconds(), "%core")
}

// BenchmarkClaim measures claims one after the other, in the order of ids.
func BenchmarkClaim(b *testing.B) {
	_, site := benchStore(b, `{"kind": "function"}`)
	q := benchQueue(b, site, 4)
	for left := b.N; left > 0; left -= 1000 {
		_, err := site.InsertTasks(b.Context(), &q, sitetest.Payloads(min(left, 1000)))
		check(b, err)
	}
	b.ResetTimer()
	for range b.N {
		_, err := site.Claim(b.Context(), &q, "me", time.Now())
		check(b, err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
}
