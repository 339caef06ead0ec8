package loop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"treadle/loop/protocol"
)

// listen opens every address but that of HTTP before anything is served.
func (s *Server) listen() error {
	if err := makeRunDir(s.o.RunDir, os.Geteuid()); err != nil {
		return &OptionError{Setting: "run-dir", Err: err, Code: exitFailure}
	}
	for _, from := range s.loopPorts() {
		for _, a := range from.Addresses {
			l, err := s.listenOn(from.Setting, a)
			if err != nil {
				return err
			}
			on := protocol.ListeningOn(from.Setting, l)
			on.StopsServer = from.StopsServer
			s.listening = append(s.listening, on)
			s.listeners = append(s.listeners, listener{l, a, from})
		}
	}
	for service := range protocolsWith[protocol.Service](s) {
		all, err := service.Listen()
		if err != nil {
			return err
		}
		s.listening = append(s.listening, all...)
	}
	if s.web != nil {
		s.listening = append(s.listening, Listening{Setting: "http", Address: s.httpAddress})
	}
	return nil
}

// loopPort is a port that the event loops serve.
type loopPort struct {
	protocol.Port
	protocol protocolID // whose share counts the connections
}

// loopPorts returns the ports of all protocols that the event loops serve.
func (s *Server) loopPorts() (all []loopPort) {
	for p := range protocolsWith[protocol.LoopServed](s) {
		for _, port := range p.Ports() {
			all = append(all, loopPort{port, s.conns.id(p.Name())})
		}
	}
	return all
}

// loopPort returns the first port of a setting. It panics if there is none.
func (s *Server) loopPort(setting string) loopPort {
	all := s.loopPorts()
	at := slices.IndexFunc(all, func(p loopPort) bool { return p.Setting == setting })
	if at < 0 {
		panic("BUG: no port is called " + setting)
	}
	return all[at]
}

// listener is an open address of a port.
type listener struct {
	net.Listener
	address string
	loopPort
}

// openAddress opens one address of a setting.
func openAddress(setting, address string) (net.Listener, error) {
	network, where, err := protocol.SplitAddress(address)
	if err != nil {
		return nil, &OptionError{Setting: setting, Err: err}
	}
	if network == "unix" {
		if err := clearSocket(where, os.Geteuid()); err != nil {
			return nil, cannotListen(setting, address, err)
		}
	}
	mode := socketMode(setting)
	l, err := listenWith(strings.Replace(network, "tls", "tcp", 1), where, mode)
	if err != nil {
		return nil, cannotListen(setting, address, err)
	}
	if network == "unix" {
		if err := os.Chmod(where, mode); err != nil { // the umask has taken bits away
			_ = l.Close() // no peer has used it
			return nil, protocol.BadOption(setting, "cannot set the mode of %s: %w", address, err)
		}
	}
	return l, nil
}

// listenWith opens an address. A Unix socket has at most the mode from its first moment on: the file gets the mode that
// the descriptor has before it is bound. A system that does not do so ignores it.
func listenWith(network, where string, mode os.FileMode) (net.Listener, error) {
	var o net.ListenConfig
	if network == "unix" {
		o.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), uint32(mode)) })
		}
	}
	return o.Listen(context.Background(), network, where)
}

// cannotListen returns the OptionError of an address that cannot be opened. It has exitFailure when
// the same address may work another time, unlike a port of 99999.
func cannotListen(setting, address string, err error) error {
	wrong := &OptionError{Setting: setting, Err: fmt.Errorf("cannot listen on %s: %w", address, plain(err))}
	var errno syscall.Errno
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		wrong.Err = fmt.Errorf("%w: another program has it, perhaps a treadle; stop that, or name another address", wrong.Err)
		wrong.Code = exitFailure
	case errors.As(err, new(socketError)), errors.As(err, &errno) && errno != syscall.EINVAL:
		wrong.Code = exitFailure
	}
	return wrong
}

// plain strips the parts of a system error that the message around it repeats.
func plain(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// warnOpen logs in one line which addresses other hosts can reach.
func (s *Server) warnOpen() {
	var open []string
	stops := false
	for _, l := range s.listening {
		network, address, _ := strings.Cut(l.Address, "://")
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); network == "unix" || err != nil || ip != nil && ip.IsLoopback() || s.tls.checksClients(address) {
			continue
		}
		open = append(open, l.Address)
		stops = stops || l.StopsServer
	}
	switch {
	case open == nil:
	case stops:
		s.log.Warn("anybody who reaches these addresses may use this server, and stop it: there is no authentication, and --periodic-shutdown is on", "addresses", strings.Join(open, " "))
	default:
		s.log.Warn("anybody who reaches these addresses may use this server: there is no authentication", "addresses", strings.Join(open, " "))
	}
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		_ = l.Close() // a second Close is harmless
	}
}

// acceptPause is how long a listener rests when the system is out of descriptors or memory. New
// connections wait in its backlog.
const acceptPause = 50 * time.Millisecond

// accept accepts connections of one address until the listener is closed. It pauses after an error.
func (s *Server) accept(l listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.counters.acceptErrors.Add(1)
			if s.logLimit.allow(s.now().Mono) {
				s.log.Warn("cannot accept", "address", l.address, "error", err)
			}
			time.Sleep(acceptPause)
			continue
		}
		s.admit(c, l)
	}
}

// admit serves a connection, unless the limit is reached.
func (s *Server) admit(c net.Conn, l listener) {
	if !s.takeConnSlot(c, l.protocol) {
		return
	}
	if err := s.engine.enroll(c, l.loopPort); err != nil {
		s.conns.remove(l.protocol)
		s.counters.acceptErrors.Add(1)
		if s.logLimit.allow(s.now().Mono) {
			s.log.Warn("cannot take a connection in", "error", fmt.Sprint(err))
		}
	}
}
