package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"treadle/bench/load"
	"treadle/bench/peer"
)

const (
	// scrapePause is the time between the reads of the metrics beside watched pages.
	scrapePause = time.Second
	// reopenPause is the time after which a page is opened again whose events have ended.
	reopenPause = 100 * time.Millisecond
)

// watchedPages are pages of the web interface.
var watchedPages = []string{
	"/", "/queues", "/queue?queue=" + load.QueueName, "/jobs", "/jobs?filter=queue:" + load.QueueName, "/failed", "/connections", "/cron",
	"/dwork", "/activity",
}

// watch returns a function that reads the metrics. At its first call it also opens the pages, whose events are read
// until its context ends.
func watch(s *peer.Server) func(ctx context.Context) error {
	var ended chan error
	return func(ctx context.Context) error {
		if ended == nil {
			ended = make(chan error, len(watchedPages))
			for _, page := range watchedPages {
				go func() { ended <- readEvents(ctx, s.HTTP, page) }()
			}
		}
		select {
		case err := <-ended:
			return err
		default:
		}
		_, err := httpGet(ctx, s.HTTP, "/metrics")
		return err
	}
}

// readEvents reads the events of a page until ctx ends. As a browser it asks again when they end, as those of a queue
// without jobs do.
func readEvents(ctx context.Context, address, page string) error {
	for {
		reply, err := getPage(ctx, address, "/live?at="+url.QueryEscape(page))
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close() // it was only read
		if err != nil {
			return fmt.Errorf("the events of %s: %w", page, err)
		}
		time.Sleep(reopenPause)
	}
}

// getPage requests a page in gzip's form, as browsers do. The reply's body is to be closed.
func getPage(ctx context.Context, address, path string) (*http.Response, error) {
	return httpOpen(ctx, http.MethodGet, address, path, "Accept-Encoding", "gzip", http.NoBody)
}

// browse loads each page so many times. Of the pages it keeps the largest time that one of a hundred loads exceeds, and
// the largest size.
func (a *apiTrial) browse(l load.Load, times int) error {
	queues := func() error {
		return a.submitLines(l.Functions, func(n int) string { return "f" + strconv.Itoa(n) })
	}
	if err := inOrder(func() error { return a.fill(l.Ready) }, queues, a.settle); err != nil {
		return err
	}
	slowest, largest := 0.0, int64(0)
	err := a.timed(times*len(watchedPages), func() error {
		for _, page := range watchedPages {
			took := load.NewLatencies()
			for range times {
				began := load.Now()
				size, err := a.loadPage(page)
				if err != nil {
					return err
				}
				took.Record(load.Now() - began)
				largest = max(largest, size)
			}
			slowest = max(slowest, took.Quantiles().P99)
		}
		return nil
	})
	a.sample.set("longest", slowest)
	a.sample.set("answer MB", float64(largest)/1e6)
	return err
}

// loadPage returns the size of a page in gzip's form.
func (a *apiTrial) loadPage(page string) (int64, error) {
	reply, err := getPage(a.ctx, a.server.HTTP, page)
	if err != nil {
		return 0, err
	}
	defer func() { _ = reply.Body.Close() }() // it was only read
	return io.Copy(io.Discard, reply.Body)
}
