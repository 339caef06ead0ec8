package main

import (
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencyRange bounds what a histogram tells apart: from 100 ns to a minute, to three digits.
const (
	latencyLowest  = 100
	latencyHighest = 60e9
	latencyDigits  = 3
)

// latencies collects durations in nanoseconds. In a pipeline whole batches share one duration, so equal neighbours are
// counted first and entered into the histogram together.
type latencies struct {
	histogram *hdrhistogram.Histogram
	value     int64
	count     int64
}

func newLatencies() *latencies {
	return &latencies{histogram: hdrhistogram.New(latencyLowest, latencyHighest, latencyDigits)}
}

func (l *latencies) record(nanoseconds int64) {
	if nanoseconds != l.value {
		l.flush()
		l.value = nanoseconds
	}
	l.count++
}

// flush enters what record still holds back.
func (l *latencies) flush() {
	if l.count > 0 {
		// A value within the bounds is always accepted.
		_ = l.histogram.RecordValues(min(max(l.value, 0), latencyHighest), l.count)
		l.count = 0
	}
}

// quantiles are latencies in microseconds.
type quantiles struct {
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
}

func (l *latencies) quantiles() quantiles {
	l.flush()
	at := func(percent float64) float64 { return float64(l.histogram.ValueAtQuantile(percent)) / 1000 }
	return quantiles{P50: at(50), P99: at(99), P999: at(99.9), Max: float64(l.histogram.Max()) / 1000}
}

// median is the middle value, or the mean of the two in the middle; 0 of nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
