package store_test

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestOutageIsLoggedOnce: an outage has one log line for all waiting calls together, and one at its end.
func TestOutageIsLoggedOnce(t *testing.T) {
	lines := sitetest.NewLines()
	var failed atomic.Int64
	r := new(store.Store).Retrier(lines.Logger(), func() { failed.Add(1) })
	var there atomic.Bool
	done := make(chan error)
	const calls = 50
	for range calls {
		go func() {
			done <- r.Do(t.Context(), "a test", func() error {
				if there.Load() {
					return nil
				}
				return fmt.Errorf("away %d", failed.Load())
			})
		}()
	}
	for failed.Load() < 2*calls {
		<-time.After(time.Millisecond)
	}
	if got := lines.Count(); got != 1 {
		t.Errorf("%d lines about %d failed calls", got, failed.Load())
	}
	there.Store(true)
	for range calls {
		must(t, <-done)
	}
	if got := lines.Count(); got != 2 {
		t.Errorf("%d lines at the end", got)
	}
}

// TestOutageRests: calls wait for an absent database without using a processor. The clock of a synctest bubble stands
// still while a goroutine runs.
func TestOutageRests(t *testing.T) {
	hangs := time.AfterFunc(sitetest.Patience, func() { panic("a call without a database keeps a processor busy") })
	defer hangs.Stop()
	synctest.Test(t, func(t *testing.T) {
		c, err := config.Parse([]byte(`{"mongohost": "database"}`))
		must(t, err)
		var dialed atomic.Int64
		c.Dial = dialer(func() (net.Conn, error) {
			dialed.Add(1)
			return nil, syscall.ECONNREFUSED
		})
		site, err := store.Open(c.Connection(config.ComponentNode))
		must(t, err)
		defer site.Close()
		began := time.Now()
		if err := site.Explain(site.Ping(t.Context())); err == nil || !strings.Contains(err.Error(), "no server of the database answers") {
			t.Errorf("a ping without a database: %v", err)
		}
		if got := time.Since(began); got != store.ConnectTimeout {
			t.Errorf("it gave up after %v", got)
		}
		if got := dialed.Load(); got > 20 { // the driver retries every 500 ms at most
			t.Errorf("%d connections were tried meanwhile", got)
		}
	})
}
