package loop

import (
	"encoding/binary"
	"strconv"
	"sync/atomic"

	"treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// administer does the requests about functions, settings and the server itself;
// false when the arguments are cut.
func (p *periodicTalk) administer(f *periodic.Frame) bool {
	server := p.s.r.server
	switch f.Cmd {
	case periodic.Status:
		p.status(f.MsgID, p.lead(), p.era.appendStatus)
		return true
	case periodic.Dump:
		p.report(f.MsgID, p.lead(), server.dumps, server.o.MaxOutbound, func() [][]byte { return server.encodeDump(&p.reports.left) })
		return true
	case periodic.Load:
		p.beginLoad(f, false)
		return true
	case periodic.Shutdown:
		if server.o.PeriodicShutdown != "on" {
			p.refuse(f.MsgID, periodic.ReasonSetting)
			return true
		}
		server.log.Info("a client asks to shut down", "remote", addressOf(p.s.conn))
		server.quit()
		return true
	case periodic.ConfigGet, periodic.ConfigSet:
		return p.configure(f)
	}
	return p.remove(f)
}

func (p *periodicTalk) configure(f *periodic.Frame) bool {
	server := p.s.r.server
	key, rest, ok := periodic.Str8(f.Args)
	if !ok {
		return false
	}
	place := p.era.keyOf(string(key))
	if f.Cmd == periodic.ConfigSet {
		value, _, ok := periodic.Uint32(rest)
		if !ok {
			return false
		}
		server.config.set(place, value)
		server.config.apply(server)
		server.config.save(server, place)
		group, wait := server.durableAll()
		p.replyAfter(f.MsgID, periodic.Success, group, wait)
		return true
	}
	if string(key) == periodic.KeyStatus {
		p.status(f.MsgID, []byte{byte(periodic.Config)}, appendDetails)
		return true
	}
	p.s.Touch()
	start := len(p.s.Out)
	out := periodic.AppendMessage(periodic.BeginResponse(p.s.Out, p.framing), f.MsgID, periodic.Config)
	value, own := p.ownKey(string(key))
	if !own {
		value = server.config.get(place, p.era)
	}
	out = binary.BigEndian.AppendUint32(out, value)
	periodic.End(out, start, p.framing)
	p.s.Out = out
	return true
}

// remove is REMOVE_JOB and DROP_FUNC, which succeed whether there was anything.
func (p *periodicTalk) remove(f *periodic.Frame) bool {
	r := p.s.r
	function, rest, ok := periodic.Str8(f.Args)
	if !ok {
		return false
	}
	if f.Cmd == periodic.DropFunc {
		p.last.removed = r.server.sched.Drop(protocol.Queue(function))
	} else {
		name, _, ok := periodic.Str8(rest)
		if !ok {
			return false
		}
		p.last.removed = r.server.sched.Remove(r.Now, periodicSpace, protocol.Queue(function), name, r)
	}
	p.acknowledge(f.MsgID, periodic.Success, protocol.Queue(function))
	return true
}

// longStatus is how many functions a STATUS may list on the event loop; a longer
// one is written beside it.
const longStatus = 1000

// line appends a function's line to a STATUS; more says that there is one before it.
type line func(out []byte, q sched.QueueStatus, more bool, now sched.Time) []byte

// lead is what stands between the message id and a report.
func (p *periodicTalk) lead() []byte {
	if p.era.dataReports {
		return []byte{byte(periodic.Data)}
	}
	return nil
}

// status is STATUS: a line a function, joined with newlines.
func (p *periodicTalk) status(msgID uint32, lead []byte, write line) {
	server := p.s.r.server
	queues := server.sched.Stats().Queues
	if queues > longStatus {
		p.report(msgID, lead, server.statuses, periodic.MaxPayload, func() [][]byte { return server.encodeStatus(write) })
		return
	}
	p.s.Looked += 2 * queues // each is written, too
	p.s.Touch()
	start := len(p.s.Out)
	out := binary.BigEndian.AppendUint32(periodic.BeginResponse(p.s.Out, p.framing), msgID)
	out = append(out, lead...)
	mark := len(out)
	server.sched.Status(func(q sched.QueueStatus) { out = write(out, q, len(out) > mark, p.s.r.Now) })
	periodic.End(out, start, p.framing)
	p.s.Out = out
}

// appendStatus writes one line: func,workers,jobs,processing,schedat; in the CRC eras
// with the locked jobs before schedat.
func (e *era) appendStatus(out []byte, q sched.QueueStatus, more bool, now sched.Time) []byte {
	if e.locked {
		return appendLine(out, q, more, now, q.Workers, q.Jobs, q.Running, q.Parked)
	}
	return appendLine(out, q, more, now, q.Workers, q.Jobs, q.Running)
}

// appendDetails writes a line of KeyStatus.
func appendDetails(out []byte, q sched.QueueStatus, more bool, now sched.Time) []byte {
	return appendLine(out, q, more, now, q.Workers, q.Jobs, q.Running, q.Parked, q.Delayed, q.Waiting)
}

func appendLine(out []byte, q sched.QueueStatus, more bool, now sched.Time, columns ...int) []byte {
	name, ok := protocol.Function(q.Name)
	if !ok || len(name) > periodic.MaxStr8 {
		return out // no Periodic function: its name fits no str8
	}
	if more {
		out = append(out, '\n')
	}
	out = append(out, name...)
	for _, n := range columns {
		out = strconv.AppendInt(append(out, ','), int64(n), 10)
	}
	at := q.SchedAt
	if at == 0 {
		at = now.Wall / 1000
	}
	return strconv.AppendInt(append(out, ','), at, 10)
}

// reports counts the long replies that one session has asked for.
type reports struct {
	open      int         // the reactor's
	left      leftOut     // of its last DUMP
	abandoned atomic.Bool // the session has ended
}

// maxReports bounds them, and maxWaiting those of all sessions: each waits for its
// turn with a goroutine of its own.
const (
	maxReports = 8
	maxWaiting = 1024
)

// report has a long reply encoded beside the loop and streamed to the session, one
// at a time for each turn in the server. Who reads one of more than large bytes slowly keeps
// the turn; the others have a bound together, see relieveStreams. encode returns the reply
// behind the message id, or nil when it would be larger than a frame can be.
func (p *periodicTalk) report(msgID uint32, lead []byte, turn chan struct{}, large int, encode func() [][]byte) {
	if p.reports == nil {
		p.reports = &reports{}
	}
	r, id, mine := p.s.r, p.s.ID, p.reports
	if mine.open >= maxReports || r.server.reports.Load() >= maxWaiting {
		p.refuse(msgID, periodic.ReasonReports)
		return
	}
	mine.open++
	r.server.reports.Add(1)
	release := func() { <-turn }
	r.server.beside(turn, func() {
		var pieces [][]byte
		if !mine.abandoned.Load() {
			pieces = p.frameOf(msgID, lead, encode())
		}
		size, dump := lengthOf(pieces), turn == r.server.dumps
		r.exec(func() {
			r.begin()
			mine.open--
			r.server.reports.Add(-1)
			s := r.session(id)
			there := s != nil && pieces != nil
			// A DUMP for which there is no room beside those that are being read keeps the turn, too.
			keeps := there && (size > large || dump && !r.makeRoom(size, steadily))
			if !keeps {
				release()
			}
			switch {
			case s == nil:
			case pieces == nil:
				p.refuse(msgID, periodic.ReasonSize)
			case keeps:
				s.send(pieces, release)
			default:
				s.send(pieces, nil)
			}
			if s != nil && s.stream != nil && !s.gone {
				r.watchSlow(s)
			}
		})
	})
}

// besideLoops does something on a goroutine of its own, when it is its turn.
func (s *Server) besideLoops(turn chan struct{}, do func()) {
	s.workers.Go(func() {
		select {
		case turn <- struct{}{}:
			do()
		case <-s.stopped:
		}
	})
}

// frameOf makes a frame of a long reply's body; nil stays nil. It reads only what the
// handshake has settled for good, so it may run beside the loop.
func (p *periodicTalk) frameOf(msgID uint32, lead []byte, body [][]byte) [][]byte {
	if body == nil {
		return nil
	}
	head := append(binary.BigEndian.AppendUint32(nil, msgID), lead...)
	size, sum := len(head)+lengthOf(body), crcOf(p.framing, 0, head)
	for _, b := range body {
		sum = crcOf(p.framing, sum, b)
	}
	if size > periodic.MaxPayload {
		return nil
	}
	frame := periodic.AppendResponseHeader(nil, p.framing, size, sum)
	return append([][]byte{append(frame, head...)}, body...)
}
