package main

import (
	"math"
	"runtime/debug"
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

// TestLimitMemory sees to it that the cgroup's limit is taken unless the environment names another.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	limited := cgroups("proc/self/cgroup", "0::/", "sys/fs/cgroup/memory.max", "1000000000000")
	f := func(environment string, want int64) {
		t.Helper()
		t.Setenv("GOMEMLIMIT", environment)
		debug.SetMemoryLimit(math.MaxInt64)
		limitMemory(limited)
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("GOMEMLIMIT=%s: got %d, want %d", environment, got, want)
		}
	}
	f("", 900000000000)
	f("off", math.MaxInt64)
	t.Setenv("GOMEMLIMIT", "")
	debug.SetMemoryLimit(math.MaxInt64)
	if limitMemory(cgroups()); debug.SetMemoryLimit(-1) != math.MaxInt64 {
		t.Errorf("without a cgroup: got %d", debug.SetMemoryLimit(-1))
	}
}
