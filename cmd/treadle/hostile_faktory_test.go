package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"treadle/codec/faktory"
)

// faktoryPeer is a client of Faktory's protocol that may send anything.
type faktoryPeer struct {
	net.Conn
	in []byte
}

// faktoryPeer connects and says HELLO.
func (s *attack) faktoryPeer() *faktoryPeer {
	s.t.Helper()
	c := &faktoryPeer{Conn: s.dial("faktory")}
	must(s.t, c.ask(faktoryHello, "+HI "))
	worked(c.reply())(s.t)
	return c
}

// reply returns the next reply, with the letter of its kind.
func (c *faktoryPeer) reply() (string, error) {
	for {
		kind, data, n, err := faktory.NextReply(c.in, 64<<20)
		if err != nil {
			return "", err
		}
		if n > 0 {
			text := string(append([]byte{byte(kind)}, data...))
			c.in = c.in[n:]
			return text, nil
		}
		var part [16 << 10]byte
		n, err = c.Read(part[:])
		if c.in = append(c.in, part[:n]...); n == 0 && err != nil {
			return "", err
		}
	}
}

// ask sends bytes and checks how the next reply begins.
func (c *faktoryPeer) ask(text, want string) error {
	if err := c.SetDeadline(time.Now().Add(hostilePatience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	got, err := c.reply()
	if err == nil && !strings.HasPrefix(got, want) {
		err = fmt.Errorf("%.60q is answered %.60q, want %q", text, got, want)
	}
	return err
}

// faktoryProbe pushes jobs, fetches and acknowledges them.
func (s *attack) faktoryProbe() probe {
	s.t.Helper()
	c := s.faktoryPeer()
	return probe{"faktory", func(n int) error {
		err := c.ask(fmt.Sprintf(`PUSH {"jid":"probe-%06d","jobtype":"T","args":[],"queue":"probe-of-faktory"}`+"\r\n", n), "+OK")
		if err == nil {
			err = c.ask("FETCH probe-of-faktory\r\n", "${") // Periodic has a probe of its own
		}
		if err == nil {
			err = c.ask(fmt.Sprintf(`ACK {"jid":"probe-%06d"}`+"\r\n", n), "+OK")
		}
		return err
	}, func() { c.Close() }}
}

// faktory sends lines that are neither jobs nor commands, jobs at the limits, patterns that are slow to compare, and
// many FETCHes in one write. Each command is answered.
func (s *attack) faktory() {
	job := func(jid, args string) string {
		return fmt.Sprintf(`PUSH {"jid":%q,"jobtype":"T","args":%s,"queue":"hostile"}`+"\r\n", jid, args)
	}
	c := s.faktoryPeer()
	defer c.Close()
	for text, want := range map[string]string{
		job("nested-1", strings.Repeat("[", 1<<20)+strings.Repeat("]", 1<<20)): "-ERR",
		job("nested-2", strings.Repeat(`[{"a":`, 1<<18)):                       "-ERR",
		job("text-001", "[\"\xff\xfe\x80\"]"):                                  "+OK", // each byte becomes U+FFFD
		job("text-002", "[\"\x00\"]"):                                          "-ERR",
		job("text-003", `["\ud800"]`):                                          "+OK",
		"PUSH " + strings.Repeat(`{"a":`, 1<<17) + "\r\n":                      "-ERR",
		"PUSHB [" + strings.Repeat("{},", 1<<18) + "{}]\r\n":                   "$",
		"PUSHB " + strings.Repeat("[", 1<<20) + "\r\n":                         "-ERR",
		"\x00\r\n":                        "-ERR",
		"\r\n":                            "-ERR",
		strings.Repeat(" ", 1<<20) + "\n": "-ERR",
		"FETCH " + strings.Repeat("q ", 1<<10) + "\r\n":                                                                       "-ERR",
		"ACK {\"jid\":\"" + strings.Repeat("x", 1<<20) + "\"}\r\n":                                                            "-ERR", // longer than such a command may be
		"MUTATE {\"cmd\":\"discard\",\"target\":\"dead\",\"filter\":{\"regexp\":\"" + strings.Repeat("*", 1<<20) + "\"}}\r\n": "-ERR",
	} {
		must(s.t, c.ask(text, want))
	}
	must(s.t, c.ask("QUEUE REMOVE hostile\r\n", "+OK"))

	large := `["` + strings.Repeat("a", 1<<20) + `"]`
	for i := range 8 * s.scale {
		must(s.t, c.ask(fmt.Sprintf(`PUSH {"jid":"large-%03d","jobtype":"T","args":%s,"queue":"hostile","at":"2999-01-01T00:00:00Z"}`+"\r\n", i, large), "+OK"))
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			c := s.faktoryPeer()
			defer c.Close()
			for range 2 { // the jobs grow with the scale, and the time of each MUTATE with them
				if err := c.ask(`MUTATE {"cmd":"discard","target":"scheduled","filter":{"regexp":"*`+strings.Repeat("a", 250)+`b*"}}`+"\r\n", "+OK"); err != nil {
					s.t.Error(err)
				}
			}
		})
	}
	for n := range 20 * s.scale {
		all.Go(func() { // each FETCH names many new queues
			c := s.faktoryPeer()
			defer c.Close()
			var b bytes.Buffer
			for i := range 40 {
				b.WriteString("FETCH")
				for q := range 200 {
					fmt.Fprintf(&b, " q-%d-%d-%d", n, i, q)
				}
				b.WriteString("\r\n")
			}
			_, _ = c.Write(b.Bytes())
			_, _ = c.reply() // the first has waited for a job
		})
	}
	all.Wait()
	must(s.t, c.ask(`MUTATE {"cmd":"clear","target":"scheduled"}`+"\r\n", "+OK"))
}
