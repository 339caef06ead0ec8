package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/bench/load"
)

// TestPage draws a run: a bar for each server of a row, a curve for each that has latencies, what was not measured, and
// nothing that a browser cannot read.
func TestPage(t *testing.T) {
	samples := targetSamples()
	for i := range samples[:3] {
		samples[i].setLatency("submit", load.Quantiles{P50: 100, P99: 1000, P999: 2000, Max: 90000})
	}
	samples = append(samples, &sample{Section: "alone", Row: "connect <100>", Server: "treadle", Figures: figures{"KB/conn": 1}})
	r := newReport(settings{Rounds: 3}, time.Now(), rows(), nil, samples)
	r.Missing = []string{"gearmand, because gearmand is not installed"}
	path := filepath.Join(t.TempDir(), "run.json")
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	read := func() string {
		text, err := os.ReadFile(pageOf(path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := read()
	for _, want := range []string{
		"not measured: gearmand, because gearmand is not installed", "connect &lt;100&gt;", "Targets: 5 of 10 reached", "prefers-color-scheme: dark",
		`width="360.0" height="7" stroke="none"/>`, `width="180.0"`, "<title>gearmand</title>", ">10ms<", "at least 2.00",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if bad := regexp.MustCompile(`NaN|Inf\b|ZgotmplZ|<script|https?://|%!`).FindString(page); bad != "" {
		t.Errorf("%q is in the page", bad)
	}
	// The page of saved results is the same.
	if err := bench(t.Context(), []string{"-report", path}, io.Discard, os.Stderr); err != nil {
		t.Fatal(err)
	}
	if again := read(); again != page {
		t.Error("the page of the saved results differs")
	}
}

// TestChartsHaveFigures: a chart of a name that no figure has would be left out without a word.
func TestChartsHaveFigures(t *testing.T) {
	for _, of := range barFigures {
		if !slices.Contains(figureNames, of.figure) {
			t.Errorf("the bars %q", of.figure)
		}
	}
	for _, of := range curveFigures {
		for _, step := range quantileSteps {
			if !slices.Contains(figureNames, of.figure+" "+step) {
				t.Errorf("the curves %q %q", of.figure, step)
			}
		}
	}
}
