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

// Limits that a MongoDB has.
const (
	maxDocument = 16 << 20
	maxMessage  = 48000000
	maxBatch    = 100000
)

// Fault is what happens to a command.
type Fault int

// The faults.
const (
	None      Fault = iota
	LoseReply       // it is executed, and the connection drops before the reply
	LoseCall        // the connection drops before it is executed
	Twice           // it is executed twice, and the second reply is sent
	CutReply        // it is executed, and the connection drops in the middle of the reply
	Refuse          // it is not executed, and the reply is that it is not allowed
	Faults          // how many there are, with None
)

// Server is a double that listens on a port of this machine.
type Server struct {
	address string
	store   *store

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	conns    map[net.Conn]bool
	fault    func(command string) Fault
	calls    map[string]int
	accepted int
	users    *users // nil: everybody is served
	serving  sync.WaitGroup
}

// Start starts a double without data.
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

// New makes a double without data that does not listen: see Talk.
func New() *Server {
	return &Server{store: newStore(), conns: make(map[net.Conn]bool), calls: make(map[string]int)}
}

// Way is what lies between a client and the double.
type Way interface {
	// Comes is called before a command is executed, which waits for it, and says what goes
	// wrong with it.
	Comes(command bson.D) Fault
	// Goes is called when it was executed; the reply waits for it, and is sent unless it is
	// lost with the connection.
	Goes(command bson.D) (lost bool)
}

// Talk serves one client until the connection ends.
func (s *Server) Talk(c net.Conn, w Way) { s.talk(c, w) }

// Run executes a command at once, and returns the reply.
func (s *Server) Run(command bson.D) bson.D { return s.store.run(command) }

// Address is host and port.
func (s *Server) Address() string { return s.address }

// Stop ends the connections and the listener, and waits for both. The data stay: Resume
// goes on with them on the same port.
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

// Resume accepts connections again after a Stop.
func (s *Server) Resume() error {
	l, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.serve(l)
	return nil
}

// Inject has every command ask what is to go wrong with it; nil ends that. fault is called
// by several goroutines, and its command waits for it.
func (s *Server) Inject(fault func(command string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Calls returns how often a command was executed.
func (s *Server) Calls(command string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[command]
}

// Accepted returns how many connections there were.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

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
			s.serving.Go(func() { s.talk(c, s) })
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

func (s *Server) talk(c net.Conn, w Way) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	var stranger peer
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
		reply, fault := s.execute(&stranger, command, w)
		if fault == LoseCall || fault == LoseReply {
			return
		}
		if w.Goes(command) {
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

// parse reads the command of a message; sequences of documents become arrays in it.
func parse(code uint32, body []byte) (command bson.D, silent bool, err error) {
	switch code {
	case opQuery: // flags, name, two numbers, document; drivers begin with it
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

// Comes implements Way for connections to the port.
func (s *Server) Comes(command bson.D) Fault {
	s.mu.Lock()
	ask := s.fault
	s.mu.Unlock()
	if ask == nil {
		return None
	}
	return ask(command[0].Key)
}

// Goes implements Way.
func (s *Server) Goes(bson.D) (lost bool) { return false }

// execute runs a command with what is to go wrong with it.
func (s *Server) execute(from *peer, command bson.D, w Way) (reply bson.D, fault Fault) {
	name := command[0].Key
	switch fault = w.Comes(command); fault {
	case LoseCall:
		return nil, fault
	case Refuse:
		return refused(refusal{codeUnauthorized, "not authorized to run " + name}), fault
	}
	if reply, ok := s.admit(from, command); ok {
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
