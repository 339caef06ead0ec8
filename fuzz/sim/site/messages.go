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

func (p *message) String() string {
	if p.back {
		return fmt.Sprintf("%v is answered %s", p.process, p.what)
	}
	return fmt.Sprintf("%v asks %s", p.process, p.what)
}

// breaks reports whether a process that still runs would see its connection end by the loss of the message.
func (p *message) breaks() bool { return p.call == nil && !p.process.isDead() }

func (p *message) pass(fault mongotest.Fault) {
	p.fault = fault
	if p.call != nil && !p.process.isDead() {
		p.call()
	}
	close(p.open)
}

// wait waits until the play delivers the message.
func (p *message) wait() mongotest.Fault {
	p.open = make(chan struct{})
	s := p.process.site
	s.mu.Lock()
	s.arrived = append(s.arrived, p)
	s.mu.Unlock()
	<-p.open
	return p.fault
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
func (l *process) BeforeCommand(command bson.D) mongotest.Fault {
	what := describe(command)
	switch {
	case l.isDead(), what != "" && l.site.away.Load():
		time.Sleep(refusal)
		return mongotest.LoseCall
	case what == "":
		return mongotest.None
	}
	return (&message{process: l, what: what}).wait()
}

// BeforeReply implements mongotest.Hooks.
func (l *process) BeforeReply(command bson.D) (lost bool) {
	what := describe(command)
	if what == "" {
		return false
	}
	(&message{process: l, what: what, back: true}).wait()
	return l.site.away.Load()
}
