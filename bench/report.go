package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"treadle/bench/peer"
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
	Missing  []string          `json:"missing,omitempty"` // what could not be measured on this machine, and why
	Medians  []sample          `json:"medians"`           // in the order of the table; round is how many rounds there were
	Samples  []sample          `json:"samples"`

	against map[string]string // by row: the row to compare it with
}

func newReport(s settings, started time.Time, list []row, field []peer.Peer, samples []sample) *report {
	r := &report{
		Started: started.UTC().Truncate(time.Second), Took: time.Since(started).Round(time.Second).Seconds(),
		Machine: thisMachine(), Settings: s, Samples: samples, Medians: medians(samples), Versions: map[string]string{}, against: against(list),
	}
	for _, p := range field {
		if p.Version != "" && !strings.Contains(p.Name, " ") { // variants are the same program
			r.Versions[p.Name] = p.Version
		}
	}
	return r
}

// against says which row each is compared with.
func against(list []row) map[string]string {
	all := map[string]string{}
	for _, r := range list {
		all[r.name] = r.against
	}
	return all
}

// ours says whether a server is a Treadle; the others are its peers and limits.
func ours(server string) bool { return strings.HasPrefix(server, "treadle") }

// medians joins the rounds of each row and server: every value becomes its median. The order is that of first
// appearance.
func medians(samples []sample) []sample {
	groups := map[cell][]sample{}
	var order []cell
	for _, s := range samples {
		k := cell{s.Row, s.Server}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], s)
	}
	joined := make([]sample, 0, len(order))
	for _, k := range order {
		m := groups[k][0]
		m.Round = len(groups[k])
		var rounds [][]reflect.Value
		for i := range groups[k] {
			rounds = append(rounds, measured(reflect.ValueOf(&groups[k][i]).Elem()))
		}
		for i, value := range measured(reflect.ValueOf(&m).Elem()) {
			var all []float64
			for _, round := range rounds {
				all = append(all, round[i].Float())
			}
			value.SetFloat(median(all))
		}
		joined = append(joined, m)
	}
	return joined
}

// measured lists the values of a sample that are measured: its fractions, the others are what was asked for.
func measured(of reflect.Value) (list []reflect.Value) {
	for _, field := range of.Fields() {
		switch field.Kind() {
		case reflect.Float64:
			list = append(list, field)
		case reflect.Struct:
			list = append(list, measured(field)...)
		}
	}
	return list
}

// median is the middle value, or the mean of the two in the middle; 0 of nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	return (sorted[middle] + sorted[(len(sorted)-1)/2]) / 2
}

// readReport reads what save wrote.
func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the results: %w", err)
	}
	r := &report{against: against(rows())}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("cannot read the results in %s: %w", path, err)
	}
	return r, nil
}

// save writes the report as JSON, and as a page beside it, and makes the directory when it is missing.
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

// thisMachine leaves out what it cannot find.
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

// fileSystem is the type of the file system that holds a directory.
func fileSystem(directory string) string {
	said, err := exec.Command("df", "--output=fstype", directory).Output()
	if words := strings.Fields(string(said)); err == nil && len(words) == 2 {
		return words[1]
	}
	return "unknown"
}
