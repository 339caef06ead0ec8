package client

import (
	"bytes"
	"context"
	"fmt"

	"treadle/codec/gloom"
	"treadle/codec/jsontext"
)

// GloomJob is one Gloom job. ID, Type and Body are JSON texts; GloomText and GloomValue build them.
type GloomJob struct {
	ID, Type []byte
	Priority int64 // higher is earlier
	Body     []byte
}

// GloomText returns text as a JSON string.
func GloomText(text string) []byte { return jsontext.AppendText(nil, []byte(text)) }

// GloomValue returns data as JSON: unchanged when it is one JSON value, else as a JSON string or,
// when it is not UTF-8, as the object {"base64":"..."}.
func GloomValue(data []byte) []byte {
	value, _ := jsontext.AppendValue(nil, data)
	return value
}

// GloomCharacters returns the characters of a JSON string, and any other JSON text unchanged.
func GloomCharacters(raw []byte) string {
	text, _ := jsontext.Text(nil, raw)
	return string(text)
}

// Master submits Gloom jobs, one after the other. The server deletes the queued jobs of a master
// whose connection ends. One goroutine at a time may use it.
type Master struct{ conn *gloomConn }

// mastersSetting and slavesSetting name Gloom servers on the command line.
const (
	mastersSetting = "-H or TREADLE_GLOOM_MASTERS"
	slavesSetting  = "-H or TREADLE_GLOOM_SLAVES"
)

// DialMaster connects to the masters' port at an address as Dial does.
func DialMaster(ctx context.Context, address string) (*Master, error) {
	c, err := dialGloom(ctx, address, mastersSetting)
	if err != nil {
		return nil, err
	}
	return &Master{c}, nil
}

// Close closes the connection.
func (m *Master) Close() { m.conn.close() }

// Run submits a job and waits for the body of its response until ctx ends. A server's error is a
// GloomError.
func (m *Master) Run(ctx context.Context, j *GloomJob) (body []byte, err error) {
	err = m.submit(ctx, j)
	for err == nil {
		var r gloom.Reply
		r, err = m.conn.next(ctx)
		switch {
		case err != nil:
		case r.Error != nil && isAbout(&r, j):
			err = newGloomError(&r)
		case r.Body != nil && bytes.Equal(r.ID, j.ID):
			return r.Body, nil
		}
	}
	return nil, m.conn.describe(fmt.Sprintf("run the job %s", j.ID), err)
}

// Submit submits a job and returns when the server has accepted it. The job's response is lost.
func (m *Master) Submit(ctx context.Context, j *GloomJob) error {
	err := m.submit(ctx, j)
	if err == nil {
		// A server reports a duplicate id after its acknowledgement. It refuses the probe after
		// that, so the refusal shows that no report will come.
		err = m.conn.send(ctx, func(dst []byte) []byte { return append(dst, probe...) })
	}
	for err == nil {
		var r gloom.Reply
		r, err = m.conn.next(ctx)
		switch {
		case err != nil || r.Error == nil:
		case string(r.Error) == `"`+gloom.UnknownAction+`"`:
			return nil
		case isAbout(&r, j):
			err = newGloomError(&r)
		}
	}
	return m.conn.describe(fmt.Sprintf("submit the job %s", j.ID), err)
}

const probe = "\x00\x00\x00\x11" + `{"action":"ping"}`

func (m *Master) submit(ctx context.Context, j *GloomJob) error {
	err := m.conn.send(ctx, func(dst []byte) []byte { return gloom.AppendSubmit(dst, j.ID, j.Type, j.Priority, j.Body) })
	if err != nil {
		return err
	}
	// Until the acknowledgement, messages for abandoned jobs may arrive.
	return m.conn.await(ctx, func(r *gloom.Reply) bool { return r.Error == nil || !isAbout(r, j) })
}

// isAbout reports whether an error is about j: it does not name another job's id.
func isAbout(r *gloom.Reply, j *GloomJob) bool {
	name, _ := jsontext.Text(nil, r.Error)
	return string(name) != gloom.JobFailed && string(name) != gloom.IDExists || bytes.Equal(r.Reason, j.ID)
}

// Slave does Gloom jobs, one at a time. When its connection ends, the server gives its unfinished
// job to another slave, up to three times. One goroutine at a time may use it.
type Slave struct {
	conn *gloomConn
	job  *GloomJob // received before Next was called
}

// DialSlave connects to the slaves' port at an address as Dial does.
func DialSlave(ctx context.Context, address string) (*Slave, error) {
	c, err := dialGloom(ctx, address, slavesSetting)
	if err != nil {
		return nil, err
	}
	return &Slave{conn: c}, nil
}

// Close closes the connection.
func (s *Slave) Close() { s.conn.close() }

// Address returns the server's address as network://address.
func (s *Slave) Address() string { return s.conn.address }

// Join selects the slave's type, JSON text. It returns when the server has accepted it.
func (s *Slave) Join(ctx context.Context, typ []byte) error {
	err := s.conn.send(ctx, func(dst []byte) []byte { return gloom.AppendJoin(dst, typ) })
	if err == nil {
		err = s.conn.await(ctx, s.take)
	}
	return s.conn.describe(fmt.Sprintf("join %s", typ), err)
}

// take keeps a job that arrives while another reply is expected.
func (s *Slave) take(r *gloom.Reply) bool {
	if s.job != nil || string(r.Action) != `"job"` {
		return false
	}
	s.job = &GloomJob{ID: r.ID, Type: r.Type, Body: r.Body}
	return true
}

// Next waits for a job, which Respond finishes. It may be called again after its ctx has ended.
func (s *Slave) Next(ctx context.Context) (*GloomJob, error) {
	if s.job == nil {
		r, err := s.conn.next(ctx)
		switch {
		case err != nil:
		case r.Error != nil:
			err = newGloomError(&r)
		case !s.take(&r):
			err = ErrNotGloom
		}
		if err != nil {
			return nil, s.conn.describe("wait for a job", err)
		}
	}
	j := s.job
	s.job = nil
	return j, nil
}

// Respond finishes the job of Next with a body, JSON text. It returns when the server has accepted
// it.
func (s *Slave) Respond(ctx context.Context, body []byte) error {
	err := s.conn.send(ctx, func(dst []byte) []byte { return gloom.AppendRespond(dst, body) })
	if err == nil {
		err = s.conn.await(ctx, nil)
	}
	return s.conn.describe("respond", err)
}

// Leave asks the server to send no more jobs, so that Close loses none. It returns the job that was
// already on its way, which still needs a Respond, or nil.
func (s *Slave) Leave(ctx context.Context) (*GloomJob, error) {
	if err := s.Join(ctx, []byte(gloom.Leaving)); err != nil {
		return nil, err
	}
	j := s.job
	s.job = nil
	return j, nil
}
