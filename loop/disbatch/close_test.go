package disbatch

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/mongotest"
)

// mute is a way to a double on which no reply to a ping comes back before the end.
type mute chan struct{}

func (mute) Comes(bson.D) mongotest.Fault { return mongotest.None }

func (m mute) Goes(command bson.D) {
	if command[0].Key == "ping" {
		<-m
	}
}

type dialer func() (net.Conn, error)

func (d dialer) DialContext(context.Context, string, string) (net.Conn, error) { return d() }

// A store that is closed while the reply to a call that was given up is still to come waits
// without keeping a processor busy: the clock of a bubble stands still while anybody runs.
func TestCloseRests(t *testing.T) {
	hangs := time.AfterFunc(patience, func() { panic("Close keeps a processor busy") })
	defer hangs.Stop()
	synctest.Test(t, func(t *testing.T) {
		double, end := mongotest.New(), make(mute)
		config, err := ParseConfig([]byte(`{"mongohost": "database"}`))
		must(t, err)
		config.Dial = dialer(func() (net.Conn, error) {
			near, far := net.Pipe()
			go double.Talk(far, end)
			return near, nil
		})
		store, err := Open(config, ComponentNode)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := store.client.Ping(ctx, nil); err == nil {
			t.Error("a ping without a reply has succeeded")
		}
		store.Close()
		close(end)
	})
}

// Calls that wait for a database that is away rest until their time is over: the clock of a bubble stands still while
// anybody runs.
func TestAnOutageRests(t *testing.T) {
	hangs := time.AfterFunc(patience, func() { panic("a call without a database keeps a processor busy") })
	defer hangs.Stop()
	synctest.Test(t, func(t *testing.T) {
		config, err := ParseConfig([]byte(`{"mongohost": "database"}`))
		must(t, err)
		var dialed atomic.Int64
		config.Dial = dialer(func() (net.Conn, error) {
			dialed.Add(1)
			return nil, syscall.ECONNREFUSED
		})
		store, err := Open(config, ComponentNode)
		must(t, err)
		defer store.Close()
		began := time.Now()
		if err := store.Explain(store.client.Ping(t.Context(), nil)); err == nil || !strings.Contains(err.Error(), "no server of the database answers") {
			t.Errorf("a ping without a database: %v", err)
		}
		if got := time.Since(began); got != connectTimeout {
			t.Errorf("it gave up after %v", got)
		}
		if got := dialed.Load(); got > 20 { // the driver looks again at most every 500 ms
			t.Errorf("%d connections were tried meanwhile", got)
		}
	})
}
