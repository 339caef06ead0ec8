package mongotest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"go.mongodb.org/mongo-driver/bson"
)

// Limits of MongoDB.
const (
	maxDocument = 16 << 20
	maxMessage  = 48000000
	maxBatch    = 100000
)

// Fault is a fault of one command.
type Fault int

// Kinds of faults.
const (
	None      Fault = iota
	LoseReply       // the command runs; the connection closes before the reply
	LoseCall        // the connection closes before the command runs
	Twice           // the command runs twice; the second reply is sent
	CutReply        // the command runs; the connection closes in the middle of the reply
	Refuse          // the command does not run; the reply is an error
	NumFaults       // number of kinds, with None
)

// Server is a fake, with or without a listener. Its methods are safe for concurrent use.
type Server struct {
	address string
	store   *store

	mu       sync.Mutex
	listener net.Listener // nil: not listening
	conns    map[net.Conn]bool
	fault    func(command string) Fault
	calls    map[string]int
	accepted int
	users    *users // nil: no authentication
	serving  sync.WaitGroup
}

// Start starts an empty fake on a port of this host.
func Start() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := New()
	s.address = l.Addr().String()
	s.serve(l)
	return s, nil
}

// New returns an empty fake without a listener. ServeConn serves its clients.
func New() *Server {
	return &Server{store: newStore(), conns: make(map[net.Conn]bool), calls: make(map[string]int)}
}

// Hooks delays commands and replies of a connection and injects faults.
type Hooks interface {
	// BeforeCommand runs before a command and returns its fault. The command waits for it.
	BeforeCommand(command bson.D) Fault
	// BeforeReply runs after a command. The reply waits for it. If lost, the connection closes without the reply.
	BeforeReply(command bson.D) (lost bool)
}

// Run executes a command without a connection and returns the reply.
func (s *Server) Run(command bson.D) bson.D { return s.store.run(command) }

// Address returns host:port of the listener.
func (s *Server) Address() string { return s.address }

// Stop closes the listener and all connections and waits for their goroutines. The data stay for Resume.
func (s *Server) Stop() {
	s.mu.Lock()
	if s.listener != nil {
		s.listener.Close()
		s.listener = nil
	}
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// Resume listens on the same port again after Stop.
func (s *Server) Resume() error {
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.serve(l)
	return nil
}

// Inject sets a function that returns the fault of each command, or nil for no faults. fault must be safe for
// concurrent use. Its command waits for it.
func (s *Server) Inject(fault func(command string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Calls returns the number of executions of a command.
func (s *Server) Calls(command string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[command]
}

// Accepted returns the number of accepted connections.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// serve accepts connections of a listener.
func (s *Server) serve(l net.Listener) {
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			stopped := s.listener != l
			if !stopped {
				s.conns[c] = true
				s.accepted++
			}
			s.mu.Unlock()
			if stopped {
				c.Close()
				return
			}
			s.serving.Go(func() { s.ServeConn(c, s) })
		}
	})
}

// Operation codes of the wire protocol.
const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
)

// Flags of OP_MSG.
const (
	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1
)

// ServeConn serves one connection until its end.
func (s *Server) ServeConn(c net.Conn, w Hooks) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	var user login
	for {
		var header [16]byte
		if _, err := io.ReadFull(in, header[:]); err != nil {
			return
		}
		size, id, code := int(le.Uint32(header[:])), le.Uint32(header[4:]), le.Uint32(header[12:])
		if size < 16 || size > maxMessage {
			return
		}
		body := make([]byte, size-16)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		command, silent, err := parse(code, body)
		if err != nil {
			return
		}
		reply, fault := s.execute(&user, command, w)
		if fault == LoseCall || fault == LoseReply {
			return
		}
		if w.BeforeReply(command) {
			return
		}
		if silent {
			continue
		}
		answer := encode(code, id, reply)
		if fault == CutReply {
			answer = answer[:len(answer)/2]
		}
		if _, err := c.Write(answer); err != nil || fault == CutReply {
			return
		}
	}
}

var le = binary.LittleEndian

// parse reads the command of a message. Document sequences become array fields of the command.
func parse(code uint32, body []byte) (command bson.D, silent bool, err error) {
	switch code {
	case opQuery: // flags, name, two numbers, document: the first message of a driver
		for i := 4; i < len(body); i++ {
			if body[i] == 0 && i+9 < len(body) {
				err = bson.Unmarshal(body[i+9:], &command)
				return command, false, err
			}
		}
		return nil, false, io.ErrUnexpectedEOF
	case opMsg:
	default:
		return nil, false, fmt.Errorf("unknown operation %d", code)
	}
	if len(body) < 5 {
		return nil, false, io.ErrUnexpectedEOF
	}
	flags := le.Uint32(body)
	body = body[4:]
	if flags&flagChecksum != 0 && len(body) >= 4 {
		body = body[:len(body)-4]
	}
	var sequences bson.D
	for len(body) > 0 {
		kind := body[0]
		if len(body) < 5 {
			return nil, false, io.ErrUnexpectedEOF
		}
		size := int(le.Uint32(body[1:]))
		if size < 4 || size+1 > len(body) {
			return nil, false, io.ErrUnexpectedEOF
		}
		section := body[1 : 1+size]
		body = body[1+size:]
		if kind == 0 {
			if err := bson.Unmarshal(section, &command); err != nil {
				return nil, false, err
			}
			continue
		}
		sequence, err := parseSequence(section[4:])
		if err != nil {
			return nil, false, err
		}
		sequences = append(sequences, sequence)
	}
	if len(command) == 0 {
		return nil, false, errors.New("no command")
	}
	return append(command, sequences...), flags&flagMoreToCome != 0, nil
}

// parseSequence reads a document sequence as an array field.
func parseSequence(section []byte) (e bson.E, err error) {
	for i, b := range section {
		if b != 0 {
			continue
		}
		e.Key = string(section[:i])
		var docs bson.A
		for rest := section[i+1:]; len(rest) > 0; {
			if len(rest) < 4 || int(le.Uint32(rest)) < 5 || int(le.Uint32(rest)) > len(rest) {
				return e, io.ErrUnexpectedEOF
			}
			size := le.Uint32(rest)
			docs = append(docs, bson.Raw(rest[:size]))
			rest = rest[size:]
		}
		e.Value = docs
		return e, nil
	}
	return e, io.ErrUnexpectedEOF
}

// encode returns the message of a reply.
func encode(code, id uint32, reply bson.D) []byte {
	out := make([]byte, 16, 512)
	if code == opQuery {
		le.PutUint32(out[12:], opReply)
		out = append(out, make([]byte, 20)...) // flags, cursor, start
		le.PutUint32(out[32:], 1)              // documents
	} else {
		le.PutUint32(out[12:], opMsg)
		out = append(out, 0, 0, 0, 0, 0) // flags, kind
	}
	doc, err := bson.Marshal(reply)
	if err != nil {
		panic("BUG: a reply that is no document: " + err.Error())
	}
	out = append(out, doc...)
	le.PutUint32(out, uint32(len(out)))
	le.PutUint32(out[8:], id)
	return out
}

// BeforeCommand implements Hooks for accepted connections.
func (s *Server) BeforeCommand(command bson.D) Fault {
	s.mu.Lock()
	ask := s.fault
	s.mu.Unlock()
	if ask == nil {
		return None
	}
	return ask(command[0].Key)
}

// BeforeReply implements Hooks.
func (s *Server) BeforeReply(bson.D) (lost bool) { return false }

// execute runs a command with its fault.
func (s *Server) execute(from *login, command bson.D, w Hooks) (reply bson.D, fault Fault) {
	name := command[0].Key
	switch fault = w.BeforeCommand(command); fault {
	case LoseCall:
		return nil, fault
	case Refuse:
		return errorReply(commandError{codeUnauthorized, "not authorized to run " + name}), fault
	}
	if reply, ok := s.authenticate(from, command); ok {
		return reply, fault
	}
	s.mu.Lock()
	s.calls[name]++
	s.mu.Unlock()
	if fault == Twice {
		s.store.run(command)
	}
	return s.store.run(command), fault
}
