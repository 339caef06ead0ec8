package main

import (
	"maps"
	"testing"
)

// TestParseMetrics reads a page of metrics.
func TestParseMetrics(t *testing.T) {
	got := parseMetrics(`# HELP go_gc_cycles_total_gc_cycles_total Count of all completed GC cycles.
# TYPE go_gc_cycles_total_gc_cycles_total counter
go_gc_cycles_total_gc_cycles_total 4
go_sched_pauses_total_gc_seconds_bucket{le="+Inf"} 0.5
treadle_named{path="a b"} 7
no value
`)
	want := map[string]float64{"go_gc_cycles_total_gc_cycles_total": 4, `go_sched_pauses_total_gc_seconds_bucket{le="+Inf"}`: 0.5, `treadle_named{path="a b"}`: 7}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
