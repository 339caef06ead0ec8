package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is the hardware and software that a result depends on, in general terms.
type machine struct {
	Cores    int    `json:"cores"`
	CPU      string `json:"cpu"`
	MemoryGB int    `json:"memory_gb"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Arch     string `json:"arch"`
	Disk     string `json:"disk"` // the type of file system under the durable rows
}

// report is everything that one run found.
type report struct {
	Started  time.Time         `json:"started"`
	Took     float64           `json:"took_seconds"`
	Machine  machine           `json:"machine"`
	Settings settings          `json:"settings"`
	Versions map[string]string `json:"versions"`
	Medians  []sample          `json:"medians"` // in the order of the table; round is how many rounds there were
	Samples  []sample          `json:"samples"`

	ours map[string]bool   // by server
	base map[string]string // by server: what to compare it with in place of the peers
}

func newReport(s settings, started time.Time, field []contender, samples []sample) *report {
	r := &report{
		Started: started.UTC().Truncate(time.Second), Took: time.Since(started).Round(time.Second).Seconds(),
		Machine: thisMachine(), Settings: s, Samples: samples, Medians: medians(samples),
		Versions: map[string]string{}, ours: map[string]bool{}, base: map[string]string{},
	}
	for _, c := range field {
		r.ours[c.name], r.base[c.name] = c.ours, c.base
		if c.variant == "" {
			r.Versions[c.name] = c.version
		}
	}
	return r
}

// medians joins the rounds of each row and server: every value becomes its median. The order is that of first
// appearance.
func medians(samples []sample) []sample {
	type key struct{ row, server string }
	groups := map[key][]sample{}
	var order []key
	for _, s := range samples {
		k := key{s.Row, s.Server}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], s)
	}
	joined := make([]sample, 0, len(order))
	for _, k := range order {
		group := groups[k]
		of := func(value func(*sample) *float64) float64 {
			var values []float64
			for i := range group {
				values = append(values, *value(&group[i]))
			}
			return median(values)
		}
		m := group[0]
		m.Round = len(group)
		for _, value := range sampleValues {
			*value(&m) = of(value)
		}
		joined = append(joined, m)
	}
	return joined
}

// sampleValues are the measured values of a sample.
var sampleValues = []func(*sample) *float64{
	func(s *sample) *float64 { return &s.JobsPerSecond },
	func(s *sample) *float64 { return &s.Submit.P50 },
	func(s *sample) *float64 { return &s.Submit.P99 },
	func(s *sample) *float64 { return &s.Submit.P999 },
	func(s *sample) *float64 { return &s.ToWorker.P50 },
	func(s *sample) *float64 { return &s.ToWorker.P99 },
	func(s *sample) *float64 { return &s.ToWorker.P999 },
	func(s *sample) *float64 { return &s.Answer.P50 },
	func(s *sample) *float64 { return &s.Answer.P99 },
	func(s *sample) *float64 { return &s.Answer.P999 },
	func(s *sample) *float64 { return &s.Submit.Max },
	func(s *sample) *float64 { return &s.ToWorker.Max },
	func(s *sample) *float64 { return &s.Answer.Max },
	func(s *sample) *float64 { return &s.Attacks },
	func(s *sample) *float64 { return &s.ServerCPU },
	func(s *sample) *float64 { return &s.DriverCPU },
	func(s *sample) *float64 { return &s.QueuedMB },
	func(s *sample) *float64 { return &s.RestMB },
	func(s *sample) *float64 { return &s.RestSeconds },
	func(s *sample) *float64 { return &s.IdleKB },
	func(s *sample) *float64 { return &s.ConnectCPU },
	func(s *sample) *float64 { return &s.CorePercent },
	func(s *sample) *float64 { return &s.Collections.Cycles },
	func(s *sample) *float64 { return &s.Collections.PauseUS },
	func(s *sample) *float64 { return &s.Collections.AssistMS },
	func(s *sample) *float64 { return &s.Collections.TotalMS },
}

// save writes the report as JSON, and makes the directory when it is missing.
func (r *report) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode the results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("cannot save the results: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("cannot save the results: %w", err)
	}
	return nil
}

// thisMachine leaves out what it cannot find.
func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Arch: runtime.GOARCH, Disk: fileSystem(diskPlace())}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		kilobytes, _ := procField(text, "MemTotal")
		m.MemoryGB = int((kilobytes + 1<<19) >> 20)
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}
