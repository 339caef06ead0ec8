package journal

import "time"

// lazyWait is how long changes that nobody waits for stay in mode Always until they are committed
// without others. It is about what a sync takes.
const lazyWait = 500 * time.Microsecond

// lazy decides when such changes are committed: at once, so that a kill finds them in the log; but while
// somebody who waits comes within lazyWait of them, with that one's. So it is with workers whose tasks
// are short: a sync for the handing out of a task would be one that its report has to wait for.
type lazy struct {
	timer *time.Timer
	set   bool      // the timer runs
	came  time.Time // the last of them, zero when somebody has come since
	short bool      // somebody came soon behind the last ones
}

func newLazy() *lazy {
	l := &lazy{timer: time.NewTimer(lazyWait)}
	l.timer.Stop()
	return l
}

// comes notes that changes came that nobody waits for, and says whether they are to be committed now.
func (l *lazy) comes() (now bool) {
	l.came = time.Now()
	if l.short && !l.set {
		l.timer.Reset(lazyWait)
		l.set = true
	}
	return !l.short
}

// over notes that the time of some is over.
func (l *lazy) over() { l.set, l.short = false, false }

// awaited notes that changes came that somebody waits for.
func (l *lazy) awaited() {
	if !l.came.IsZero() {
		l.short, l.came = time.Since(l.came) < lazyWait, time.Time{}
	}
}
