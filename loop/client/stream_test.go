package client

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"treadle/codec/periodic"
)

const (
	recvRequest = "000000011f" + "0166016e00000000000000000000000000"
	crcHandle   = "0166016e"
)

func TestRecv(t *testing.T) {
	c := connect(t, periodic.CRC, func(p *peer) {
		p.wantRequest(recvRequest)
		p.reply("0000000110")
		p.reply("000000011e" + ascii("one, "))
		p.reply("7777777710")
		p.reply("000000011e" + ascii("EOF?"))
		p.reply("000000011e" + ascii("EOF"))
		p.wantRequest("0000000209")
		p.reply("000000011e" + ascii("late"))
		p.reply("000000020a")
		p.drain()
	})
	var got strings.Builder
	err := c.Recv(within(t), "f", "n", &got)
	if got.String() != "one, EOF?" || err != nil {
		t.Errorf("got %q, %v", got.String(), err)
	}
	check(t, c.Ping(within(t)), nil)
}

func TestRecvFailures(t *testing.T) {
	full := errors.New("disk full")
	other := errors.New("which is no reply to this request")
	f := func(what string, replies []string, w io.Writer, want error) {
		t.Helper()
		c := connect(t, periodic.CRC, func(p *peer) {
			p.wantRequest(recvRequest)
			for _, r := range replies {
				p.reply("00000001" + r)
			}
			if want != ErrClosed {
				p.drain()
			}
		})
		err := c.Recv(within(t), "f", "n", w)
		if !errors.Is(err, want) && (want != other || err == nil || !strings.Contains(err.Error(), other.Error())) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	f("no worker", []string{"1d"}, io.Discard, ErrNoWorker)
	f("refused", []string{"0c"}, io.Discard, ErrRefused)
	f("data at once", []string{"1e6f6b"}, io.Discard, other)
	f("SUCCESS again", []string{"10", "10"}, io.Discard, other)
	f("cut", []string{"10", "1e6f6b"}, io.Discard, ErrClosed)
	f("nowhere to write", []string{"10", "1e6f6b"}, failingWriter{full}, full)

	plain := connect(t, periodic.Plain, func(p *peer) { p.drain() })
	check(t, plain.Recv(within(t), "f", "n", io.Discard), errNeedsCRC)
	long := strings.Repeat("x", 256)
	c := connect(t, periodic.CRC, func(p *peer) { p.drain() })
	if err := c.Recv(within(t), long, "n", io.Discard); err == nil || !strings.Contains(err.Error(), "256 bytes") {
		t.Errorf("a name of 256 bytes: %v", err)
	}
}

// gate is a writer that reports each write and waits for permission.
type gate struct {
	got  chan string
	pass chan struct{}
}

func (g gate) Write(b []byte) (int, error) {
	g.got <- string(b)
	<-g.pass
	return len(b), nil
}

// TestRecvCancelled checks that a cancelled Recv leaves the connection usable, even with data
// waiting.
func TestRecvCancelled(t *testing.T) {
	g := gate{make(chan string, 50), make(chan struct{})}
	c := connect(t, periodic.CRC, func(p *peer) {
		p.wantRequest(recvRequest)
		p.reply("0000000110")
		for range 50 {
			p.reply("000000011e6f6b")
		}
		p.wantRequest("0000000209")
		p.reply("000000020a")
		p.drain()
	})
	ctx, cancel := context.WithCancel(within(t))
	given := make(chan error)
	go func() { given <- c.Recv(ctx, "f", "n", g) }()
	<-g.got
	for !c.conn.streaming.Load() { // until the next data is waiting
		runtime.Gosched()
	}
	cancel()
	close(g.pass)
	check(t, <-given, context.Canceled)
	check(t, c.Ping(within(t)), nil)
}

// TestRecvSlow checks that while a receiver writes nothing is read and pings continue, although
// their replies cannot be read.
func TestRecvSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate{make(chan string, 9), make(chan struct{})}
		c := inBubble(t, Options{Framing: CRC, PingEvery: time.Second}, func(p *peer) {
			p.wantRequest(recvRequest)
			all := ""
			for _, r := range []string{"10", "1e" + ascii("one"), "1e" + ascii("two")} {
				all += frame(t, periodic.CRC, "RES", "00000001"+r)
			}
			p.send(all)
			for _, ping := range []string{"0000000209", "0000000309", "0000000409"} {
				p.wantRequest(ping)
			}
			close(g.pass)
			p.reply("000000011e" + ascii("EOF"))
			p.drain()
		})
		check(t, c.Recv(within(t), "f", "n", g), nil)
		if one, two := <-g.got, <-g.got; one != "one" || two != "two" {
			t.Errorf("got %q and %q", one, two)
		}
	})
}

// assigned returns a worker that holds the job f n.
func assigned(t *testing.T, framing periodic.Framing, script func(p *peer)) (*Worker, *Assignment) {
	t.Helper()
	w := connectWorker(t, framing, func(p *peer) {
		p.wantRequest("0000000101")
		if framing == periodic.CRC {
			p.reply("0000000105" + jobHi)
		} else {
			p.reply("0000000105" + handle + jobHi)
		}
		script(p)
		p.drain()
	})
	return w, grab(t, w, Job{Func: "f", Name: "n", Workload: []byte("hi")})
}

func TestPublish(t *testing.T) {
	w, a := assigned(t, periodic.CRC, func(p *peer) {
		for i, data := range []string{"data", "E", "OF", "EOF\n", ""} {
			id := "0000000" + string(rune('2'+i))
			p.wantRequest(id + "20" + crcHandle + ascii(data))
			p.reply(id + "10")
		}
		p.wantRequest("0000000720" + crcHandle + "78")
		p.reply("000000070c")
	})
	for _, data := range []string{"data", "EOF", "EOF\n", ""} {
		check(t, w.Publish(within(t), a, []byte(data)), nil)
	}
	check(t, w.Publish(within(t), a, []byte("x")), ErrRefused)
}

func TestLocks(t *testing.T) {
	w, a := assigned(t, periodic.CRC, func(p *peer) {
		for i, answer := range []string{"1a01", "1a00", "0c", "10", "1a"} {
			id := "0000000" + string(rune('2'+i))
			p.wantRequest(id + "1b" + str8("lock") + "0103" + crcHandle)
			p.reply(id + answer)
		}
		p.wantRequest("000000071c" + str8("lock") + crcHandle)
		p.wantRequest("0000000809")
		p.reply("0000000710")
		p.reply("000000080a")
	})
	f := func(want bool, says string) {
		t.Helper()
		got, err := w.Acquire(within(t), a, "lock", 0x103)
		if got != want || (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, %v; want %v, %q", got, err, want, says)
		}
	}
	f(true, "")
	f(false, "")
	f(false, ErrRefused.Error())
	f(false, "SUCCESS, which is no reply to this request")
	f(false, "0 bytes where 1 was expected")
	check(t, w.Release(within(t), a, "lock"), nil)
	check(t, w.Ping(within(t)), nil)
	long := strings.Repeat("x", 256)
	if _, err := w.Acquire(within(t), a, long, 1); err == nil || !strings.Contains(err.Error(), "256 bytes") {
		t.Errorf("a name of 256 bytes: %v", err)
	}
}

// TestPlainHasNoLocks checks that locks and streams fail in the 2018 framing before anything is
// sent.
func TestPlainHasNoLocks(t *testing.T) {
	w, a := assigned(t, periodic.Plain, func(p *peer) {
		p.wantRequest("0000000209")
		p.reply("000000020a")
	})
	_, err := w.Acquire(within(t), a, "lock", 1)
	check(t, err, errNeedsCRC)
	check(t, w.Release(within(t), a, "lock"), errNeedsCRC)
	check(t, w.Publish(within(t), a, nil), errNeedsCRC)
	check(t, w.Ping(within(t)), nil)
}

// TestRepliesOf2019 checks the replies of a server of 2019: results are wrapped in DATA, status and
// dump are not.
func TestRepliesOf2019(t *testing.T) {
	address := listen(t, periodic.CRC, func(p *peer) {
		p.wantRequest("01")
		p.reply("01020304")
		p.wantRequest("00000001190166016e00000000000000000000000000")
		p.reply("000000011e" + ascii("ok"))
		p.wantRequest("000000020e")
		p.reply("00000002" + "1e" + ascii(",1,2,3,4,5"))
		p.wantRequest("0000000312")
		p.reply("00000003" + hex.EncodeToString(someDump(1)))
		p.drain()
	})
	c, err := Dial(within(t), address, Options{Framing: CRC})
	check(t, err, nil)
	defer c.Close()
	result, err := c.Run(within(t), &Job{Func: "f", Name: "n"})
	if string(result) != "ok" || err != nil {
		t.Errorf("got %q, %v", result, err)
	}
	rows, err := c.Status(within(t))
	if len(rows) != 1 || rows[0].Func != "\x1e" || *rows[0].Locked != 4 || err != nil {
		t.Errorf("got %+v, %v", rows, err)
	}
	if n, err := c.Dump(within(t), io.Discard, nil); n != int64(len(someDump(1))) || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
}
