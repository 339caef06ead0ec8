package main

import (
	"bytes"
	"debug/elf"
	enc "encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wallClock is the clock on the wall as one process sees it, which can be set; the machine's
// stays as it is. A program of Go reads the time by calling clock_gettime of the vDSO, a
// library of the kernel's that is mapped into every process. In this process alone it is
// replaced by code that asks the kernel and, for CLOCK_REALTIME, adds an offset.
type wallClock struct {
	t      *testing.T
	memory *os.File // of the process
	cell   int64    // where the offset is, in seconds
	offset time.Duration
}

// offsetClock is int clock_gettime(int clock, struct timespec *time) with an offset.
const offsetClock = "" +
	"\xb8\xe4\x00\x00\x00" + // mov $228, %eax
	"\x0f\x05" + //             syscall
	"\x85\xff" + //             test %edi, %edi
	"\x75\x0a" + //             jne end
	"\x48\x8b\x15\x06\x00\x00\x00" + // mov cell, %rdx
	"\x48\x01\x16" + //         add %rdx, (%rsi)
	"\xc3\x90\x90" + //         end: ret
	"\x00\x00\x00\x00\x00\x00\x00\x00" // cell

// cellAt is where the cell begins in it.
const cellAt = len(offsetClock) - 8

// startWithClock is start for a server with an attack's memory limit and a wall clock that can be set, and is away from
// the machine's from its first instruction on.
func startWithClock(t *testing.T, offset time.Duration, args ...string) (*process, *wallClock) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the code that replaces a process's clock is for amd64")
	}
	clock := &wallClock{t: t}
	server := exec.Command(binary, args...)
	server.Env = append(os.Environ(), "GOMEMLIMIT="+strconv.Itoa(hostileLimit))
	p := startBy(t, false, server, func(cmd *exec.Cmd) error {
		runtime.LockOSThread() // who traces is a thread
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true} // it stops when it is loaded
		err := cmd.Start()
		if err == nil {
			if _, err := syscall.Wait4(cmd.Process.Pid, nil, 0, nil); err != nil {
				return err
			}
			err = errors.Join(clock.replace(cmd.Process.Pid), syscall.PtraceDetach(cmd.Process.Pid))
		}
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrPermission) { // some containers and kernels
			if cmd.Process != nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait() // it was killed
			}
			t.Skipf("it needs a system that lets a process's clock be replaced: %v", err)
		}
		return err
	})
	t.Cleanup(func() { clock.memory.Close() })
	clock.step(offset)
	return p, clock
}

// replace puts the code in the place of a process's clock_gettime. Nothing runs there yet.
func (w *wallClock) replace(pid int) error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	var from, to int64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			if _, err := fmt.Sscanf(line, "%x-%x ", &from, &to); err != nil {
				return err
			}
		}
	}
	if w.memory, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0); err != nil {
		return err
	}
	image := make([]byte, to-from)
	if _, err := w.memory.ReadAt(image, from); err != nil {
		return fmt.Errorf("cannot read the vDSO: %w", err)
	}
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("the vDSO is not understood: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("the vDSO is not understood: %w", err)
	}
	for _, s := range symbols {
		// Where the code begins at eight bytes, so does the cell, which is then written at once.
		if at := from + int64(s.Value); s.Name == "__vdso_clock_gettime" && s.Size >= uint64(len(offsetClock)) && at%8 == 0 {
			w.cell = at + int64(cellAt)
			_, err := w.memory.WriteAt([]byte(offsetClock), at)
			return err
		}
	}
	return fmt.Errorf("%w: the vDSO has no clock_gettime that is large enough", errors.ErrUnsupported)
}

// step sets the clock forward, or back. The clock that never steps goes on.
func (w *wallClock) step(by time.Duration) {
	w.t.Helper()
	w.offset += by
	cell := enc.LittleEndian.AppendUint64(nil, uint64(w.offset/time.Second))
	if _, err := w.memory.WriteAt(cell, w.cell); err != nil {
		w.t.Fatalf("cannot set the clock: %v", err)
	}
}

// now is the time that the process sees, in Unix seconds.
func (w *wallClock) now() int64 { return time.Now().Add(w.offset).Unix() }
