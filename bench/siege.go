package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// guestPause is how long the client that behaves rests between two requests, so that what it waits for is the attack
	// and not itself. A thousand requests take two seconds or more.
	guestPause = 2 * time.Millisecond
	// attackPause is how long a peer rests between two connections: it may be quick, but not so quick that it leaves no
	// processor to the others.
	attackPause = time.Millisecond
	// attackTarget is what nobody may have to wait because of somebody else, in microseconds.
	attackTarget = 100_000
	// fewFiles is how many descriptors more than it has a server may have in the rows that leave it few.
	fewFiles = 32
	// spareFiles is how many descriptors the attackers, and the server by its own rule, keep for other things.
	spareFiles = 200
)

// attackRows are one for each attack.
func attackRows() []row {
	var rows []row
	for _, v := range []struct {
		victim  string
		attacks []attack
	}{{"dwork", dworkAttacks}, {"periodic", periodicAttacks}, {"gloom", gloomAttacks}, {"kts46", xmlAttacks}, {"kts46-json", jsonAttacks}} {
		for _, a := range v.attacks {
			rows = append(rows, row{name: v.victim + ", " + a.name, section: attackSection, once: true, fixed: 1000, attack: a, victim: v.victim})
		}
	}
	return rows
}

// underAttack measures how long one client waits for its answers while others attack from a process of their own.
func (s *sample) underAttack(ctx context.Context, r row, running *server, requests int) error {
	ctx, cancel := context.WithTimeout(ctx, trialLimit)
	defer cancel()
	g, err := invite(ctx, r.victim, running)
	if err != nil {
		return err
	}
	defer g.leave()
	if r.attack.scarce {
		if err := leaveFew(running.pid); err != nil {
			return err
		}
	}
	begun := now()
	end, err := s.startAttackers(ctx, r, running.doors(r.victim))
	if err != nil {
		return err
	}
	waited := newLatencies()
	start := now()
	for range requests {
		began := now()
		err := g.ask()
		waited.record(now() - began)
		if err != nil {
			return errors.Join(fmt.Errorf("the well-behaved client: %w", err), ignore(end()))
		}
		time.Sleep(guestPause)
	}
	s.Jobs, s.JobsPerSecond, s.Submit = requests, float64(requests)*1e9/float64(now()-start), waited.quantiles()
	made, err := end()
	s.Attacks = float64(made) * 1e9 / float64(now()-begun)
	return err
}

func ignore(_ int64, err error) error { return err }

// leaveFew takes all but a few of its free descriptors from a server. It was told of more when it started, so it is not
// spared the errors.
func leaveFew(pid int) error {
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return err
	}
	few := uint64(len(files) + fewFiles)
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: few, Max: few}, nil); err != nil {
		return fmt.Errorf("cannot limit the server's descriptors: %w", err)
	}
	return nil
}

// startAttackers runs this program as the attackers of a row and returns when all of them have begun, or as many as the
// server lets. The function that it returns ends them and says how many connections they made.
func (s *sample) startAttackers(ctx context.Context, r row, doors []string) (end func() (int64, error), err error) {
	if r.attack.do == nil {
		return func() (int64, error) { return 0, nil }, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.CommandContext(ctx, self, "-attack", r.name, "-at", strings.Join(doors, ","))
	child.Stderr = os.Stderr
	child.Env = append(os.Environ(), "GOMAXPROCS=1") // as if from elsewhere: one processor stays with the server and its client
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	lifeline, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the attackers: %w", err)
	}
	said := bufio.NewReader(out)
	end = sync.OnceValues(func() (made int64, err error) {
		_ = lifeline.Close()
		_, err = fmt.Fscan(said, &made)
		return made, errors.Join(err, child.Wait())
	})
	if _, err := fmt.Fscanln(said, &s.Attackers); err != nil {
		return nil, errors.Join(fmt.Errorf("the attackers have not begun: %w", err), ignore(end()))
	}
	return end, nil
}

// besiege is the program of the attackers: it attacks the doors, a list with commas, until in ends. It says how many they
// are when they have begun, and in the end how many connections they made.
func besiege(ctx context.Context, name, doors string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	i := slices.IndexFunc(attackRows(), func(r row) bool { return r.name == name && r.attack.do != nil })
	if i < 0 {
		return usageError{fmt.Errorf("-attack: no row of attackers is named %q", name)}
	}
	a, addresses := attackRows()[i].attack, strings.Split(doors, ",")
	if a.first != nil {
		conn, err := net.DialTimeout("tcp", addresses[0], dialLimit)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := a.first(conn); err != nil {
			return fmt.Errorf("cannot prepare: %w", err)
		}
	}
	count, err := a.connections()
	if err != nil {
		return err
	}
	var made atomic.Int64
	var begun, all sync.WaitGroup
	for n := range count {
		begun.Add(1)
		all.Go(func() { keepAttacking(ctx, addresses[n%len(addresses)], a, &made, sync.OnceFunc(begun.Done)) })
	}
	begun.Wait()
	fmt.Fprintln(out, count)
	_, err = io.Copy(io.Discard, in)
	cancel()
	all.Wait()
	fmt.Fprintln(out, made.Load())
	return err
}

// connections is how many attack at a time: as many as this process may have, where that is fewer.
func (a attack) connections() (int, error) {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return 0, err
	}
	count := a.count
	if count == 0 {
		count = attackers
	}
	return min(count, int(min(files.Cur, 1<<20))-spareFiles), nil
}

// keepAttacking attacks over one connection after the other until ctx ends, and calls begun when it has, or could not.
func keepAttacking(ctx context.Context, address string, a attack, made *atomic.Int64, begun func()) {
	defer begun()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		conn, err := net.DialTimeout("tcp", address, dialLimit)
		if err == nil {
			made.Add(1)
		}
		begun()
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			if err = a.do(conn); err == nil {
				_, _ = io.Copy(io.Discard, conn) // until the server has enough of it
			}
			stop()
			_ = conn.Close()
		}
		pause.Reset(attackPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
	}
}

// attackVerdict says which rows meet the target.
func (r *report) attackVerdict() string {
	count, over := 0, []string(nil)
	for _, m := range r.Medians {
		if m.Section != attackSection {
			continue
		}
		if count++; m.Submit.Max >= attackTarget {
			over = append(over, fmt.Sprintf("%s (%s ms)", m.Row, number(m.Submit.Max/1000)))
		}
	}
	text := fmt.Sprintf("target      nobody waits for 100 ms or more: met by %d of %d rows", count-len(over), count)
	if over != nil {
		text += "; not by " + strings.Join(over, ", ")
	}
	return text + "\n"
}
