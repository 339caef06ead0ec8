package main

import (
	"slices"

	"treadle/bench/load"
)

// sample is one measurement of one server in one row.
type sample struct {
	Section section `json:"section,omitempty"`
	Row     string  `json:"row"`
	Server  string  `json:"server"`
	Round   int     `json:"round"`
	Jobs    int     `json:"jobs,omitempty"`
	Rate    int     `json:"rate,omitempty"` // jobs a second in an open loop
	Figures figures `json:"figures"`
}

// figures are measured values by their names, which are those of figureNames. A value that the row does not have is 0.
type figures map[string]float64

// quantileSteps are the quantiles of latencies, and latencyNames what takes the time: their names are "submit p99", in
// microseconds.
var (
	quantileSteps = []string{"p50", "p90", "p99", "p99.9", "p99.99", "max"}
	latencyNames  = []string{"submit", "to worker", "answer"} // as in load.Summary
)

// figureNames are the names of all figures.
var figureNames = func() []string {
	names := []string{
		"jobs/s",
		"MB/s",        // of workloads
		"CPU",         // processor time of the server, seconds for a million jobs
		"load CPU",    // the same of the load generator
		"longest",     // microseconds that any call of the clients took, in the rows that say so
		"of quiet",    // submit p99, divided by that of a quiet server
		"MB/1M",       // memory of a million queued jobs
		"MB later",    // memory when all of them are done
		"after s",     // seconds until "MB later" was reached
		"KB/conn",     // memory of an idle connection
		"silent",      // number of idle connections; the limit of open files bounds them
		"connect us",  // processor time of the server to accept and greet a connection
		"% of a core", // used by a Disbatch node
		"answer MB",   // size of an answer
	}
	for _, of := range latencyNames {
		for _, step := range quantileSteps {
			names = append(names, of+" "+step)
		}
	}
	return names
}()

// set sets one of figureNames.
func (s *sample) set(name string, value float64) {
	if !slices.Contains(figureNames, name) {
		panic("BUG: there is no figure " + name)
	}
	if s.Figures == nil {
		s.Figures = figures{}
	}
	if value != 0 {
		s.Figures[name] = value
	}
}

// setLatency sets the quantiles of one of latencyNames, if it was measured.
func (s *sample) setLatency(of string, q load.Quantiles) {
	for i, value := range []float64{q.P50, q.P90, q.P99, q.P999, q.P9999, q.Max} {
		if value > 0 {
			s.set(of+" "+quantileSteps[i], value)
		}
	}
}

// setSpeed sets the rate and the costs of jobs.
func (s *sample) setSpeed(jobs int, elapsed int64, spent meter) {
	s.Jobs = jobs
	s.set("jobs/s", float64(jobs)/seconds(elapsed))
	s.set("CPU", spent.server.Seconds()*1e6/float64(jobs))
	s.set("load CPU", spent.load.Seconds()*1e6/float64(jobs))
}

// seconds converts nanoseconds.
func seconds(nanoseconds int64) float64 { return float64(nanoseconds) / 1e9 }
