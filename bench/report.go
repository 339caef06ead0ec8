package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"treadle/bench/peer"
)

// machine describes the hardware and software that a result depends on.
type machine struct {
	Cores    int    `json:"cores"`
	CPU      string `json:"cpu"`
	MemoryGB int    `json:"memory_gb"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Arch     string `json:"arch"`
	Disk     string `json:"disk"` // the type of file system under the durable rows
}

// report is what one run measured, as it is saved in JSON.
type report struct {
	Started  time.Time         `json:"started"`
	Took     float64           `json:"took_seconds"`
	Machine  machine           `json:"machine"`
	Settings settings          `json:"settings"`
	Versions map[string]string `json:"versions"`
	Missing  []string          `json:"missing,omitempty"` // rows and peers that this machine lacks programs for
	Medians  []*sample         `json:"medians"`           // in the order of the table; Round is the number of rounds
	Samples  []*sample         `json:"samples"`           // of each round

	rows []row // they name the rows that they are compared with
}

// newReport returns the report of the samples of a run, with the versions of the servers.
func newReport(s settings, started time.Time, list []row, servers []peer.Contender, samples []*sample) *report {
	r := &report{
		Started: started.UTC().Truncate(time.Second), Took: time.Since(started).Round(time.Second).Seconds(),
		Machine: thisMachine(), Settings: s, Samples: samples, Medians: joined(samples, median), Versions: map[string]string{}, rows: list,
	}
	for _, p := range servers {
		if p.Version != "" && !strings.Contains(p.Name, " ") { // variants are the same program
			r.Versions[p.Name] = p.Version
		}
	}
	return r
}

// isTreadle reports whether a server is a Treadle; the others are peers and limits.
func isTreadle(server string) bool { return strings.HasPrefix(server, "treadle") }

// find returns the sample of one row and server, nil if there is none.
func find(list []*sample, c cell) *sample {
	for _, s := range list {
		if s.Row == c.row && s.Server == c.server {
			return s
		}
	}
	return nil
}

// ofSection returns the medians of one section.
func (r *report) ofSection(of section) (list []*sample) {
	for _, m := range r.Medians {
		if m.Section == of {
			list = append(list, m)
		}
	}
	return list
}

func rowName(s *sample) string    { return s.Row }
func serverName(s *sample) string { return s.Server }

// distinct returns the different names of samples in their order of appearance.
func distinct(list []*sample, name func(s *sample) string) (names []string) {
	for _, s := range list {
		if !slices.Contains(names, name(s)) {
			names = append(names, name(s))
		}
	}
	return names
}

// joined joins the rounds of each row and server: join makes each figure from those of the rounds.
func joined(samples []*sample, join func(values []float64) float64) (list []*sample) {
	rounds := map[cell][]*sample{}
	for _, s := range samples {
		c := cell{s.Row, s.Server}
		if rounds[c] == nil {
			list = append(list, new(*s))
		}
		rounds[c] = append(rounds[c], s)
	}
	for _, m := range list {
		of := rounds[cell{m.Row, m.Server}]
		m.Round, m.Figures = len(of), figures{}
		for _, name := range figureNames {
			var all []float64
			for _, s := range of {
				all = append(all, s.Figures[name])
			}
			if value := join(all); value != 0 {
				m.Figures[name] = value
			}
		}
	}
	return list
}

// median returns the middle value, or the mean of the two in the middle; 0 of nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	return (sorted[middle] + sorted[(len(sorted)-1)/2]) / 2
}

// readReport reads a file that save wrote.
func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the results: %w", err)
	}
	r := &report{rows: rows()}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("cannot read the results in %s: %w", path, err)
	}
	return r, nil
}

// save writes the report as JSON, and as a page beside it. It makes the directory when it is missing.
func (r *report) save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err == nil {
		err = r.savePage(pageOf(path))
	}
	if err != nil {
		return fmt.Errorf("cannot save the results: %w", err)
	}
	return nil
}

// thisMachine describes the machine, as far as it can be found out.
func thisMachine() machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Arch: runtime.GOARCH, Disk: fileSystem(peer.DiskPlace())}
	memory, _ := peer.ProcField("/proc/meminfo", "MemTotal")
	kilobytes, _ := strconv.Atoi(strings.TrimSuffix(memory, " kB"))
	m.MemoryGB = (kilobytes + 1<<19) >> 20
	m.CPU, _ = peer.ProcField("/proc/cpuinfo", "model name")
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	return m
}

// fileSystem returns the type of the file system that holds a directory.
func fileSystem(directory string) string {
	said, err := exec.Command("df", "--output=fstype", directory).Output()
	if words := strings.Fields(string(said)); err == nil && len(words) == 2 {
		return words[1]
	}
	return "unknown"
}
