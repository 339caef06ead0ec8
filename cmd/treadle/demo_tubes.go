package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"treadle/loop/client"
)

// submitBeanstalk puts jobs into a tube.
func (d *demo) submitBeanstalk(ctx context.Context) error {
	b, err := client.DialBeanstalk(ctx, d.addresses["beanstalk"])
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := b.Ask(ctx, nil, "use feeds"); err != nil {
		return err
	}
	for n := 1; ctx.Err() == nil; n++ {
		body := fmt.Appendf(nil, `{"feed":"https://example.org/%d.xml"}`, n)
		if _, err := b.Ask(ctx, body, "put %d %d 60 %d", 1024-rand.IntN(3), rand.IntN(2), len(body)); err != nil {
			return err
		}
		pause(ctx, around(600*time.Millisecond))
	}
	return nil
}

// workBeanstalk does the jobs of the tube, and buries a few.
func (d *demo) workBeanstalk(ctx context.Context) error {
	b, err := client.DialBeanstalk(ctx, d.addresses["beanstalk"])
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := b.Ask(ctx, nil, "watch feeds"); err != nil {
		return err
	}
	for ctx.Err() == nil {
		job, err := b.Ask(ctx, nil, "reserve-with-timeout 10")
		if err != nil {
			return err
		}
		if !job.Is("RESERVED") {
			continue
		}
		pause(ctx, around(400*time.Millisecond))
		end := "delete " + job.Words[1]
		if rand.Float64() < 0.02 {
			end = "bury " + job.Words[1] + " 1024"
		}
		if _, err := b.Ask(ctx, nil, "%s", end); err != nil {
			return err
		}
	}
	return nil
}

// faktoryConn is a connection of the demo to the Faktory protocol.
type faktoryConn struct {
	net.Conn
	in *bufio.Reader
}

// dialFaktory connects and says hello. wid is the worker's id; empty: the peer is a client.
func (d *demo) dialFaktory(ctx context.Context, wid string) (*faktoryConn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(d.addresses["faktory"], "tcp://"))
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	f := &faktoryConn{c, bufio.NewReader(c)}
	if _, err = f.reply(); err == nil {
		_, err = f.ask("HELLO", map[string]any{"v": 2, "wid": wid, "hostname": "demo", "pid": 1})
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return f, nil
}

// ask sends a command with a value as JSON and returns the reply.
func (f *faktoryConn) ask(command string, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return f.send(command + " " + string(text))
}

// send sends a line and returns the reply.
func (f *faktoryConn) send(line string) ([]byte, error) {
	if _, err := io.WriteString(f, line+"\r\n"); err != nil {
		return nil, err
	}
	return f.reply()
}

// reply reads a reply: a line, or the bytes of a job; nil: there is none.
func (f *faktoryConn) reply() ([]byte, error) {
	line, err := f.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(line, "-"):
		return nil, errors.New(line[1:])
	case !strings.HasPrefix(line, "$"):
		return []byte(line), nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 {
		return nil, err
	}
	data := make([]byte, n+len("\r\n"))
	_, err = io.ReadFull(f.in, data)
	return data[:n], err
}

// submitFaktory pushes jobs.
func (d *demo) submitFaktory(ctx context.Context) error {
	f, err := d.dialFaktory(ctx, "")
	if err != nil {
		return err
	}
	defer f.Close()
	for n := 1; ctx.Err() == nil; n++ {
		job := map[string]any{
			"jid": fmt.Sprintf("import-%08d-%d", n, rand.Uint32()), "jobtype": "ImportJob", "queue": "imports", "args": []any{n, "customers.csv"},
			"retry": 2,
		}
		if _, err := f.ask("PUSH", job); err != nil {
			return err
		}
		pause(ctx, around(900*time.Millisecond))
	}
	return nil
}

// workFaktory does the jobs; a few fail.
func (d *demo) workFaktory(ctx context.Context) error {
	f, err := d.dialFaktory(ctx, "imports-1")
	if err != nil {
		return err
	}
	defer f.Close()
	for beat := time.Now(); ctx.Err() == nil; {
		if time.Since(beat) > 10*time.Second { // the server gives up a worker that is silent for a minute
			if _, err := f.ask("BEAT", map[string]any{"wid": "imports-1"}); err != nil {
				return err
			}
			beat = time.Now()
		}
		text, err := f.send("FETCH imports")
		if err != nil {
			return err
		}
		var job struct {
			JID string `json:"jid"`
		}
		if text == nil || json.Unmarshal(text, &job) != nil {
			continue
		}
		pause(ctx, around(500*time.Millisecond))
		end, report := "ACK", map[string]any{"jid": job.JID}
		if rand.Float64() < 0.05 {
			end, report["errtype"], report["message"] = "FAIL", "CSVError", fmt.Sprintf("row %d has 7 columns, not 8", 1+rand.IntN(900))
		}
		if _, err := f.ask(end, report); err != nil {
			return err
		}
	}
	return nil
}
