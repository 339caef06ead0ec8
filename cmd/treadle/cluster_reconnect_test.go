package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"treadle/loop/client"
)

// reconnectingClients returns how many clients TestClusterReconnects has: 10,000, or fewer with a lower limit of open
// files. A client takes three files of the leader.
func reconnectingClients(t *testing.T) int {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	return min(10_000, int(limit.Max)/4)
}

// TestClusterReconnects: when the leader is killed, thousands of clients of all nodes connect to the others at once.
// Each is served, and no acknowledged job is lost.
func TestClusterReconnects(t *testing.T) {
	if testing.Short() {
		t.Skip("opens thousands of connections")
	}
	reconnecting := reconnectingClients(t)
	n := newNodes(t)
	for i := range n.peers { // without wires, which would take their time from the clients
		n.peers[i] = nodeID(i) + "=" + n.own[i]
	}
	for i := range n.running {
		n.start(i)
	}
	lead, _ := n.settle()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var dead atomic.Int64 // the node that was killed
	dead.Store(-1)
	var clients, before, after sync.WaitGroup
	before.Add(reconnecting)
	after.Add(reconnecting)
	var tries atomic.Int64
	for k := range reconnecting {
		clients.Go(func() {
			submitted := func(at int) *client.Client { // a connection on which a job was acknowledged
				for ; ctx.Err() == nil; at++ {
					tries.Add(1)
					if at %= len(n.running); int64(at) == dead.Load() {
						continue
					}
					c, err := client.Dial(ctx, n.socket(at), client.Options{})
					if err == nil {
						if err = c.Submit(ctx, &client.Job{Func: "f", Name: fmt.Sprint(k)}); err == nil {
							return c
						}
						c.Close()
					}
					time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
				}
				return nil
			}
			c := submitted(k)
			before.Done()
			if c != nil {
				for c.Ping(ctx) == nil && dead.Load() < 0 {
					time.Sleep(time.Second)
				}
				c.Close()
			}
			if c = submitted(k + 1); c != nil {
				defer c.Close()
			}
			after.Done()
			<-ctx.Done()
		})
	}
	began := time.Now()
	before.Wait()
	t.Logf("%d clients are served after %v", reconnecting, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	n.kill(lead)
	dead.Store(int64(lead))
	after.Wait()
	if err := ctx.Err(); err != nil {
		t.Fatalf("not all clients are served: %v", err)
	}
	t.Logf("all are served %v after the leader was killed, with %d tries", time.Since(began).Round(time.Millisecond), tries.Load())
	c, err := client.Dial(ctx, n.socket(n.up()[0]), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	queues, err := c.Status(ctx)
	if i := slices.IndexFunc(queues, func(q client.Queue) bool { return q.Func == "f" }); err != nil || i < 0 || queues[i].Jobs != int64(reconnecting) {
		t.Errorf("%+v, %v: %d jobs were acknowledged", queues, err, reconnecting)
	}
	cancel()
	clients.Wait()
}
