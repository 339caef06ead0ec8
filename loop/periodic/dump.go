package periodic

import (
	"encoding/binary"
	"hash/crc32"

	codec "treadle/codec/periodic"
	"treadle/loop/protocol"
	"treadle/sched"
)

// crcOf updates a checksum. It returns 0 in a framing without checksums.
func crcOf(framing codec.Framing, sum uint32, b []byte) uint32 {
	if framing == codec.CRC {
		return crc32.Update(sum, crc32.IEEETable, b)
	}
	return 0
}

// pieces collects a long reply in pieces of about protocol.PieceSize bytes.
type pieces struct {
	parts [][]byte
	size  int
}

// add lets encode append to the last piece.
func (p *pieces) add(encode func([]byte) []byte) {
	last := len(p.parts) - 1
	if last < 0 || len(p.parts[last]) >= protocol.PieceSize-protocol.PieceSize/8 {
		p.parts = append(p.parts, make([]byte, 0, protocol.PieceSize))
		last++
	}
	n := len(p.parts[last])
	p.parts[last] = encode(p.parts[last])
	p.size += len(p.parts[last]) - n
}

// encodeDump returns the body of a DUMP's reply: the count, the pending jobs, the running jobs.
// A job that exists during the whole dump is in it once. encodeDump returns nil when no frame
// can hold the dump. It sets left to the number of things that a dump leaves out.
func (p *Protocol) encodeDump(omitted *omittedCounts, spaces *protocol.Spaces) [][]byte {
	var tasks, jobs uint32
	var pending, running pieces
	count := uint64(0)
	var cursor sched.Cursor
	for done := false; !done; {
		cursor, done = p.sched.Walk(cursor, sched.WalkBatch, func(j *sched.Job) {
			switch {
			case j.Space == Space:
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
		if pending.size+running.size > codec.MaxPayload {
			return nil
		}
	}
	omitted.set(tasks, jobs, uint32(p.host.Omitted()), p.config.changed())
	body := append([][]byte{binary.BigEndian.AppendUint64(nil, count)}, pending.parts...)
	return append(body, running.parts...)
}

func appendJob(out []byte, j *sched.Job) []byte {
	out = appendFunction(out, j.Queue)
	out = codec.AppendStr8(out, j.Name)
	out = codec.AppendStr32(out, j.Workload)
	return codec.AppendJobTail(out, j.SchedAt, j.Count, j.Timeout)
}

// load is a LOAD under way. Each job is submitted as it arrives, so that a load of any size
// takes no memory.
type load struct {
	msgID     uint32
	bytesLeft int          // bytes of arguments to come
	jobs      int64        // jobs to come, once counted
	counted   bool         // the count has been read
	refused   bool         // the rest is skipped and UNKNOWN is the answer
	reason    codec.Reason // of the first job that was refused, for which UNKNOWN is the answer, too; 0: none, or not to be counted
	sum       uint32       // the checksum so far
	want      uint32       // the announced checksum
}

// beginLoad starts a LOAD, or skips the arguments of a refused one. A load that is larger than the
// room on the disk is refused as a whole. When the disk or the memory fills up later,
// the remaining jobs are refused.
func (c *conversation) beginLoad(f *codec.Frame, refused bool) {
	c.last.loaded = 0
	c.load = &load{msgID: f.MsgID, bytesLeft: f.More, refused: refused, sum: f.PartialSum, want: f.Sum}
	if !refused && !c.p.host.RoomFor(f.More) {
		c.load.skip(codec.ReasonRoom)
	}
	if f.More == 0 {
		if !refused { // there is no count
			c.load.skip(codec.ReasonMalformed)
		}
		if err := c.load.end(c); err != nil {
			c.s.End(err)
		}
	}
}

// skip has the rest of a LOAD skipped, and says why.
func (l *load) skip(reason codec.Reason) { l.refused, l.reason = true, reason }

const countLen = 8

// need is conversation.Need during a LOAD.
func (l *load) need(in []byte) int {
	switch {
	case l.refused || l.counted && l.jobs == 0:
		return len(in) + 1
	case !l.counted:
		return min(countLen, l.bytesLeft)
	}
	return min(max(codec.NeedJob(in), len(in)+1), l.bytesLeft)
}

// consume handles the front of in and returns its length; 0 without an error needs more bytes.
func (l *load) consume(c *conversation, in []byte) (n int, err error) {
	in = in[:min(len(in), l.bytesLeft)]
	last := len(in) == l.bytesLeft
	if !l.counted && !l.refused {
		if len(in) < countLen && !last {
			return 0, nil
		}
		count, rest, ok := codec.Int64(in)
		l.jobs, l.counted = count, true
		if !ok || count < 0 {
			l.skip(codec.ReasonMalformed)
		}
		n = len(in) - len(rest)
	}
	for l.jobs > 0 && !l.refused {
		k := l.submit(c, in[n:], last)
		if k == 0 && !l.refused {
			break
		}
		n += k
		if c.s.FlushLarge() {
			break
		}
	}
	if l.refused || l.jobs == 0 {
		n = len(in) // skip what follows the last job or the fault
	}
	l.bytesLeft -= n
	l.sum = crcOf(c.framing, l.sum, in[:n])
	if l.bytesLeft > 0 {
		return n, nil
	}
	return max(n, 0), l.end(c)
}

// submit submits the job at the front of in and returns its length, 0 when the job is incomplete
// or refused. last reports whether the arguments end with in.
func (l *load) submit(c *conversation, in []byte, last bool) int {
	var j codec.Job
	loop := c.s.Loop
	k, err := codec.ParseJob(in, &j)
	if err := c.p.host.CheckCapacity(); err != nil {
		l.skip(reasonOf(err))
		return 0
	}
	switch need := codec.NeedJob(in); {
	case err == codec.ErrTruncated && need > c.p.limits.MaxFrame, k > c.p.limits.MaxFrame:
		l.skip(codec.ReasonSize)
		return 0
	case err == codec.ErrTruncated && !last:
		return 0
	case err != nil:
		l.skip(codec.ReasonMalformed)
		return 0
	}
	sub := submission(&j)
	l.jobs--
	if err := c.p.sched.Submit(loop.Now, &sub, loop.Sink); err == nil {
		c.last.loaded++
	} else if l.reason == 0 { // another queue may take the next job
		l.reason = reasonOf(err)
	}
	return k
}

// end answers the LOAD.
func (l *load) end(c *conversation) error {
	c.load = nil
	if c.framing == codec.CRC && l.sum != l.want {
		return codec.ErrChecksum
	}
	switch {
	case l.reason == codec.ReasonMalformed:
		c.answerError(l.msgID, l.reason, &c.p.truncated)
	case l.reason != 0:
		c.refuse(l.msgID, l.reason)
	case l.refused: // its role does not allow it
		c.reply(l.msgID, codec.Unknown)
	default:
		group, wait := c.p.host.CommitGroupAll()
		c.replyAfter(l.msgID, codec.Success, group, wait)
	}
	return nil
}
