package load

import "github.com/HdrHistogram/hdrhistogram-go"

// A histogram tells apart from 100 ns to a minute, to three digits.
const (
	latencyLowest  = 100
	latencyHighest = 60e9
	latencyDigits  = 3
)

// Latencies collects durations in nanoseconds. In a pipeline whole batches share one duration, so equal neighbours are
// counted first and entered into the histogram together. It is used by one goroutine.
type Latencies struct {
	histogram *hdrhistogram.Histogram
	value     int64
	count     int64
}

// NewLatencies returns an empty collection.
func NewLatencies() *Latencies {
	return &Latencies{histogram: hdrhistogram.New(latencyLowest, latencyHighest, latencyDigits)}
}

// Record adds one duration.
func (l *Latencies) Record(nanoseconds int64) {
	if nanoseconds != l.value {
		l.flush()
		l.value = nanoseconds
	}
	l.count++
}

// flush enters the durations that Record holds back.
func (l *Latencies) flush() {
	if l.count > 0 {
		// A value within the bounds is always accepted.
		_ = l.histogram.RecordValues(min(max(l.value, 0), latencyHighest), l.count)
		l.count = 0
	}
}

func (l *Latencies) merge(other *Latencies) {
	other.flush()
	l.histogram.Merge(other.histogram)
}

// Quantiles are latencies in microseconds.
type Quantiles struct{ P50, P90, P99, P999, P9999, Max float64 }

// Quantiles returns the quantiles of all durations so far.
func (l *Latencies) Quantiles() Quantiles {
	l.flush()
	at := func(percent float64) float64 { return float64(l.histogram.ValueAtQuantile(percent)) / 1000 }
	return Quantiles{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99), Max: float64(l.histogram.Max()) / 1000}
}
