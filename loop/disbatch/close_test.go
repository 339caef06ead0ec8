package disbatch

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"treadle/loop/disbatch/mongodouble"
)

// mute is a way to a double on which no reply to a ping comes back before the end.
type mute chan struct{}

func (mute) Comes(bson.D) mongodouble.Fault { return mongodouble.None }

func (m mute) Goes(command bson.D) {
	if command[0].Key == "ping" {
		<-m
	}
}

type dialer func() net.Conn

func (d dialer) DialContext(context.Context, string, string) (net.Conn, error) { return d(), nil }

// A store that is closed while the reply to a call that was given up is still to come waits
// without keeping a processor busy: the clock of a bubble stands still while anybody runs.
func TestCloseRests(t *testing.T) {
	hangs := time.AfterFunc(patience, func() { panic("Close keeps a processor busy") })
	defer hangs.Stop()
	synctest.Test(t, func(t *testing.T) {
		double, end := mongodouble.New(), make(mute)
		config, err := ParseConfig([]byte(`{"mongohost": "database"}`))
		must(t, err)
		config.dial = dialer(func() net.Conn {
			near, far := net.Pipe()
			go double.Talk(far, end)
			return near
		})
		store, err := Open(config, ComponentNode)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := store.Ping(ctx); err == nil {
			t.Error("a ping without a reply has succeeded")
		}
		store.Close()
		close(end)
	})
}
