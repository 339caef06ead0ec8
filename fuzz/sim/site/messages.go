//go:build invariants

package site

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/mongotest"
)

// message is a command for the database, a call of the server, or a reply, on its way.
type message struct {
	process *process
	what    string
	back    bool   // the message is an answer
	call    func() // call of the server; nil: a command for the database
	fault   mongotest.Fault
	open    chan struct{}
}

func (m *message) String() string {
	if m.back {
		return fmt.Sprintf("%v is answered %s", m.process, m.what)
	}
	return fmt.Sprintf("%v asks %s", m.process, m.what)
}

// breaks reports whether a process that still runs would see its connection end by the loss of the message.
func (m *message) breaks() bool { return m.call == nil && !m.process.isDead() }

func (m *message) pass(fault mongotest.Fault) {
	m.fault = fault
	if m.call != nil && !m.process.isDead() {
		m.call()
	}
	close(m.open)
}

// wait waits until the play delivers the message.
func (m *message) wait() mongotest.Fault {
	m.open = make(chan struct{})
	s := m.process.site
	s.mu.Lock()
	s.arrived = append(s.arrived, m)
	s.mu.Unlock()
	<-m.open
	return m.fault
}

// theRun is in commands and different in each play.
var theRun = regexp.MustCompile(`,"treadle_run":\{"\$oid":"[0-9a-f]*"\}`)

// describe is a command as text; commands of the driver's own have none.
func describe(command bson.D) string {
	switch command[0].Key {
	case "hello", "ismaster", "isMaster", "endSessions":
		return ""
	}
	text, err := bson.MarshalExtJSON(slices.DeleteFunc(slices.Clone(command), func(e bson.E) bool {
		return e.Key == "lsid" || e.Key == "$db" || e.Key == "maxTimeMS"
	}), false, false)
	if err != nil {
		panic(err) // it came as a document
	}
	return theRun.ReplaceAllString(string(text), "")
}

// BeforeCommand implements mongotest.Hooks.
func (p *process) BeforeCommand(command bson.D) mongotest.Fault {
	what := describe(command)
	switch {
	case p.isDead(), what != "" && p.site.away.Load():
		time.Sleep(refusal)
		return mongotest.LoseCall
	case what == "":
		return mongotest.None
	}
	return (&message{process: p, what: what}).wait()
}

// BeforeReply implements mongotest.Hooks.
func (p *process) BeforeReply(command bson.D) (lost bool) {
	what := describe(command)
	if what == "" {
		return false
	}
	(&message{process: p, what: what, back: true}).wait()
	return p.site.away.Load()
}
