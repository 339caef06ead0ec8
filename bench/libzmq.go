package main

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

// reqRow is named by reqTarget, too.
const reqRow = "dwork 8 REQ"

// hasLibzmq says whether such a worker can be built: with gcc and libzmq3-dev.
var hasLibzmq = sync.OnceValue(func() bool {
	cmd := exec.Command("gcc", "-fsyntax-only", "-x", "c", "-")
	cmd.Stdin = strings.NewReader("#include <zmq.h>\n")
	return cmd.Run() == nil
})

// buildREQ builds the worker in a directory.
func buildREQ(ctx context.Context, directory string) (program string, err error) {
	program = filepath.Join(directory, "req")
	cmd := exec.CommandContext(ctx, "gcc", "-O2", "-o", program, "-x", "c", "-", "-lzmq")
	cmd.Stdin = bytes.NewReader(reqSource)
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build libzmq/req.c: %w: %s", err, said)
	}
	return program, nil
}

// workREQ has processes take and complete all tasks. Each ends with an error when it is told that a task is not its own,
// so that those of all of them are done once.
func (h *hubTrial) workREQ(ctx context.Context, program string, workers int) error {
	var all sync.WaitGroup
	failed := make([]error, workers)
	for i := range workers {
		all.Go(func() {
			out, err := exec.CommandContext(ctx, program, "tcp://"+h.address, fmt.Sprintf("worker-%d", i)).Output()
			var ended *exec.ExitError
			if errors.As(err, &ended) {
				err = fmt.Errorf("%w: %s", err, ended.Stderr)
			}
			n, bad := strconv.Atoi(strings.TrimSpace(string(out)))
			if err == nil {
				err = bad
			}
			h.done.Add(int64(n))
			failed[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if n := int(h.done.Load()); n != len(h.arrived) {
		return fmt.Errorf("%d tasks of %d are done", n, len(h.arrived))
	}
	return nil
}

// measureREQ builds the workers before the clock starts.
func (h *hubTrial) measureREQ(ctx context.Context, workers int) (phase func() error, clean func(), err error) {
	directory, err := os.MkdirTemp("", "req")
	if err != nil {
		return nil, nil, err
	}
	clean = func() { _ = os.RemoveAll(directory) } // a temporary one
	program, err := buildREQ(ctx, directory)
	if err != nil {
		clean()
		return nil, nil, err
	}
	return func() error { return h.workREQ(ctx, program, workers) }, clean, nil
}
