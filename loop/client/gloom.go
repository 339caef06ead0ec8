package client

import (
	"bytes"
	"context"
	"fmt"

	"treadle/codec/gloom"
)

// GloomJob is one job as the Gloom protocol carries it. ID, Type and Body are JSON
// texts; GloomText and GloomValue make such.
type GloomJob struct {
	ID, Type []byte
	Priority int64 // larger ones are done first
	Body     []byte
}

// GloomText returns text as a JSON string.
func GloomText(text string) []byte { return gloom.AppendText(nil, []byte(text)) }

// GloomValue returns data as JSON: itself when it is one JSON value, else a JSON
// string, or when it is not UTF-8 the object {"base64":"..."}.
func GloomValue(data []byte) []byte {
	value, _ := gloom.AppendValue(nil, data)
	return value
}

// GloomCharacters returns the characters of a JSON string, and any other JSON text
// as it is.
func GloomCharacters(raw []byte) string {
	text, _ := gloom.Text(nil, raw)
	return string(text)
}

// Master submits Gloom jobs, one after the other. The server clears the queued
// jobs of a master whose connection ends. One goroutine at a time may use it.
type Master struct{ conn *gloomConn }

// mastersSetting and slavesSetting name Gloom servers on the command line.
const (
	mastersSetting = "-H or TREADLE_GLOOM_MASTERS"
	slavesSetting  = "-H or TREADLE_GLOOM_SLAVES"
)

// DialMaster connects to the masters' port at an address of the form that Dial
// takes.
func DialMaster(ctx context.Context, address string) (*Master, error) {
	c, err := dialGloom(ctx, address, mastersSetting)
	if err != nil {
		return nil, err
	}
	return &Master{c}, nil
}

// Close ends the connection.
func (m *Master) Close() { m.conn.close() }

// Run submits a job and returns the body of its response, for which it waits as
// long as ctx allows. What the server has against it is a GloomError.
func (m *Master) Run(ctx context.Context, j *GloomJob) (body []byte, err error) {
	err = m.submit(ctx, j)
	for err == nil {
		var r gloom.Reply
		r, err = m.conn.next(ctx)
		switch {
		case err != nil:
		case r.Error != nil && concerns(&r, j):
			err = refusal(&r)
		case r.Body != nil && bytes.Equal(r.ID, j.ID):
			return r.Body, nil
		}
	}
	return nil, m.conn.fault(fmt.Sprintf("run the job %s", j.ID), err)
}

// Submit hands a job in and returns when the server has taken it; its response is
// lost.
func (m *Master) Submit(ctx context.Context, j *GloomJob) error {
	err := m.submit(ctx, j)
	if err == nil {
		// That the id is taken is said behind the acknowledgement. The answer to a
		// question which every server refuses comes after that.
		err = m.conn.send(ctx, func(dst []byte) []byte { return append(dst, probe...) })
	}
	for err == nil {
		var r gloom.Reply
		r, err = m.conn.next(ctx)
		switch {
		case err != nil || r.Error == nil:
		case string(r.Error) == `"`+gloom.UnknownAction+`"`:
			return nil
		case concerns(&r, j):
			err = refusal(&r)
		}
	}
	return m.conn.fault(fmt.Sprintf("submit the job %s", j.ID), err)
}

const probe = "\x00\x00\x00\x11" + `{"action":"ping"}`

func (m *Master) submit(ctx context.Context, j *GloomJob) error {
	err := m.conn.send(ctx, func(dst []byte) []byte { return gloom.AppendSubmit(dst, j.ID, j.Type, j.Priority, j.Body) })
	if err != nil {
		return err
	}
	// Until then something may come for jobs that were given up.
	return m.conn.await(ctx, func(r *gloom.Reply) bool { return r.Error == nil || !concerns(r, j) })
}

// concerns says whether an error is about j: those that name another job's id are
// not.
func concerns(r *gloom.Reply, j *GloomJob) bool {
	name, _ := gloom.Text(nil, r.Error)
	return string(name) != gloom.JobFailed && string(name) != gloom.IDExists || bytes.Equal(r.Reason, j.ID)
}

// Slave does Gloom jobs, one at a time. A job that it has not responded to when its
// connection ends is given to another, up to three times. One goroutine at a time
// may use it.
type Slave struct {
	conn *gloomConn
	job  *GloomJob // came before it was asked for
}

// DialSlave connects to the slaves' port at an address of the form that Dial takes.
func DialSlave(ctx context.Context, address string) (*Slave, error) {
	c, err := dialGloom(ctx, address, slavesSetting)
	if err != nil {
		return nil, err
	}
	return &Slave{conn: c}, nil
}

// Close ends the connection.
func (s *Slave) Close() { s.conn.close() }

// Address returns the server's address as network://address.
func (s *Slave) Address() string { return s.conn.address }

// Join makes the slave one of a type, JSON text; it returns when the server knows.
func (s *Slave) Join(ctx context.Context, typ []byte) error {
	err := s.conn.send(ctx, func(dst []byte) []byte { return gloom.AppendJoin(dst, typ) })
	if err == nil {
		err = s.conn.await(ctx, s.take)
	}
	return s.conn.fault(fmt.Sprintf("join %s", typ), err)
}

// take keeps a job that comes while something else is waited for.
func (s *Slave) take(r *gloom.Reply) bool {
	if s.job != nil || string(r.Action) != `"job"` {
		return false
	}
	s.job = &GloomJob{ID: r.ID, Type: r.Type, Body: r.Body}
	return true
}

// Next waits for a job, which Respond ends. A Next whose ctx ends may be repeated.
func (s *Slave) Next(ctx context.Context) (*GloomJob, error) {
	if s.job == nil {
		r, err := s.conn.next(ctx)
		switch {
		case err != nil:
		case r.Error != nil:
			err = refusal(&r)
		case !s.take(&r):
			err = ErrNotGloom
		}
		if err != nil {
			return nil, s.conn.fault("wait for a job", err)
		}
	}
	j := s.job
	s.job = nil
	return j, nil
}

// Respond ends the job that Next returned with a body, JSON text; it returns when
// the server has taken it.
func (s *Slave) Respond(ctx context.Context, body []byte) error {
	err := s.conn.send(ctx, func(dst []byte) []byte { return gloom.AppendRespond(dst, body) })
	if err == nil {
		err = s.conn.await(ctx, nil)
	}
	return s.conn.fault("respond", err)
}

// nobody is a type of which no job is expected; it is no string, so that no
// function has its name.
const nobody = `{"treadle":"leaving"}`

// Leave tells the server to send no more jobs, so that closing loses none. It
// returns the job that was on its way, or nil; that one still wants a Respond.
func (s *Slave) Leave(ctx context.Context) (*GloomJob, error) {
	if err := s.Join(ctx, []byte(nobody)); err != nil {
		return nil, err
	}
	j := s.job
	s.job = nil
	return j, nil
}
