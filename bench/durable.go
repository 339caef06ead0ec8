package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The variants of the durable rows.
const (
	synced  = "synced" // keeps its jobs on disk
	rawDisk = "disk"   // is no server: the driver itself appends to a file and syncs it
)

const (
	// appendLen is what the disk's own row appends before each sync: a job of 100 bytes and what a journal adds to it.
	appendLen = 200
	// syncedAlone is the row with one submit at a time, which meets the disk's own time.
	syncedAlone = "synced sync 1"
)

// durableRows are measured with a journal each; Treadle in memory stands beside them.
func durableRows() []row {
	jobs := func(memory, always, interval, redisAlways, everysec, f0, f50 int) map[string]int {
		return map[string]int{
			"treadle": memory, "treadle always": always, "treadle interval": interval, "treadle never": interval,
			"redis always": redisAlways, "redis everysec": everysec, "beanstalkd -f0": f0, "beanstalkd -f50": f50,
			rawDisk: 2000,
		}
	}
	return []row{
		{name: "synced pipe 8", section: durableSection, fewer: true, load: load{connections: 8, depth: pipeline}, variants: []string{synced},
			guess: jobs(1500e3, 700e3, 1200e3, 220e3, 350e3, 5e3, 40e3)},
		{name: "synced sync 64", section: durableSection, fewer: true, load: load{connections: 64, depth: 1}, variants: []string{synced},
			guess: jobs(70e3, 45e3, 70e3, 24e3, 40e3, 5e3, 40e3)},
		{name: syncedAlone, section: durableSection, fewer: true, load: load{connections: 1, depth: 1}, variants: []string{synced, rawDisk},
			guess: jobs(25e3, 5e3, 20e3, 4e3, 15e3, 4e3, 10e3)},
	}
}

// durables lists Treadle, unless its path is empty, and the peers that the machine has, each with every way of keeping
// jobs on disk, and the disk itself.
func durables(treadle string) []contender {
	const data = "data"
	var list []contender
	add := func(name, path string, speaks protocol, c command) {
		c.path, c.place = path, diskPlace()
		list = append(list, contender{name: name, protocol: speaks, variant: synced, start: c.start})
	}
	if treadle != "" {
		for _, mode := range []string{"always", "interval", "never"} {
			add("treadle "+mode, treadle, newPeriodic(), command{gloom: true, arguments: func(ports [portCount]string, directory string) []string {
				return serveArguments(ports, "--data", filepath.Join(directory, data), "--sync", mode)
			}})
			list[len(list)-1].ours = true
		}
	}
	if path := find("redis-server"); path != "" {
		for _, mode := range []string{"always", "everysec"} {
			add("redis "+mode, path, newRedis(), command{arguments: func(ports [portCount]string, directory string) []string {
				return []string{
					"--bind", "127.0.0.1", "--port", ports[0], "--dir", directory, "--save", "",
					"--appendonly", "yes", "--appendfsync", mode,
				}
			}})
		}
	}
	if path := find("beanstalkd"); path != "" {
		for _, mode := range []string{"-f0", "-f50"} {
			add("beanstalkd "+mode, path, newBeanstalkd(), command{arguments: func(ports [portCount]string, directory string) []string {
				return []string{"-l", "127.0.0.1", "-p", ports[0], "-b", directory, mode}
			}})
		}
	}
	if treadle != "" {
		list = append(list, contender{name: rawDisk, variant: rawDisk})
	}
	return list
}

// syncDisk appends to a new file, with a sync after each append, and times the two together.
func (s *sample) syncDisk(ctx context.Context, place string, appends int) error {
	directory, err := os.MkdirTemp(place, "treadle-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(directory) }()
	file, err := os.OpenFile(filepath.Join(directory, "appended"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // every append was synced, or has failed already
	record, took := make([]byte, appendLen), newLatencies()
	start := now()
	end := start
	for range appends {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		begin := now()
		if _, err := file.Write(record); err != nil {
			return err
		}
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return fmt.Errorf("fdatasync: %w", err)
		}
		end = now()
		took.record(end - begin)
	}
	s.Jobs, s.JobsPerSecond, s.Submit = appends, float64(appends)*1e9/float64(end-start), took.quantiles()
	return nil
}

// durablePairs are compared in the durable rows.
var durablePairs = []struct{ our, other string }{
	{"treadle always", "redis always"},
	{"treadle always", "beanstalkd -f0"},
	{"treadle interval", "treadle"},
}

// durableRatios compares the pairs, and one submit at a time with the disk's own time and a submit in memory.
func (r *report) durableRatios() [][]string {
	table := [][]string{{"row", "ratio", "jobs/s", "CPU", "submit p50", "p99", "p99.9"}}
	for _, row := range durableRows() {
		of := map[string]sample{}
		for _, m := range r.Medians {
			if m.Section == durableSection && m.Row == row.name {
				of[m.Server] = m
			}
		}
		for _, pair := range durablePairs {
			our, other := of[pair.our], of[pair.other]
			if our.Row == "" || other.Row == "" {
				continue
			}
			table = append(table, []string{
				row.name, pair.our + " / " + pair.other,
				ratio(our.JobsPerSecond, other.JobsPerSecond), ratio(our.ServerCPU, other.ServerCPU),
				ratio(our.Submit.P50, other.Submit.P50), ratio(our.Submit.P99, other.Submit.P99),
				ratio(our.Submit.P999, other.Submit.P999),
			})
		}
		our, disk, reference := of["treadle always"], of[rawDisk], of["treadle"]
		if our.Row != "" && disk.Row != "" && reference.Row != "" {
			table = append(table, []string{
				row.name, "treadle always / (disk + treadle)", "-", "-",
				ratio(our.Submit.P50, disk.Submit.P50+reference.Submit.P50), "-", "-",
			})
		}
	}
	return table
}

// diskPlace is where the servers of the durable rows keep their directories: with all other temporary files, unless
// that is another file system than the working directory's, which may be no disk at all.
func diskPlace() string {
	var temporary, working syscall.Stat_t
	if syscall.Stat(os.TempDir(), &temporary) == nil && syscall.Stat(".", &working) == nil && temporary.Dev == working.Dev {
		return os.TempDir()
	}
	directory, err := os.Getwd()
	if err != nil {
		return os.TempDir()
	}
	return directory
}

// fileSystem is the type of the file system that holds a directory.
func fileSystem(directory string) string {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "unknown"
	}
	if path, err := filepath.EvalSymlinks(directory); err == nil {
		directory = path
	}
	return mountedType(string(mounts), directory)
}

// mountedType finds the directory in a table of mounts: the longest mount point above it counts, of equal ones the last.
func mountedType(mounts, directory string) string {
	found, length := "unknown", 0
	for line := range strings.Lines(mounts) {
		words := strings.Fields(line)
		if len(words) < 3 {
			continue
		}
		point := strings.TrimSuffix(words[1], "/")
		if strings.HasPrefix(directory+"/", point+"/") && len(words[1]) >= length {
			found, length = words[2], len(words[1])
		}
	}
	return found
}
