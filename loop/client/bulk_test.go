package client

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"treadle/codec/periodic"
)

// someDump returns the bytes of a DUMP with n jobs.
func someDump(n int) []byte {
	b := []byte{0, 0, 0, 0, 0, 0, byte(n >> 8), byte(n)}
	for range n {
		b = periodic.AppendJob(b, &periodic.Job{Func: []byte("f"), Name: []byte("n"), Workload: make([]byte, 1000)})
	}
	return b
}

// watch checks that progress only increases and ends at the total.
func watch(t *testing.T) (Progress, func(want int64)) {
	last, calls := int64(0), 0
	return func(done, total int64) {
			calls++
			if done < last || done > total {
				t.Errorf("progress went from %d to %d of %d", last, done, total)
			}
			last = done
		}, func(want int64) {
			t.Helper()
			if last != want || calls < 2 {
				t.Errorf("progress ended at %d after %d calls, want %d", last, calls, want)
			}
		}
}

func TestDump(t *testing.T) {
	for framing, data := range map[periodic.Framing]string{periodic.Plain: "", periodic.CRC: "1e"} {
		want := someDump(400)
		c := connect(t, framing, func(p *peer) {
			p.wantRequest("0000000112")
			p.reply("00000001" + data + hex.EncodeToString(want))
			p.wantRequest("0000000209")
			p.reply("000000020a")
			p.drain()
		})
		progress, finished := watch(t)
		var got bytes.Buffer
		n, err := c.Dump(within(t), &got, progress)
		if err != nil || n != int64(len(want)) || !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("framing %d: got %d bytes, %d, %v; want %d", framing, got.Len(), n, err, len(want))
		}
		finished(int64(len(want)))
		check(t, c.Ping(within(t)), nil)
	}
}

func TestDumpRefused(t *testing.T) {
	c := connect(t, periodic.Plain, func(p *peer) {
		p.wantRequest("0000000112")
		p.reply("000000010c")
		p.wantRequest("0000000209")
		p.reply("000000020a")
		p.drain()
	})
	var got bytes.Buffer
	_, err := c.Dump(within(t), &got, nil)
	check(t, err, ErrRefused)
	check(t, c.Ping(within(t)), nil)
	if got.Len() > 0 {
		t.Errorf("%d bytes were written", got.Len())
	}
}

type failingWriter struct{ error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.error }

func TestDumpBroken(t *testing.T) {
	dump := hex.EncodeToString(someDump(10))
	whole := frame(t, periodic.CRC, "RES", "000000011e"+dump)
	full := errors.New("disk full")
	f := func(what, bytes string, w io.Writer, want error) {
		t.Helper()
		c := connect(t, periodic.CRC, func(p *peer) {
			p.wantRequest("0000000112")
			p.send(bytes)
			if what != "cut" {
				p.drain()
			}
		})
		_, err := c.Dump(within(t), w, nil)
		if err == nil {
			// The checksum is known only behind the last byte.
			err = c.Ping(within(t))
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
		<-c.conn.ended
	}
	f("cut", whole[:len(whole)-20], io.Discard, ErrClosed)
	f("nowhere to write", whole, failingWriter{full}, full)
	f("wrong checksum", whole[:16]+"00000000"+whole[24:], io.Discard, periodic.ErrChecksum)
}

// TestDumpCancelled checks that a cancelled dump ends at once, however many bytes are missing.
func TestDumpCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	c := connect(t, periodic.Plain, func(p *peer) {
		p.wantRequest("0000000112")
		p.send("005245537fffffff" + "00000001" + "0000000000000001")
		cancel()
		p.drain()
	})
	_, err := c.Dump(ctx, io.Discard, nil)
	check(t, err, context.Canceled)
	<-c.conn.ended
}

func TestLoad(t *testing.T) {
	for _, framing := range []periodic.Framing{periodic.Plain, periodic.CRC} {
		dump := someDump(400)
		c := connect(t, framing, func(p *peer) {
			p.wantRequest("0000000113" + hex.EncodeToString(dump))
			p.reply("0000000110")
			p.drain()
		})
		progress, finished := watch(t)
		check(t, c.Load(within(t), bytes.NewReader(dump), int64(len(dump)), progress), nil)
		finished(int64(len(dump)))
	}
}

func TestLoadFailures(t *testing.T) {
	dump := someDump(10)
	refuse := func(p *peer) {
		p.wantRequest("0000000113" + hex.EncodeToString(dump))
		p.reply("000000010c")
		p.drain()
	}
	c := connect(t, periodic.Plain, refuse)
	check(t, c.Load(within(t), bytes.NewReader(dump), int64(len(dump)), nil), ErrRefused)

	f := func(what string, framing periodic.Framing, r io.Reader, size int64, want string) {
		t.Helper()
		c := connect(t, framing, func(p *peer) { p.drain() })
		err := c.Load(within(t), r, size, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", what, err, want)
		}
	}
	f("source too short", periodic.Plain, bytes.NewReader(dump[:100]), int64(len(dump)), "the source ended after 100 of")
	f("no dump", periodic.Plain, bytes.NewReader(dump), 7, "this one 7")
	f("too large", periodic.Plain, bytes.NewReader(dump), 1<<31, "this one 2147483648")
	f("read once", periodic.CRC, io.MultiReader(bytes.NewReader(dump)), int64(len(dump)), "read twice")
}
