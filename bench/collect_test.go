package main

import "testing"

const metricsBefore = `# HELP go_gc_cycles_total_gc_cycles_total Count of all completed GC cycles.
# TYPE go_gc_cycles_total_gc_cycles_total counter
go_gc_cycles_total_gc_cycles_total 4
go_cpu_classes_gc_mark_assist_cpu_seconds_total 0.5
go_cpu_classes_gc_total_cpu_seconds_total 1
go_sched_pauses_total_gc_seconds_bucket{le="1e-05"} 3
go_sched_pauses_total_gc_seconds_bucket{le="0.0001"} 3
go_sched_pauses_total_gc_seconds_bucket{le="0.01"} 5
go_sched_pauses_total_gc_seconds_bucket{le="+Inf"} 5
treadle_named{path="a b"} 7
no value
`

const metricsAfter = `go_gc_cycles_total_gc_cycles_total 6
go_cpu_classes_gc_mark_assist_cpu_seconds_total 0.502
go_cpu_classes_gc_total_cpu_seconds_total 1.25
go_sched_pauses_total_gc_seconds_bucket{le="1e-05"} 5
go_sched_pauses_total_gc_seconds_bucket{le="0.0001"} 7
go_sched_pauses_total_gc_seconds_bucket{le="0.01"} 9
go_sched_pauses_total_gc_seconds_bucket{le="+Inf"} 9
`

// TestCollections reads two pages of metrics. The two pauses above 100 us were there before.
func TestCollections(t *testing.T) {
	before := parseMetrics(metricsBefore)
	if len(before) != 8 || before[`treadle_named{path="a b"}`] != 7 {
		t.Errorf("got %v", before)
	}
	got := parseMetrics(metricsAfter).since(before)
	near := func(a, b float64) bool { return a > b-1e-6 && a < b+1e-6 }
	if got.Cycles != 2 || !near(got.PauseUS, 100) || !near(got.AssistMS, 2) || !near(got.TotalMS, 250) {
		t.Errorf("got %+v", got)
	}
	if got := before.since(before); got != (collections{}) {
		t.Errorf("of nothing: got %+v", got)
	}
}
