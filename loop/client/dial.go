// Package client is a blocking client of the Periodic and the Gloom protocol, for
// the command line and for tests. In Periodic a Client submits jobs and
// administers the server, a Worker does jobs; the 2018 framing forbids one
// connection to be both. Both keep reading whatever the caller does, so that a
// reply nobody waits for never blocks the server, and both ping, so that an idle
// connection outlives the server's keepalive. In Gloom a Master submits jobs and a
// Slave does them. A Hub speaks dwork, a Kts46 the kts46 scheduler's XML-RPC.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"treadle/codec/periodic"
)

const (
	// defaultPingEvery is what the client libraries of the protocol use; the
	// server's keepalive is three times as long.
	defaultPingEvery = 100 * time.Second
	// dialTimeout bounds connecting and the handshake: a peer that accepts and
	// says nothing is not a Periodic server.
	dialTimeout = 10 * time.Second
)

// CRC is the framing of 2019 and later.
const CRC = periodic.CRC

// Options are the settings of a connection; the zero value is the 2018 framing.
type Options struct {
	// Framing is periodic.Plain (2018) or periodic.CRC.
	Framing periodic.Framing
	// Newest has the CRC framing spoken where the server does, else Framing.
	Newest bool
	// PingEvery is the time between two pings; default 100 s. A connection on
	// which nothing at all arrives between two pings is given up.
	PingEvery time.Duration
}

// Sentinels of what a server may answer instead of doing what was asked.
var (
	// ErrRefused is the server's UNKNOWN: it does not know the request, or
	// refuses it for want of disk, by a limit or by a setting.
	ErrRefused = errors.New("the server refused the request (it answered UNKNOWN)")
	// ErrNoWorker is NO_WORKER of the CRC eras: nobody can do the function.
	ErrNoWorker = errors.New("no worker for this function is connected")
	// ErrFailed, ErrExpired and ErrRemoved are ends of a job that was to be run, without a result.
	ErrFailed  = errors.New("the job failed")
	ErrExpired = errors.New("the job was not done within its time-out")
	ErrRemoved = errors.New("the job was removed before it was done")
	// ErrClosed is the end of a connection by the server.
	ErrClosed = errors.New("the server closed the connection")
	// ErrNotPeriodic is a peer whose bytes are not frames of the protocol.
	ErrNotPeriodic = errors.New("what answers there does not speak Periodic in this framing")

	errClosedHere = errors.New("this connection has been closed")
)

// DialError is a server that could not be reached.
type DialError struct {
	Address string // as network://address
	Setting string // what names it on the command line
	Err     error
}

func (e *DialError) Error() string {
	return fmt.Sprintf("cannot connect to %s: %v (is `treadle serve` running? %s names the server)", e.Address, e.Err, e.Setting)
}

// Unwrap returns the reason.
func (e *DialError) Unwrap() error { return e.Err }

// SocketError is a socket that is not connected to, because it may be another's than the server's.
type SocketError struct {
	Address string // as network://address
	Err     error
}

func (e *SocketError) Error() string {
	return fmt.Sprintf("will not connect to %s: %v", e.Address, e.Err)
}

// Unwrap returns the reason.
func (e *SocketError) Unwrap() error { return e.Err }

// AddressError is an address that cannot be one, whatever is running.
type AddressError struct {
	Address string // as it was given
	Setting string // what names it on the command line
	Err     error
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("%s: %q: %v; write it as host, host:port, tcp://host:port, unix:///path or a path", e.Setting, e.Address, e.Err)
}

// Unwrap returns the reason.
func (e *AddressError) Unwrap() error { return e.Err }

// Dial connects to the server at address as a client: tcp://host:port,
// unix:///path, host:port, a path, or a host alone, whose port is the protocol's
// default. Connecting takes at most 10 s, or less by ctx; the connection itself
// does not depend on ctx afterwards.
func Dial(ctx context.Context, address string, o Options) (*Client, error) {
	c, err := dial(ctx, address, periodic.Client, o)
	if err != nil {
		return nil, err
	}
	c.start()
	return &Client{c}, nil
}

// DialWorker connects to the server at address as a worker; see Dial.
func DialWorker(ctx context.Context, address string, o Options) (*Worker, error) {
	c, err := dial(ctx, address, periodic.Worker, o)
	if err != nil {
		return nil, err
	}
	w := &Worker{c}
	c.stray = w.handBack
	c.start()
	return w, nil
}

// hostSetting names a Periodic server on the command line.
const hostSetting = "-H or TREADLE_HOST"

// reach connects to what a user has written, and returns it as network://address.
func reach(ctx context.Context, address, setting string) (nc net.Conn, name string, err error) {
	network, target, err := splitAddress(address, ports[setting])
	if err != nil {
		return nil, "", &AddressError{address, setting, err}
	}
	name = network + "://" + target
	if network == "unix" {
		if err := trusted(target, os.Geteuid()); err != nil {
			return nil, name, &SocketError{name, err}
		}
	}
	nc, err = (&net.Dialer{}).DialContext(ctx, network, target)
	if err != nil {
		return nil, name, &DialError{name, setting, plain(err)}
	}
	return nc, name, nil
}

func dial(ctx context.Context, address string, role periodic.Role, o Options) (*conn, error) {
	if o.Newest && o.Framing == periodic.Plain {
		newest := o
		newest.Framing = periodic.CRC
		short, cancel := context.WithTimeout(ctx, newestTimeout)
		c, err := dialFraming(short, address, role, newest)
		cancel()
		// An I/O deadline can pass shortly before its context ends.
		deadline, bounded := ctx.Deadline()
		over := ctx.Err() != nil || bounded && !time.Now().Before(deadline)
		// A server of 2018 takes the checksum for an unknown greeting.
		if err == nil || over || !errors.As(err, new(*PeerError)) {
			return c, err
		}
	}
	return dialFraming(ctx, address, role, o)
}

// newestTimeout is how long a server may take to say that it speaks the CRC framing.
const newestTimeout = 3 * time.Second

func dialFraming(ctx context.Context, address string, role periodic.Role, o Options) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, name, err := reach(ctx, address, hostSetting)
	if err != nil {
		return nil, err
	}
	if o.PingEvery <= 0 {
		o.PingEvery = defaultPingEvery
	}
	c := newConn(nc, name, o)
	if err := c.handshake(ctx, role); err != nil {
		nc.Close()
		return nil, unheard(name, hostSetting, err)
	}
	return c, nil
}

// splitAddress turns an address as a user writes it into the arguments of net.Dial.
// defaultPort is the port of a host alone.
func splitAddress(a, defaultPort string) (network, address string, err error) {
	switch scheme, rest, found := strings.Cut(a, "://"); {
	case found && scheme == "unix" && rest == "":
		return "", "", errors.New("the path is missing")
	case found && scheme == "unix":
		return "unix", rest, nil
	case found && scheme == "tcp":
		a = rest
	case found:
		return "", "", fmt.Errorf("the scheme %q is neither tcp nor unix", scheme)
	case strings.Contains(a, "/"):
		return "unix", a, nil
	}
	if a == "" {
		return "", "", errors.New("the host is missing")
	}
	if host, alone := HostAlone(a); alone {
		return "tcp", net.JoinHostPort(host, defaultPort), nil
	}
	_, port, err := net.SplitHostPort(a)
	var syntax *net.AddrError // it says the address again
	if errors.As(err, &syntax) {
		return "", "", errors.New(syntax.Err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return "", "", fmt.Errorf("%q is no port", port)
	}
	return "tcp", a, nil
}

// plain reduces the nested errors of net to the one thing that happened, since
// the callers already say what was tried and where.
func plain(err error) error {
	var errno syscall.Errno
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &reworded{"no answer in time", context.DeadlineExceeded}
	case errors.Is(err, context.Canceled):
		return &reworded{"interrupted", context.Canceled}
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return ErrClosed
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &dns):
		return dns
	}
	return err
}

// reworded is an error of context in words that mean something to a user.
type reworded struct {
	text string
	err  error
}

func (e *reworded) Error() string { return e.text }
func (e *reworded) Unwrap() error { return e.err }
