package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The names of the servers that are several processes.
const (
	Cluster = "treadle cluster" // three nodes on this machine
	Replica = "redis replica"   // a redis and its replica, which a push waits for
)

// and stands between the commands of a group.
const and = "--and"

// group returns the command that runs several commands until it is told to end: this program itself. What they use is
// counted together, as they are its children.
func group(place string, commands ...string) Command {
	self, _ := os.Executable() // no path to this program is told at the start of the group
	return Command{Path: self, place: place, Arguments: append([]string{"-together"}, strings.Fields(strings.Join(commands, " "+and+" "))...)}
}

// RunTogether runs the commands, which and separates, until ctx ends or one of them does.
func RunTogether(ctx context.Context, words []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	ended := make(chan error, len(words))
	for len(words) > 0 {
		end := slices.Index(append(words, and), and)
		child := exec.CommandContext(ctx, words[0], words[1:end]...)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
		child.WaitDelay = stopLimit / 2
		running.Go(func() {
			if err := child.Run(); ctx.Err() == nil {
				ended <- fmt.Errorf("%s has ended: %v", filepath.Base(child.Path), err)
			}
			cancel()
		})
		words = words[min(end+1, len(words)):]
	}
	<-ctx.Done()
	running.Wait()
	select {
	case err := <-ended:
		return err
	default:
		return nil
	}
}

// cluster returns three nodes of a cluster, each of which listens for Periodic alone. The load goes to the leader.
func cluster(path, place string) Contender {
	var commands []string
	for i, id := range []string{"a", "b", "c"} {
		commands = append(commands, fmt.Sprintf("%s serve --cluster bench --node %s --data {directory}/%s --run-dir {directory}/%s --only periodic --http off "+
			"--periodic tcp://127.0.0.1:{port%d} --peers a=127.0.0.1:{port3},b=127.0.0.1:{port4},c=127.0.0.1:{port5}", path, id, id, id, i))
	}
	c := group(place, commands...)
	c.prepare = func(ctx context.Context, s *Server) error {
		return eventually(ctx, func() error {
			out, err := exec.CommandContext(ctx, path, "cluster", "transfer", "a", "--json", "--data", filepath.Join(s.directory, "a")).CombinedOutput()
			if first, _, _ := strings.Cut(string(out), "\n"); err != nil || !strings.Contains(first, `"serves":true`) {
				return fmt.Errorf("node a does not serve: %v: %s", err, out)
			}
			return nil
		})
	}
	return Contender{Name: Cluster, Path: path, Protocol: NewPeriodic(PeriodicOptions{}), Start: c.Start}
}

// replicated returns a redis whose replica has each push before it is answered, and both have synced it.
func replicated(place string) Contender {
	const redis = `redis-server --bind 127.0.0.1 --save "" --appendonly yes --appendfsync always `
	p := Contender{Name: Replica, Protocol: newRedisReplica()}
	if p.Path = findProgram("redis-server"); p.Path == "" {
		p.Missing = "redis-server"
		return p
	}
	c := group(place, redis+"--port {port0} --dir {directory}", redis+"--port {port1} --dir {directory} --appenddirname replica --replicaof 127.0.0.1 {port0}")
	c.prepare = func(ctx context.Context, s *Server) error {
		return eventually(ctx, func() error { return redisHasReplica(s.Address) })
	}
	p.Version, p.Start = version(p.Path, "--version"), c.Start
	return p
}

// eventually calls f until it succeeds, for startLimit at most.
func eventually(ctx context.Context, f func() error) error {
	for deadline := time.Now().Add(startLimit); ; {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
