package zmq

import (
	"context"
	"net"
	"testing"
)

// benchEcho starts an echo on a free port and a client.
func benchEcho(b *testing.B) *Client {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	l := Listen(ln, Options{})
	quit := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var batch []Request
		for {
			select {
			case <-l.Ready():
				batch = l.Take(batch[:0])
				for _, q := range batch {
					q.Reply(q.Payload)
				}
			case <-quit:
				return
			}
		}
	}()
	c, err := Dial(context.Background(), ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.Close()
		_ = l.Close()
		close(quit)
		<-ended
	})
	return c
}

// BenchmarkEcho is one round trip at a time.
func BenchmarkEcho(b *testing.B) {
	c := benchEcho(b)
	payload := make([]byte, 30)
	b.ReportAllocs()
	for b.Loop() {
		c.Send(payload)
		if err := c.Flush(); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Recv(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEchoPipelined has 1000 round trips under way.
func BenchmarkEchoPipelined(b *testing.B) {
	const block = 500
	c := benchEcho(b)
	payload := make([]byte, 30)
	b.ReportAllocs()
	send := func() {
		for range block {
			c.Send(payload)
		}
		if err := c.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	send()
	for done := 0; done < b.N; done += block {
		send()
		for range block {
			if _, err := c.Recv(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
