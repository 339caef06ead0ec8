package load

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// reqSource is a worker as the original's kworker, one REQ of libzmq a process, in C.
//
//go:embed libzmq/req.c
var reqSource []byte

// HasLibzmq reports whether gcc and libzmq3-dev are there to build such a worker.
var HasLibzmq = sync.OnceValue(func() bool {
	cmd := exec.Command("gcc", "-fsyntax-only", "-x", "c", "-")
	cmd.Stdin = strings.NewReader("#include <zmq.h>\n")
	return cmd.Run() == nil
})

// BuildREQ builds the worker of WorkREQ; clean removes it.
func BuildREQ(ctx context.Context) (program string, clean func(), err error) {
	directory, err := os.MkdirTemp("", "req")
	if err != nil {
		return "", nil, err
	}
	clean = func() { _ = os.RemoveAll(directory) } // a temporary one
	program = filepath.Join(directory, "req")
	cmd := exec.CommandContext(ctx, "gcc", "-O2", "-o", program, "-x", "c", "-", "-lzmq")
	cmd.Stdin = bytes.NewReader(reqSource)
	if said, err := cmd.CombinedOutput(); err != nil {
		clean()
		return "", nil, fmt.Errorf("cannot build libzmq/req.c: %w: %s", err, said)
	}
	return program, clean, nil
}

// WorkREQ has processes take and complete all tasks. A process fails when the hub says that a task is not its own, so
// each task is done once.
func (h *DworkLoad) WorkREQ(ctx context.Context, program string, workers int) error {
	h.latency = NewLatencies()
	err := Parallel(workers, func(i int) error {
		out, err := exec.CommandContext(ctx, program, "tcp://"+h.address, workerName(i)).Output()
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			return fmt.Errorf("%w: %s", err, ended.Stderr)
		}
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		h.done.Add(int64(n))
		return err
	})
	if n := int(h.done.Load()); err == nil && n != h.tasks {
		err = fmt.Errorf("%d tasks of %d are done", n, h.tasks)
	}
	return err
}
