package loop

import (
	"path/filepath"
	"testing"
	"time"

	"treadle/loop/protocol"
)

// TestReload: each setting that may change does so in a running server, and none of them with an error.
func TestReload(t *testing.T) {
	t.Parallel()
	o := Options{Data: filepath.Join(t.TempDir(), "data"), MaxConnections: 40, Drain: time.Second}
	r := startServer(t, o)
	reload := func(change func(*Options)) error {
		next := o
		change(&next)
		return r.Reload(next)
	}
	becomes := func(want error) {
		t.Helper()
		r.until("new jobs are refused or taken", func() bool { return r.checkCapacity() == want })
	}
	same := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	same(reload(func(n *Options) { n.MinFree = 1 << 60 }))
	becomes(protocol.ErrDisk)
	same(reload(func(*Options) {}))
	becomes(nil)

	same(reload(func(n *Options) { n.MaxConnections, n.MaxAPIConnections, n.Drain = 4, 3, time.Minute }))
	if r.drain() != time.Minute || r.conns.currentLimit() != 4 || r.conns.apiLimit != 3 || r.conns.share != 2 {
		t.Errorf("drain %v, %d connections in shares of %d", r.drain(), r.conns.currentLimit(), r.conns.share)
	}
	wrong := reload(func(n *Options) {
		n.Drain, n.Admin.Cron = time.Hour, []CronEntry{{Name: "n", Queue: "q", Schedule: "@daily"}, {Name: "n", Queue: "p", Schedule: "@daily"}}
	})
	if wrong == nil || r.drain() != time.Minute {
		t.Errorf("a wrong entry: %v, drain %v", wrong, r.drain())
	}
	if err := reload(func(n *Options) { n.Drain = -1 }); err == nil || r.drain() != time.Minute {
		t.Errorf("a wrong setting: %v, drain %v", err, r.drain())
	}
	same(reload(func(*Options) {}))
	r.stop()
	if err := reload(func(n *Options) { n.Drain = time.Hour }); err == nil || r.drain() != time.Second {
		t.Errorf("a stopped server: %v, drain %v", err, r.drain())
	}
}
