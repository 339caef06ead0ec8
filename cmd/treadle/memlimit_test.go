package main

import (
	"math"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// cgroups is a file system with these files, each a name and its text.
func cgroups(files ...string) fstest.MapFS {
	made := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		made[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return made
}

func TestCgroupMemory(t *testing.T) {
	t.Parallel()
	f := func(want int64, files ...string) {
		t.Helper()
		if got := cgroupMemory(cgroups(files...)); got != want {
			t.Errorf("%q: got %d, want %d", files, got, want)
		}
	}
	const self = "proc/self/cgroup"
	f(0)
	f(0, self, "0::/\n")
	f(1000, self, "0::/\n", "sys/fs/cgroup/memory.max", "1000\n")
	f(0, self, "0::/\n", "sys/fs/cgroup/memory.max", "max\n")
	// The group itself, its parent, and a sibling.
	f(1000, self, "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "1000\n", "sys/fs/cgroup/a/memory.max", "3000\n", "sys/fs/cgroup/c/memory.max", "10\n")
	f(3000, self, "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max", "max\n", "sys/fs/cgroup/a/memory.max", "3000\n")
	// Version 1, its number for none, and a path of the host in a container.
	f(2000, self, "5:cpu:/x\n4:memory:/y\n", "sys/fs/cgroup/memory/y/memory.limit_in_bytes", "2000\n")
	f(0, self, "4:memory:/y\n", "sys/fs/cgroup/memory/y/memory.limit_in_bytes", "9223372036854771712\n")
	f(2000, self, "4:cpu,memory:/docker/123\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n")
	f(0, self, "5:cpu:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n")
	// Both versions.
	f(2000, self, "4:memory:/y\n0::/\n", "sys/fs/cgroup/memory/y/memory.limit_in_bytes", "2000\n", "sys/fs/cgroup/memory.max", "4000\n")
	f(0, self, "nonsense\n0::/\n", "sys/fs/cgroup/memory.max", "much\n")
}

// TestMemorySize: the limit is a part of what the container has, else of the machine, and Go's soft limit is above it.
// GOMEMLIMIT stays as it is.
func TestMemorySize(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	const gb = 1_000_000_000
	machine := []string{"proc/meminfo", "MemFree:  1 kB\nMemTotal:       9765625 kB\n"} // 10 GB
	v2 := append([]string{"proc/self/cgroup", "0::/", "sys/fs/cgroup/memory.max", "1000000000"}, machine...)
	v1 := append([]string{"proc/self/cgroup", "4:memory:/y\n", "sys/fs/cgroup/memory/y/memory.limit_in_bytes", "2000000000\n"}, machine...)
	f := func(ask string, environment int64, files []string, most, soft int64) {
		t.Helper()
		t.Setenv("GOMEMLIMIT", "")
		debug.SetMemoryLimit(math.MaxInt64)
		if environment > 0 {
			t.Setenv("GOMEMLIMIT", strconv.FormatInt(environment, 10))
			debug.SetMemoryLimit(environment)
		}
		var m memorySize
		if err := m.UnmarshalText([]byte(ask)); err != nil {
			t.Fatal(err)
		}
		got, want, err := m.limit(cgroups(files...))
		setSoftLimit(want)
		if set := debug.SetMemoryLimit(-1); err != nil || got != most || set != soft {
			t.Errorf("%s with %q: %d, soft %d, %v; want %d, soft %d", ask, files, got, set, err, most, soft)
		}
	}
	f("70%", 0, machine, 7*gb, 9*gb)
	f("70%", 0, v1, 1.4*gb, 1.8*gb)
	f("70%", 0, v2, 0.7*gb, 0.9*gb)
	f("80%", 0, v2, 0.8*gb, 0.9*gb)
	f("70%", 0, nil, 0, math.MaxInt64)
	f("70%", 0, []string{"proc/meminfo", "MemTotal: much kB\n"}, 0, math.MaxInt64)
	f("700000000", 0, nil, 0.7*gb, 0.9*gb)
	f("64MiB", 0, v2, 64<<20, 128<<20)
	f("off", 0, machine, 0, math.MaxInt64)
	f("0", 0, v2, 0, 0.9*gb)
	f("70%", 0.45*gb, v2, 0.7*gb, 0.45*gb)
	f("70%", 5*gb, v2, 0.7*gb, 5*gb)
	f("70%", math.MaxInt64, v2, 0.7*gb, math.MaxInt64)
	f("off", 5*gb, v2, 0, 5*gb)
}

// TestMemorySizeRefused: values that cannot work are refused with their reason.
func TestMemorySizeRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"81%": "not from 1 to 80 percent", "0%": "not from 1 to", "-5%": "not from 1 to", "x%": "not from 1 to",
		"63MiB": "at least 64MiB", "much": "is not a size", "-1": "is not a size",
	} {
		if err := new(memorySize).UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	m := memorySize{bytes: 801 << 20}
	if _, _, err := m.limit(cgroups("proc/meminfo", "MemTotal: 1024000 kB\n")); err == nil || !strings.Contains(err.Error(), "more than 80 percent") {
		t.Errorf("801 of 1000 MiB: %v", err)
	}
}
