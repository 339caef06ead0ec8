package main

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// settle waits until the server holds no job any more, and checks that every job arrived exactly once.
func (t *trial) settle() error {
	allowed := 0
	if t.load.depth > 1 {
		allowed = t.harvest.traits.unfinished * t.load.depth * t.load.workers
	}
	standing := t.load.ready + t.load.delayed
	for deadline := now() + int64(stallLimit); ; time.Sleep(time.Millisecond) {
		pending, err := t.pending()
		if err != nil {
			return fmt.Errorf("cannot ask for the jobs left: %w", err)
		}
		if pending < standing {
			return fmt.Errorf("the server holds %d jobs of the %d that nobody took", pending, standing)
		}
		if pending <= standing+allowed {
			break
		}
		if t.stop.Load() {
			return errStopped
		}
		if now() > deadline {
			return fmt.Errorf("the server still holds %d jobs %v after the last one arrived", pending-standing, stallLimit)
		}
	}
	if err := t.workers.run(confirmation{t.harvest}, &t.stop, stallLimit); err != nil {
		return fmt.Errorf("%d completions were not acknowledged: %w", t.harvest.owed, err)
	}
	if err := errors.Join(t.workers.sweep(), t.producers.sweep()); err != nil {
		return err
	}
	return errors.Join(t.harvest.arrived.check(), t.master.check())
}

// pending asks over a fresh connection how many jobs the server holds.
func (t *trial) pending() (int, error) {
	ask := t.sides.ask
	conn, err := net.DialTimeout(ask.network, ask.address, dialLimit)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(dialLimit)); err != nil {
		return 0, err
	}
	return ask.protocol.pending(conn)
}
