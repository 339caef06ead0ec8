package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ownDescriptors is how many descriptors the load generator and the server keep for other things than the
	// connections of a row.
	ownDescriptors = 300
	// delayLeast is how far in the future the earliest delayed job is due, delaySpread how many seconds there are for
	// them all to be due in.
	delayLeast  = 24 * 3600
	delaySpread = 30 * 24 * 3600
	// deepRow is the one with the longest queues.
	deepRow = "1M ready, 10M delayed"
	// delayedFirst is the id of the first delayed job, above those of all jobs that arrive.
	delayedFirst = 1 << 40
	// restLimit is how long a server may take to give back the memory of the jobs that are done, and restLeast what is
	// little enough to stop looking.
	restLimit = time.Minute
	restLeast = 40.0
	restTick  = 500 * time.Millisecond
)

// aloneRows load Treadle in ways in which it is compared with itself: what a long queue, many queues and many
// connections cost.
func aloneRows() []row {
	treadle := map[string]int{"treadle": 1500e3}
	behind := func(name string, ready, delayed int, against string) row {
		return row{name: name, section: aloneSection, once: true, guess: treadle, against: against,
			load: load{connections: 8, depth: pipeline, ready: ready, delayed: delayed}}
	}
	collecting := behind("10M ready, collecting", 10e6, 0, "10M ready")
	collecting.load.collects = true
	many := func(name string, total, run int, against string) row {
		return row{name: name, section: aloneSection, guess: map[string]int{"treadle": 1000e3}, against: against,
			load: load{connections: 8, workers: 1000 / functionsServed, depth: pipeline, functions: total, functionRun: run}}
	}
	active := func(name string, idlers int, against string) row {
		return row{name: name, section: aloneSection, guess: map[string]int{"treadle": 80e3}, against: against,
			load: load{connections: 500, depth: 1, idlers: idlers}}
	}
	opened := func(connections int, against string) row {
		return row{name: fmt.Sprintf("connect %d", connections), section: aloneSection, kind: idle, fixed: connections, exact: true, against: against}
	}
	return []row{
		{name: "frames echoed", section: aloneSection, variants: []string{frameEcho}, guess: map[string]int{frameEcho: 6e6},
			load: load{connections: 8, depth: pipeline}},
		many("1 function", 1, 1, ""),
		many("1000 functions", 1000, 1, "1 function"),
		many("1000 functions, runs of 64", 1000, 64, "1 function"),
		behind(deepRow, 1e6, 10e6, "pipe 8"),
		behind("10k ready", 10e3, 0, ""),
		behind("100k ready", 100e3, 0, "10k ready"),
		behind("1M ready", 1e6, 0, "10k ready"),
		behind("10M ready", 10e6, 0, "10k ready"),
		collecting,
		active("1000 active", 0, ""),
		active("1000 of 10000 active", 9000, "1000 active"),
		opened(100, ""),
		opened(1000, "connect 100"),
		opened(10000, "connect 100"),
	}
}

// scaled is the row with as many jobs and connections around those that it times as the scale and the limit of open
// files allow.
func (r row) scaled(scale float64) row {
	for _, n := range []*int{&r.load.ready, &r.load.delayed, &r.load.idlers} {
		*n = int(float64(*n) * scale)
	}
	r.load.idlers = min(r.load.idlers, descriptors()-2*r.load.connections)
	return r
}

// descriptors is how many connections the load generator, or the server, may have.
func descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return max(0, int(min(limit.Max, 1<<20))-ownDescriptors)
}

// delayed is the Periodic protocol with jobs that are due in the far future, in no order.
type delayed struct {
	*periodic
	from int64 // Unix time
}

func (d *delayed) appendSubmit(dst []byte, slot uint32, id uint64, sent int64) []byte {
	dst = d.periodic.appendSubmit(dst, slot, id, sent)
	due := d.from + int64(id*2654435761%delaySpread)
	at := len(dst) - 1 - 8 // before the version byte
	for i := range 8 {
		dst[at+i] = byte(due >> (56 - 8*i))
	}
	return dst
}

// untimed is the Periodic protocol with jobs that carry no time of submission: how long they wait is not of interest.
type untimed struct{ *periodic }

func (u untimed) appendSubmit(dst []byte, slot uint32, id uint64, _ int64) []byte {
	return u.periodic.appendSubmit(dst, slot, id, 0)
}

// fill has the server hold the jobs that stand in it while others flow.
func fill(ctx context.Context, running *server, l load) error {
	soon := time.Now().Unix() + delayLeast
	for _, part := range []struct {
		protocol protocol
		jobs     int
		first    uint64
	}{
		{&delayed{newPeriodic(), soon}, l.delayed, delayedFirst},
		{untimed{newPeriodic()}, l.ready, 0},
	} {
		if part.jobs == 0 {
			continue
		}
		speak := side{protocol: part.protocol, network: running.network, address: running.address}
		t := newTrial(ctx, sides{speak, speak, speak}, load{connections: l.connections, depth: l.depth, jobs: part.jobs})
		t.feed.first = part.first
		err := t.hireProducers()
		if err == nil {
			err = t.produce()
		}
		t.close()
		if err != nil {
			return fmt.Errorf("filling the server: %w", err)
		}
	}
	return nil
}

// crowd opens connections that are greeted and say nothing more.
func (t *trial) crowd(connections int) ([]net.Conn, error) {
	var open []net.Conn
	for i := range connections {
		conn, err := t.dial(idling)
		if err != nil {
			leave(open)
			return nil, fmt.Errorf("idle connection %d: %w", i, err)
		}
		open = append(open, conn)
	}
	return open, nil
}

func leave(open []net.Conn) {
	for _, conn := range open {
		conn.Close()
	}
}

// rest drains the server of the jobs that are queued, and waits until it has given their memory back.
func (s *sample) rest(t *trial, pid int) error {
	if err := t.hireWorkers(); err != nil {
		return err
	}
	if _, err := t.drain(); err != nil {
		return err
	}
	if err := t.settle(); err != nil {
		return err
	}
	for start := time.Now(); ; time.Sleep(restTick) {
		resident, err := residentBytes(pid)
		if err != nil {
			return err
		}
		if t.stop.Load() {
			return errStopped
		}
		s.RestMB, s.RestSeconds = float64(resident)/1e6, time.Since(start).Seconds()
		if s.RestMB < restLeast || time.Since(start) > restLimit {
			return nil
		}
	}
}

// idle measures the growth of the server's memory over many greeted connections, and the processor time that it takes to
// greet them. The first one is not counted: it may set up what all of them share.
func (s *sample) idle(t *trial, pid, connections int) error {
	one, err := t.crowd(1)
	if err != nil {
		return err
	}
	defer func() { leave(one) }()
	before, err := residentBytes(pid)
	if err != nil {
		return err
	}
	spent, err := readMeter(pid)
	if err != nil {
		return err
	}
	s.Connections = min(connections, descriptors())
	many, err := t.crowd(s.Connections)
	if err != nil {
		return err
	}
	defer func() { leave(many) }()
	spentAfter, err := readMeter(pid)
	after, errAfter := residentBytes(pid)
	s.IdleKB = float64(after-before) / 1024 / float64(s.Connections)
	s.ConnectCPU = float64((spentAfter.server - spent.server).Microseconds()) / float64(s.Connections)
	return errors.Join(err, errAfter)
}
