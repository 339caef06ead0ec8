package store_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// mute holds back the replies to pings until it is closed.
type mute chan struct{}

func (mute) BeforeCommand(bson.D) mongotest.Fault { return mongotest.None }

func (m mute) BeforeReply(command bson.D) (lost bool) {
	if command[0].Key == "ping" {
		<-m
	}
	return false
}

type dialer func() (net.Conn, error)

func (d dialer) DialContext(context.Context, string, string) (net.Conn, error) { return d() }

// TestCloseRests: Close waits for the reply to a cancelled call without using a processor. The clock of a synctest
// bubble stands still while a goroutine runs.
func TestCloseRests(t *testing.T) {
	hangs := time.AfterFunc(sitetest.Patience, func() { panic("Close keeps a processor busy") })
	defer hangs.Stop()
	synctest.Test(t, func(t *testing.T) {
		fake, end := mongotest.New(), make(mute)
		c, err := config.Parse([]byte(`{"mongohost": "database"}`))
		must(t, err)
		c.Dial = dialer(func() (net.Conn, error) {
			near, far := net.Pipe()
			go fake.ServeConn(far, end)
			return near, nil
		})
		site, err := store.Open(c.Connection(config.ComponentNode))
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := site.Ping(ctx); err == nil {
			t.Error("a ping without a reply has succeeded")
		}
		site.Close()
		close(end)
	})
}
