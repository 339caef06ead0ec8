package loop

import (
	"encoding/binary"
	"hash/crc32"

	"treadle/codec/periodic"
	"treadle/sched"
)

// crcOf goes on with a checksum, where the framing has one.
func crcOf(framing periodic.Framing, sum uint32, b []byte) uint32 {
	if framing == periodic.CRC {
		return crc32.Update(sum, crc32.IEEETable, b)
	}
	return 0
}

// pieces collects encoded bytes in parts that a stream sends one by one.
type pieces struct {
	all  [][]byte
	size int
}

// add lets encode append to the last piece.
func (p *pieces) add(encode func([]byte) []byte) {
	last := len(p.all) - 1
	if last < 0 || len(p.all[last]) >= pieceSize-pieceSize/8 {
		p.all = append(p.all, make([]byte, 0, pieceSize))
		last++
	}
	n := len(p.all[last])
	p.all[last] = encode(p.all[last])
	p.size += len(p.all[last]) - n
}

// encodeDump writes the body of a DUMP's answer: the count, the pending jobs, the
// running ones. Every job that is there from beginning to end is in it once. nil:
// it does not fit a frame. left is told what a dump cannot hold.
func (s *Server) encodeDump(left *leftOut) [][]byte {
	var tasks, jobs uint32
	var pending, running pieces
	count := uint64(0)
	var cursor sched.Cursor
	for done := false; !done; {
		cursor, done = s.sched.Walk(cursor, sched.WalkBatch, func(j *sched.Job) {
			switch {
			case j.Space == periodicSpace:
			case spaces[j.Space].Rules.Graph:
				tasks++
				return
			default:
				jobs++
				return
			}
			count++
			to := &pending
			if j.Running {
				to = &running
			}
			to.add(func(out []byte) []byte { return appendJob(out, j) })
		})
		if pending.size+running.size > periodic.MaxPayload {
			return nil
		}
	}
	left.set(tasks, jobs, s)
	body := append([][]byte{binary.BigEndian.AppendUint64(nil, count)}, pending.all...)
	return append(body, running.all...)
}

func appendJob(out []byte, j *sched.Job) []byte {
	out = appendFunction(out, j.Queue)
	out = periodic.AppendStr8(out, j.Name)
	out = periodic.AppendStr32(out, j.Workload)
	return periodic.AppendJobTail(out, j.SchedAt, j.Count, j.Timeout)
}

// encodeStatus writes the body of a long STATUS.
func (s *Server) encodeStatus(write line) [][]byte {
	var p pieces
	now := s.now()
	s.sched.Status(func(q sched.QueueStatus) {
		p.add(func(out []byte) []byte { return write(out, q, p.size > 0, now) })
	})
	if p.size > periodic.MaxPayload {
		return nil
	}
	return p.all
}

// load is a LOAD under way: its jobs are submitted one by one as they arrive, so
// that a load of any size takes no memory.
type load struct {
	msgID   uint32
	left    int             // bytes of arguments to come
	jobs    int64           // jobs to come, once counted
	counted bool            // the count has been read
	refused bool            // answered UNKNOWN; what is left is read past
	reason  periodic.Reason // to be counted; 0: it has been
	sum     uint32          // so far
	want    uint32          // as announced
}

// beginLoad starts a LOAD; a refused one is only read past. One for which there is no room on the disk
// is refused whole; if others fill that meanwhile, the jobs from there on are.
func (p *periodicTalk) beginLoad(f *periodic.Frame, refused bool) {
	p.last.loaded = 0
	p.load = &load{msgID: f.MsgID, left: f.More, refused: refused, sum: f.PartialSum, want: f.Sum}
	if !refused && !p.s.r.server.room(f.More) {
		p.load.refuse(periodic.ReasonRoom)
	}
	if f.More == 0 {
		if !refused { // not even a count
			p.load.refuse(periodic.ReasonMalformed)
		}
		if err := p.load.end(p); err != nil {
			p.s.End(err)
		}
	}
}

func (l *load) refuse(reason periodic.Reason) { l.refused, l.reason = true, reason }

const countLen = 8

// need implements its half of conversation.need.
func (l *load) need(in []byte) int {
	switch {
	case l.refused || l.counted && l.jobs == 0:
		return len(in) + 1
	case !l.counted:
		return min(countLen, l.left)
	}
	return min(max(periodic.NeedJob(in), len(in)+1), l.left)
}

// consume takes what it can of in. 0 and no error: more bytes are needed.
func (l *load) consume(p *periodicTalk, in []byte) (n int, err error) {
	in = in[:min(len(in), l.left)]
	last := len(in) == l.left
	if !l.counted && !l.refused {
		if len(in) < countLen && !last {
			return 0, nil
		}
		count, rest, ok := periodic.Int64(in)
		l.jobs, l.counted = count, true
		if !ok || count < 0 {
			l.refuse(periodic.ReasonMalformed)
		}
		n = len(in) - len(rest)
	}
	for l.jobs > 0 && !l.refused {
		k := l.submit(p, in[n:], last)
		if k == 0 && !l.refused {
			break
		}
		n += k
		if p.s.Congested() {
			break
		}
	}
	if l.refused || l.jobs == 0 {
		n = len(in) // what follows the last job, or the fault
	}
	l.left -= n
	l.sum = crcOf(p.framing, l.sum, in[:n])
	if l.left > 0 {
		return n, nil
	}
	return max(n, 0), l.end(p)
}

// submit takes one job; 0 when it is not whole yet, or is refused. last says that
// nothing comes behind in.
func (l *load) submit(p *periodicTalk, in []byte, last bool) int {
	var j periodic.Job
	r := p.s.r
	k, err := periodic.ParseJob(in, &j)
	switch need := periodic.NeedJob(in); {
	case r.server.full():
		l.refuse(periodic.ReasonDisk)
		return 0
	case err == periodic.ErrTruncated && need > r.server.o.MaxFrame, k > r.server.o.MaxFrame:
		l.refuse(periodic.ReasonSize)
		return 0
	case err == periodic.ErrTruncated && !last:
		return 0
	case err != nil:
		l.refuse(periodic.ReasonMalformed)
		return 0
	}
	sub := submission(&j)
	if err := r.server.sched.Submit(r.Now, &sub, r); err != nil {
		l.refuse(reasonOf(err))
		return 0
	}
	p.last.loaded++
	l.jobs--
	return k
}

// end answers the LOAD.
func (l *load) end(p *periodicTalk) error {
	p.load = nil
	if p.framing == periodic.CRC && l.sum != l.want {
		return periodic.ErrChecksum
	}
	if l.reason == periodic.ReasonMalformed {
		p.s.r.server.counters.truncated.Add(1)
	}
	if l.reason != 0 {
		p.s.r.server.counters.refusals[l.reason].Add(1)
		p.last.refused = l.reason
	}
	if l.refused {
		p.reply(l.msgID, periodic.Unknown)
	} else {
		group, wait := p.s.r.server.durableAll()
		p.replyAfter(l.msgID, periodic.Success, group, wait)
	}
	return nil
}
