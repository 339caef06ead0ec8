package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"treadle/bench/peer"
)

const (
	// collectPause is the time between the end of one forced collection and the next.
	collectPause = time.Second
	// collectPath is a profile that begins with a collection.
	collectPath = "/debug/pprof/heap?gc=1"
	// questionLimit bounds one question to the server over HTTP: a collection of a heap of gigabytes takes a while.
	questionLimit = time.Minute
)

// The names of Go's own metrics in Prometheus' form.
const (
	pausesMetric  = "go_sched_pauses_total_gc_seconds_bucket"
	cyclesMetric  = "go_gc_cycles_total_gc_cycles_total"
	assistsMetric = "go_cpu_classes_gc_mark_assist_cpu_seconds_total"
	collectMetric = "go_cpu_classes_gc_total_cpu_seconds_total"
)

// collections holds the costs of Go's garbage collector in a server while jobs flowed.
type collections struct {
	Cycles   float64 `json:"cycles"`
	PauseUS  float64 `json:"longest_pause_us"` // the upper bound of its bucket
	AssistMS float64 `json:"assist_ms"`        // processor time of goroutines that were made to help
	TotalMS  float64 `json:"total_ms"`         // processor time of all of it
}

// metrics holds the values of a page in Prometheus' text form, by name and labels as the page has them.
type metrics map[string]float64

// parseMetrics reads a page. It skips lines that it cannot read.
func parseMetrics(page string) metrics {
	m := metrics{}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		at := max(0, strings.LastIndexByte(line, ' '))
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err == nil {
			m[line[:at]] = value
		}
	}
	return m
}

// since returns the costs between two readings.
func (m metrics) since(before metrics) collections {
	of := func(name string) float64 { return m[name] - before[name] }
	c := collections{Cycles: of(cyclesMetric), AssistMS: of(assistsMetric) * 1000, TotalMS: of(collectMetric) * 1000}
	all := of(pausesMetric + `{le="+Inf"}`)
	bound := 0.0
	for name := range m {
		text, ok := strings.CutPrefix(name, pausesMetric+`{le="`)
		if !ok || of(name) < all || all == 0 {
			continue
		}
		// All pauses were below this bound.
		if limit, err := strconv.ParseFloat(strings.TrimSuffix(text, `"}`), 64); err == nil && (bound == 0 || limit < bound) {
			bound = limit
		}
	}
	c.PauseUS = bound * 1e6
	return c
}

// ask reads a page over HTTP.
func ask(ctx context.Context, address, path string) (string, error) {
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

// collected runs a phase and reads the costs of the server's garbage collector meanwhile. In a row that says so, the server
// collects all the time.
func (s *sample) collected(ctx context.Context, running *peer.Server, r row, phase func() error) error {
	if running.HTTP == "" || r.Load.Ready+r.Load.Delayed == 0 {
		return phase()
	}
	before, err := ask(ctx, running.HTTP, "/metrics")
	if err != nil {
		return err
	}
	collecting, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- collect(collecting, running.HTTP, r.Collects) }()
	err = phase()
	end()
	if err = errors.Join(err, <-ended); err != nil {
		return err
	}
	after, err := ask(ctx, running.HTTP, "/metrics")
	s.Collections = parseMetrics(after).since(parseMetrics(before))
	return err
}

// collect makes a server collect its garbage again and again until ctx ends, if that is wanted.
func collect(ctx context.Context, address string, wanted bool) error {
	for wanted && ctx.Err() == nil {
		if _, err := ask(ctx, address, collectPath); err != nil && ctx.Err() == nil {
			return fmt.Errorf("a collection: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(collectPause):
		}
	}
	return nil
}
