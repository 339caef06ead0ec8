package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"treadle/bench/load"
	"treadle/bench/peer"
)

// meter is the processor time and the memory in bytes of a server, with the processes that it has started, and the
// processor time of this process, which generates the load.
type meter struct {
	server, load time.Duration
	resident     int64
}

// readMeter reads the meter of a server.
func readMeter(server int) (m meter, err error) {
	for _, pid := range append(children(server), server) {
		spent, errSpent := peer.CPUTime(pid)
		resident, errResident := peer.ResidentBytes(pid)
		if err := errors.Join(errSpent, errResident); err != nil {
			return m, fmt.Errorf("cannot read what the server uses: %w", err)
		}
		m.server, m.resident = m.server+spent, m.resident+resident
	}
	var usage unix.Rusage
	err = unix.Getrusage(unix.RUSAGE_SELF, &usage)
	m.load = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	return m, err
}

// since returns the difference of two readings.
func (m meter) since(before meter) meter {
	return meter{m.server - before.server, m.load - before.load, m.resident - before.resident}
}

// metered runs a phase and returns the difference that it makes.
func metered(pid int, phase func() error) (meter, error) {
	before, err := readMeter(pid)
	if err == nil {
		err = phase()
	}
	if err != nil {
		return meter{}, err
	}
	after, err := readMeter(pid)
	return after.since(before), err
}

// elapsed returns a phase that returns the nanoseconds that it has taken.
func elapsed(phase func() error) func() (int64, error) {
	return func() (int64, error) {
		start := load.Now()
		err := phase()
		return load.Now() - start, err
	}
}

// timed measures one phase, which returns its time.
func (s *sample) timed(pid, jobs int, phase func() (int64, error)) error {
	var took int64
	spent, err := metered(pid, func() (err error) {
		took, err = phase()
		return err
	})
	if err == nil {
		s.setSpeed(jobs, took, spent)
	}
	return err
}

// children lists the processes that a process has started and that have not ended.
func children(parent int) (pids []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread) // it may have ended
		for child := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(child); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
