package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// memoryPercent is how much of the cgroup's memory Go may use before it collects garbage as often as it takes. The
	// rest is for what Go does not count: the kernel's socket buffers and the journal's pages.
	memoryPercent = 90
	// unlimited is from where on a cgroup's limit means none: version 1 says so with a number near the largest.
	unlimited = math.MaxInt64 / 2
)

// limitMemory sets Go's soft memory limit from that of the cgroup, unless GOMEMLIMIT is set.
func limitMemory(root fs.FS) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit := cgroupMemory(root); limit > 0 {
		debug.SetMemoryLimit(limit / 100 * memoryPercent)
	}
}

// cgroupMemory returns the least memory limit of this process's cgroups and their parents in bytes; 0: no limit. The
// system may have version 2 and version 1. Inside a container the path can be one of the host's, which does not exist
// here; the root of the mounted tree is then the container's own cgroup.
func cgroupMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(unlimited)
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		top, file := "sys/fs/cgroup", "memory.max"
		if controllers != "" {
			top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if !strings.Contains(","+controllers+",", ",memory,") {
				continue
			}
		}
		for at := path.Join("/", group); ; at = path.Dir(at) {
			if limit := readLimit(root, path.Join(top, at, file)); limit > 0 {
				least = min(least, limit)
			}
			if at == "/" {
				break
			}
		}
	}
	if least == unlimited {
		return 0
	}
	return least
}

// readLimit returns the number in a file; 0: the file does not exist or has no number.
func readLimit(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return limit
}
