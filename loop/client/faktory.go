package client

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"treadle/codec/faktory"
)

// Faktory is a connection to a server of the Faktory protocol. One goroutine at a time uses it.
type Faktory struct {
	address string // for messages
	setting string
	conn    net.Conn
	in, out []byte
}

// ErrNotFaktory reports a peer whose bytes are not replies of the Faktory protocol.
var ErrNotFaktory = errors.New("the peer does not speak the Faktory protocol")

// Settings that name Faktory servers on the command line.
const (
	FaktorySource = "FROM of treadle import faktory"
	FaktoryTarget = "--to of treadle import faktory"
)

// maxFaktoryReply bounds a reply.
const maxFaktoryReply = 1 << 30

// DialFaktory connects to the server at address, see Dial, and proves the password if the server asks for one. setting
// is FaktorySource or FaktoryTarget.
func DialFaktory(ctx context.Context, address, setting, password string) (*Faktory, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, name, err := connectTo(ctx, address, setting)
	if err != nil {
		return nil, err
	}
	f := &Faktory{address: name, setting: setting, conn: nc}
	if err := f.greet(ctx, password); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// greet reads the greeting and answers it.
func (f *Faktory) greet(ctx context.Context, password string) error {
	greeting, err := f.reply(ctx)
	if err != nil {
		return err
	}
	var hi struct {
		Salt       string `json:"s"`
		Iterations int    `json:"i"`
	}
	if len(greeting) < 3 || string(greeting[:3]) != "HI " || stdjson.Unmarshal(greeting[3:], &hi) != nil {
		return &PeerError{f.address, f.setting, ErrNotFaktory}
	}
	hello := map[string]any{"v": faktory.Version}
	if hi.Salt != "" {
		hello["pwdhash"] = faktory.Hash(password, hi.Salt, min(hi.Iterations, 1<<20)) // a server asks for some thousand
	}
	text, _ := stdjson.Marshal(hello) // strings and numbers can be marshalled
	_, err = f.Ask(ctx, "HELLO", text)
	return err
}

// SamePeer reports whether both connections lead to one address.
func (f *Faktory) SamePeer(o *Faktory) bool {
	return f.conn.RemoteAddr().String() == o.conn.RemoteAddr().String()
}

// Close ends the connection.
func (f *Faktory) Close() { _ = f.conn.Close() }

// Ask sends a command and returns its reply, valid until the next call, nil when the server has none. An error reply is
// an error.
func (f *Faktory) Ask(ctx context.Context, word string, text []byte) ([]byte, error) {
	f.out = append(f.out[:0], word...)
	if len(text) > 0 {
		f.out = append(append(f.out, ' '), text...)
	}
	f.out = append(f.out, "\r\n"...)
	deadline, _ := ctx.Deadline()
	if err := f.conn.SetDeadline(deadline); err != nil {
		return nil, newPeerError(f.address, f.setting, err)
	}
	if _, err := f.conn.Write(f.out); err != nil {
		return nil, newPeerError(f.address, f.setting, err)
	}
	return f.reply(ctx)
}

// reply reads the next reply.
func (f *Faktory) reply(ctx context.Context) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { _ = f.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		kind, data, n, err := faktory.NextReply(f.in, maxFaktoryReply)
		switch {
		case err != nil:
			return nil, &PeerError{f.address, f.setting, ErrNotFaktory}
		case n == 0:
			if err := f.read(); err != nil {
				return nil, newPeerError(f.address, f.setting, err)
			}
			continue
		}
		f.in = f.in[n:]
		switch kind {
		case faktory.Error:
			return nil, fmt.Errorf("%s answered: %.200q", f.address, data)
		case faktory.Null:
			return nil, nil
		}
		return data, nil
	}
}

// read reads more bytes.
func (f *Faktory) read() error {
	if cap(f.in)-len(f.in) < readBuffer {
		f.in = append(make([]byte, 0, 2*len(f.in)+readBuffer), f.in...)
	}
	n, err := f.conn.Read(f.in[len(f.in):cap(f.in)])
	if f.in = f.in[:len(f.in)+n]; n > 0 {
		return nil
	}
	return err
}

// FaktoryState is what INFO tells about a server.
type FaktoryState struct {
	Queues  map[string]int64
	Sets    map[string]int64 // scheduled, retries, dead and working
	Workers int64            // processes that are connected
	Product string
}

// State asks for INFO.
func (f *Faktory) State(ctx context.Context) (*FaktoryState, error) {
	text, err := f.Ask(ctx, "INFO", nil)
	if err != nil {
		return nil, err
	}
	var info struct {
		Faktory struct {
			Queues map[string]int64 `json:"queues"`
			Sets   map[string]int64 `json:"sets"`
			Tasks  map[string]struct {
				Size int64 `json:"size"`
			} `json:"tasks"`
		} `json:"faktory"`
		Server struct {
			Description string `json:"description"`
		} `json:"server"`
	}
	if err := stdjson.Unmarshal(text, &info); err != nil {
		return nil, &PeerError{f.address, f.setting, ErrNotFaktory}
	}
	d := &info.Faktory
	return &FaktoryState{Queues: d.Queues, Sets: d.Sets, Workers: d.Tasks["Workers"].Size, Product: info.Server.Description}, nil
}
