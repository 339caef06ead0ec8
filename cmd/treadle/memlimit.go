package main

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"treadle/loop"
	"treadle/loop/setting"
)

// How the memory that the container or the machine has is divided. Up to --max-memory, 70 % by default, the server may
// hold jobs and everything else that is live. From there to Go's soft limit is room for garbage and for what comes
// between two looks at the memory: with less of it, Go would collect garbage all the time. The rest is for what Go does
// not count: the kernel's socket buffers and the journal's pages.
const (
	softPercent = 90 // Go's soft limit
	maxPercent  = 80 // the largest --max-memory
	// --max-memory is at most 7/9 of the soft limit, as 70 % are of 90 %, also where no limit is known from outside.
	liveParts, softParts = 7, 9
	garbageLeast         = 64 << 20 // what connections and the journal turn over
	minMemory            = 64 << 20 // the least --max-memory: an idle server holds some 20 MiB, and each shard keeps chunks
	// unlimited is from where on a cgroup's limit means none: version 1 says so with a number near the largest.
	unlimited = math.MaxInt64 / 2
)

// memorySize is the value of --max-memory: bytes, or a percentage of what there is. The zero value is off.
type memorySize struct {
	bytes   int64
	percent int64
}

// UnmarshalText reads 2GiB, 70% or off.
func (m *memorySize) UnmarshalText(text []byte) error {
	*m = memorySize{}
	word := string(text)
	if word == "off" || word == "0" {
		return nil
	}
	number, part := strings.CutSuffix(word, "%")
	if !part {
		n, err := loop.ParseSize(word)
		if err == nil && n < minMemory {
			err = fmt.Errorf("%s is less than the server needs for itself: at least 64MiB, or off", word)
		}
		m.bytes = n
		return err
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > maxPercent {
		return fmt.Errorf("%s is not from 1 to %d percent: the rest is for garbage and the kernel's buffers", word, maxPercent)
	}
	m.percent = n
	return nil
}

// limit returns how many bytes the server may hold, 0 for any number, and Go's soft memory limit, which is above it.
func (m memorySize) limit(root fs.FS) (most, soft int64, err error) {
	contained := cgroupMemory(root)
	total := least(contained, machineMemory(root))
	most = max(m.bytes, total/100*m.percent)
	if top := total / 100 * maxPercent; total > 0 && m.bytes > top {
		return 0, 0, &loop.OptionError{Setting: "max-memory", Err: fmt.Errorf("it is more than %d percent of the memory that the container or the machine has: the rest is for garbage and the kernel's buffers", maxPercent)}
	}
	soft = math.MaxInt64
	switch {
	case most > 0:
		soft = max(most/liveParts*softParts, most+garbageLeast)
		if total > 0 {
			soft = min(soft, total/100*softPercent)
		}
	case contained > 0:
		soft = contained / 100 * softPercent
	}
	return most, soft, nil
}

// setSoftLimit sets Go's soft memory limit, unless GOMEMLIMIT says where that is.
func setSoftLimit(soft int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(soft)
	}
}

// String returns the value as it is written.
func (m memorySize) String() string {
	switch {
	case m.percent > 0:
		return fmt.Sprintf("%d%%", m.percent)
	case m.bytes > 0:
		return setting.Bytes(m.bytes)
	}
	return "off"
}

// least returns the lesser of two limits; 0 is no limit.
func least(a, b int64) int64 {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// machineMemory returns the bytes of memory of the machine, 0 when the system does not say so.
func machineMemory(root fs.FS) int64 {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil || kilobytes < 0 || kilobytes > unlimited>>10 {
				return 0
			}
			return kilobytes << 10
		}
	}
	return 0
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
