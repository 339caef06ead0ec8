package loop

import (
	"context"
	"runtime/debug"
	"time"

	"treadle/sched"
)

// sweepPeriod is how often sweep checks the sessions' time-outs.
const sweepPeriod = time.Second

// tick ticks the scheduler and returns the time of the next Tick.
func (s *Server) tick(sink *mailSink) sched.Time {
	next := s.sched.Tick(s.now(), sink)
	s.journal.flush(0)
	s.wake(sink.toWake)
	return next
}

// runTimer ticks the scheduler when jobs are due, sweeps the sessions and gives memory back.
func (s *Server) runTimer(ctx context.Context) {
	sink := &mailSink{s, make([]bool, s.o.Loops)}
	timer := time.NewTimer(0)
	defer timer.Stop()
	sweep := time.NewTicker(sweepPeriod)
	defer sweep.Stop()
	var trim trimmer
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.timerWake:
		case due := <-timer.C:
			s.counters.timerLag.observe(time.Since(due).Microseconds())
		case due := <-sweep.C:
			s.counters.timerLag.observe(time.Since(due).Microseconds())
			s.swept.Store(s.now().Mono)
			for i := range s.reactors {
				if r := s.reactors[i].Load(); r != nil {
					r.exec(r.sweep)
				}
			}
			if trim.shouldTrim(s.sched.Stats().ArenaBytes) {
				s.goroutines.Go(debug.FreeOSMemory)
			}
			continue
		}
		next := s.tick(sink) // now or earlier when the Tick left work over
		s.logOverdue()
		now := s.now()
		timer.Reset(time.Duration(max(min(next.Wall-now.Wall, next.Mono-now.Mono), 0)) * time.Millisecond)
	}
}
