package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"treadle/codec/periodic"
)

// TestVerbs checks each request's bytes and the meaning of its reply, in both framings. The 2018
// bytes are those of the captured reference server.
func TestVerbs(t *testing.T) {
	ctx := within(t)
	job := &Job{Func: "f", Name: "n", Workload: []byte("hi")}
	const jobBytes = "0166016e000000026869000000000000000000"
	f := func(what string, call func(c *Client) (any, error), request, plain, crc string, want any, wantErr error) {
		t.Helper()
		for framing, answer := range map[periodic.Framing]string{periodic.Plain: plain, periodic.CRC: crc} {
			c := connect(t, framing, func(p *peer) {
				p.wantRequest("00000001" + request)
				p.reply("00000001" + answer)
				p.drain()
			})
			got, err := call(c)
			if !errors.Is(err, wantErr) || (err == nil && !reflect.DeepEqual(got, want)) {
				t.Errorf("%s, framing %d: got %v, %v; want %v, %v", what, framing, got, err, want, wantErr)
			}
			c.Close()
		}
	}
	nothing := func(call func(c *Client) error) func(c *Client) (any, error) {
		return func(c *Client) (any, error) { return nil, call(c) }
	}
	ping := nothing(func(c *Client) error { return c.Ping(ctx) })
	submit := nothing(func(c *Client) error { return c.Submit(ctx, job) })
	run := func(c *Client) (any, error) { return c.Run(ctx, job) }
	get := func(c *Client) (any, error) { return c.ConfigGet(ctx, "timeout") }
	status := func(c *Client) (any, error) { return c.Status(ctx) }

	f("PING", ping, "09", "0a", "0a", nil, nil)
	f("PING refused", ping, "09", "0c", "0c", nil, ErrRefused)
	f("SUBMIT_JOB", submit, "0d"+jobBytes, "10", "10", nil, nil)
	f("SUBMIT_JOB refused", submit, "0d"+jobBytes, "0c", "0c", nil, ErrRefused)
	f("SUBMIT_JOB version 3", nothing(func(c *Client) error {
		return c.Submit(ctx, &Job{Func: "f", Name: "n", SchedAt: 2, Count: 3, Timeout: 4})
	}), "0d0166016e000000000000000000000002030000000300000004", "10", "10", nil, nil)
	f("RUN_JOB", run, "19"+jobBytes, "6f6b", "1e6f6b", []byte("ok"), nil)
	f("RUN_JOB refused", run, "19"+jobBytes, "0c", "0c", nil, ErrRefused)
	f("REMOVE_JOB", nothing(func(c *Client) error { return c.Remove(ctx, "f", "n") }), "110166016e", "10", "10", nil, nil)
	f("DROP_FUNC", nothing(func(c *Client) error { return c.Drop(ctx, "f") }), "0f0166", "10", "10", nil, nil)
	f("CONFIG_GET", get, "160774696d656f7574", "1800000258", "1800000258", uint32(600), nil)
	f("CONFIG_GET unsigned", get, "160774696d656f7574", "18ffffffff", "18ffffffff", uint32(1<<32-1), nil)
	f("CONFIG_SET", nothing(func(c *Client) error { return c.ConfigSet(ctx, "timeout", 7) }), "170774696d656f757400000007", "10", "10", nil, nil)
	f("STATUS empty", status, "0e", "", "1e", []Queue(nil), nil)
	f("STATUS refused", status, "0e", "0c", "0c", nil, ErrRefused)
}

// TestRunEnds checks that Run asks the server when a result may be the server's own text, and that
// without an answer the text has the protocol's meaning.
func TestRunEnds(t *testing.T) {
	key := func(key string) string { return fmt.Sprintf("16%02x%x", len(key), key) }
	f := func(framing periodic.Framing, result string, known, ended byte, want error) {
		t.Helper()
		asked := []string{periodic.KeyFailed}
		switch {
		case result == "" && framing == periodic.CRC:
			asked = append(asked, periodic.KeyGone)
		case result == "", result == "removed":
			asked[0] = periodic.KeyGone
		}
		c := connect(t, framing, func(p *peer) {
			p.wantRequest("00000001190166016e00000000000000000000000000")
			data := "1e"
			if framing == periodic.Plain {
				data = ""
			}
			p.reply("00000001" + data + fmt.Sprintf("%x", result))
			p.wantRequest("00000002" + key(periodic.KeyTreadle))
			p.reply(fmt.Sprintf("0000000218000000%02x", known))
			for i, asked := range asked {
				if known == 0 || want != nil && i > 0 {
					break
				}
				p.wantRequest(fmt.Sprintf("%08x", 3+i) + key(asked))
				p.reply(fmt.Sprintf("%08x18000000%02x", 3+i, ended))
			}
			p.drain()
		})
		got, err := c.Run(within(t), &Job{Func: "f", Name: "n"})
		if !errors.Is(err, want) || want == nil && (err != nil || string(got) != result) || want != nil && got != nil {
			t.Errorf("framing %d, %q, known %d, ended %d: got %q, %v, want %v", framing, result, known, ended, got, err, want)
		}
	}
	for result, end := range map[string]error{"failed": ErrFailed, "removed": ErrRemoved, "expired": ErrExpired} {
		f(periodic.CRC, result, 0, 0, end)
		f(periodic.CRC, result, 1, 1, end)
		f(periodic.CRC, result, 1, 0, nil)
	}
	f(periodic.CRC, "", 0, 0, nil)
	f(periodic.CRC, "", 1, 0, nil)
	f(periodic.CRC, "", 1, 1, ErrFailed)
	f(periodic.Plain, "", 0, 0, nil)
	f(periodic.Plain, "", 1, 1, ErrRemoved)
	f(periodic.Plain, "", 1, 0, nil)
}

// TestExplain checks that Explain asks for the server's reason for an UNKNOWN and returns nothing
// else.
func TestExplain(t *testing.T) {
	f := func(refused, refusing byte, want string) {
		t.Helper()
		c := connect(t, periodic.Plain, func(p *peer) {
			p.wantRequest("000000010d0166016e00000000000000000000000000")
			p.reply("000000010c")
			p.wantRequest(fmt.Sprintf("0000000216%02x%x", len(periodic.KeyRefused), periodic.KeyRefused))
			p.reply(fmt.Sprintf("0000000218000000%02x", refused))
			if refused == 0 {
				p.wantRequest(fmt.Sprintf("0000000316%02x%x", len(periodic.KeyRefusing), periodic.KeyRefusing))
				p.reply(fmt.Sprintf("0000000318000000%02x", refusing))
			}
			p.drain()
		})
		err := c.Submit(within(t), &Job{Func: "f", Name: "n"})
		if got := c.Explain(within(t), err); !errors.Is(got, ErrRefused) || !strings.Contains(got.Error(), want) || want == "" && got.Error() != err.Error() {
			t.Errorf("%d, %d: %v, want %q", refused, refusing, got, want)
		}
	}
	f(0, 0, "")
	f(1, 1, "the disk of its --data has less free space than --min-free")
	f(0, 1, "the disk of its --data has less free space than --min-free")
	for reason := range periodic.Reasons {
		f(byte(reason), 0, reasons[reason])
		if reason > 0 && reasons[reason] == "" {
			t.Errorf("%v has no text", reason)
		}
	}
	if err := errors.New("another"); (&Client{}).Explain(t.Context(), err) != err {
		t.Error("another error is explained")
	}
}

func TestNoWorker(t *testing.T) {
	c := connect(t, periodic.CRC, func(p *peer) {
		p.wantRequest("00000001190166017800000000000000000000000000")
		p.reply("000000011d")
		p.drain()
	})
	_, err := c.Run(within(t), &Job{Func: "f", Name: "x"})
	check(t, err, ErrNoWorker)
}

func TestErrorsSayWhatAndWhere(t *testing.T) {
	c := connect(t, periodic.Plain, func(p *peer) {
		p.wantRequest("0000000109")
		p.reply("0000000110")
		p.drain()
	})
	err := c.Ping(within(t))
	want := fmt.Sprintf("cannot ping at %s: the server answered SUCCESS, which is no reply to this request", c.Address())
	if err == nil || err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	long := strings.Repeat("x", 256)
	for _, err := range []error{
		c.Submit(within(t), &Job{Func: long}), c.Submit(within(t), &Job{Name: long}),
		c.Remove(within(t), "f", long), c.Drop(within(t), long), c.ConfigSet(within(t), long, 1),
	} {
		if err == nil || !strings.Contains(err.Error(), "256 bytes") {
			t.Errorf("a name of 256 bytes: %v", err)
		}
	}
}

// TestRepliesOutOfOrderAndStray checks that replies out of order reach their callers, and that any
// number of replies without a waiting call do no harm.
func TestRepliesOutOfOrderAndStray(t *testing.T) {
	read := make(chan struct{})
	c := connect(t, periodic.CRC, func(p *peer) {
		p.wantRequest("00000001" + "19" + "0166016100000000000000000000000000")
		close(read)
		p.wantRequest("00000002" + "19" + "0166016200000000000000000000000000")
		for range 5000 {
			p.reply("7777777710")
		}
		p.reply("000000021e" + ascii("two"))
		p.reply("000000011e" + ascii("one"))
		p.drain()
	})
	first := make(chan string)
	go func() {
		result, err := c.Run(within(t), &Job{Func: "f", Name: "a"})
		first <- fmt.Sprint(string(result), err)
	}()
	<-read
	second, err := c.Run(within(t), &Job{Func: "f", Name: "b"})
	if got := <-first; got != "one<nil>" || string(second) != "two" || err != nil {
		t.Errorf("got %q and %q, %v", got, second, err)
	}
}

// TestRunCancelled checks that a cancelled call leaves the connection usable, and that its late
// reply is ignored.
func TestRunCancelled(t *testing.T) {
	read := make(chan struct{})
	c := connect(t, periodic.Plain, func(p *peer) {
		p.wantRequest("00000001190166016e00000000000000000000000000")
		close(read)
		p.wantRequest("0000000209")
		p.reply("00000001" + ascii("late"))
		p.reply("000000020a")
		p.drain()
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-read
		cancel()
	}()
	_, err := c.Run(ctx, &Job{Func: "f", Name: "n"})
	check(t, err, context.Canceled)
	if !strings.HasSuffix(err.Error(), ": interrupted") {
		t.Errorf("got %q", err)
	}
	check(t, c.Ping(within(t)), nil)
}

func TestShutdown(t *testing.T) {
	f := func(what string, script func(p *peer), want error) {
		t.Helper()
		c := connect(t, periodic.Plain, func(p *peer) {
			p.wantRequest("0000000114")
			p.wantRequest("0000000209")
			script(p)
		})
		if err := c.Shutdown(within(t)); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
	f("closed at once", func(p *peer) {}, nil)
	f("still answering", func(p *peer) { p.reply("000000020a"); p.drain() }, nil)
	f("refused", func(p *peer) { p.reply("000000010c"); p.reply("000000020a"); p.drain() }, ErrRefused)
}

// TestStatusDetails checks the additional counts of a Treadle, also without functions. A number is the
// reply of a server that does not know the key: an older Treadle, or another server.
func TestStatusDetails(t *testing.T) {
	ask := func(p *peer, id int, key, answer string) {
		p.wantRequest(fmt.Sprintf("%08x16%02x%x", id, len(key), key))
		p.reply(fmt.Sprintf("%08x", id) + answer)
	}
	f := func(older bool, answer string, want int, wantErr error) {
		t.Helper()
		for _, framing := range []periodic.Framing{periodic.Plain, periodic.CRC} {
			c := connect(t, framing, func(p *peer) {
				if key := periodic.KeyFailedStatus; older {
					ask(p, 1, key, "1800000000")
					ask(p, 2, periodic.KeyStatus, answer)
				} else {
					ask(p, 1, key, answer)
				}
				p.drain()
			})
			rows, err := c.Details(within(t))
			if len(rows) != want || !errors.Is(err, wantErr) {
				t.Errorf("%s: %v, %v, want %d rows, %v", answer, rows, err, want, wantErr)
			}
			for _, q := range rows {
				if known := q.Failed != nil; known == older || known && *q.Failed != 7 {
					t.Errorf("%s: failed is %v", answer, q.Failed)
				}
			}
		}
	}
	f(false, "18"+ascii("f,1,2,3,4,5,6,7,8\nn,1,2,3,4,5,6,7,8"), 2, nil)
	f(false, "18", 0, nil)
	f(false, "0c", 0, ErrRefused)
	f(true, "18"+ascii("f,1,2,3,4,5,6,7\nn,1,2,3,4,5,6,7"), 2, nil)
	f(true, "18", 0, nil)
	f(true, "1800000000", 0, ErrNoDetails)
	f(true, "0c", 0, ErrRefused)
}

func TestStatusRows(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	f := func(framing periodic.Framing, text string, want ...Queue) {
		t.Helper()
		got, err := parseStatus(text, statusForm(framing))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	f(periodic.Plain, "")
	f(periodic.Plain, "f,1,2,3,4", Queue{"f", 1, 2, 3, nil, nil, nil, nil, 4})
	f(periodic.Plain, "f,1,2,3,4\n,5,6,7,8", Queue{"f", 1, 2, 3, nil, nil, nil, nil, 4}, Queue{"", 5, 6, 7, nil, nil, nil, nil, 8})
	f(periodic.Plain, "a,b,1,2,3,4", Queue{"a,b", 1, 2, 3, nil, nil, nil, nil, 4})
	f(periodic.Plain, "a\nb\n,1,2,3,4\nc,1,2,3,4", Queue{"a\nb\n", 1, 2, 3, nil, nil, nil, nil, 4}, Queue{"c", 1, 2, 3, nil, nil, nil, nil, 4})
	f(periodic.CRC, "f,1,2,3,4,5", Queue{"f", 1, 2, 3, n(4), nil, nil, nil, 5})
	f(periodic.CRC, "7,1,2,3,4,5\nx,1,2,3,4,5", Queue{"7", 1, 2, 3, n(4), nil, nil, nil, 5}, Queue{"x", 1, 2, 3, n(4), nil, nil, nil, 5})
	if got, err := parseStatus("a,1,2,3,4,5,6,7", periodic.StatusDetails); err != nil || !reflect.DeepEqual(got, []Queue{{"a", 1, 2, 3, n(4), n(5), n(6), nil, 7}}) {
		t.Errorf("with details: %+v, %v", got, err)
	}
	for _, bad := range []string{"f", "f,1,2,3", "f,1,2,3,x", "f,1,2,3,4\ng"} {
		if rows, err := parseStatus(bad, periodic.StatusPlain); err == nil {
			t.Errorf("%q was read as %v", bad, rows)
		}
	}
}
