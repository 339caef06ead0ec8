package loop

import (
	"encoding/binary"
	"sync"

	"treadle/sched"
)

// mailbox has deliveries to one reactor's sessions, encoded. A sender copies a delivery into it, and
// the reactor takes all at once. Only the put that finds it empty has to wake the reactor.
type mailbox struct {
	mu    sync.Mutex
	bytes []byte
	spare []byte
}

// effectOverflow stands in a mailbox for a large delivery that it had no room for.
const effectOverflow sched.Effect = 0

// put adds a delivery, or an effectOverflow when the mailbox has more than limit bytes. wake reports
// whether the mailbox was empty.
func (m *mailbox) put(d *sched.Delivery, limit int) (wake bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wake = len(m.bytes) == 0
	if len(m.bytes) > limit {
		d = &sched.Delivery{To: d.To, Effect: effectOverflow}
	}
	m.bytes = appendDelivery(m.bytes, d)
	return wake
}

// take empties the mailbox. The caller owns the bytes until its next take.
func (m *mailbox) take() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.bytes
	m.bytes = m.spare[:0]
	if cap(b) > 4<<20 { // the memory of a burst is not kept
		m.spare = nil
	} else {
		m.spare = b
	}
	return b
}

// appendDelivery encodes a delivery for nextDelivery. The encoding never leaves the process.
func appendDelivery(b []byte, d *sched.Delivery) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(d.To))
	b = binary.LittleEndian.AppendUint64(b, d.Tag)
	b = append(b, byte(d.Effect), byte(d.Job.Space), byte(d.Job.Ref.Space))
	b = binary.LittleEndian.AppendUint16(b, d.Job.Ref.Shard)
	b = binary.LittleEndian.AppendUint32(b, d.Job.Ref.Record)
	b = binary.LittleEndian.AppendUint64(b, d.Job.Ref.Seq)
	b = binary.LittleEndian.AppendUint64(b, d.Job.RunNumber)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Job.SchedAt))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Job.Due))
	b = binary.LittleEndian.AppendUint64(b, uint64(d.Job.Priority))
	b = binary.LittleEndian.AppendUint32(b, uint32(d.Job.Count))
	b = binary.LittleEndian.AppendUint32(b, uint32(d.Job.Timeout))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(d.Job.Queue)))
	b = append(b, d.Job.Queue...)
	history := d.History
	if d.Effect != sched.Assign {
		history = nil // one of another delivery
	}
	for _, part := range [...][]byte{d.Job.Name, d.Job.Workload, d.Data, history} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return b
}

// nextDelivery decodes one delivery into d, as views into b, and returns the rest of b.
func nextDelivery(b []byte, d *sched.Delivery) (rest []byte) {
	r := deliveryReader{b}
	d.To = sched.SessionID(r.uint64())
	d.Tag = r.uint64()
	d.Effect, d.Job.Space, d.Job.Ref.Space = sched.Effect(r.b[0]), sched.Space(r.b[1]), sched.Space(r.b[2])
	d.Job.Ref.Shard = binary.LittleEndian.Uint16(r.b[3:])
	r.b = r.b[5:]
	d.Job.Ref.Record = r.uint32()
	d.Job.Ref.Seq = r.uint64()
	d.Job.RunNumber = r.uint64()
	d.Job.SchedAt, d.Job.Due = int64(r.uint64()), int64(r.uint64())
	d.Job.Priority = int64(r.uint64())
	d.Job.Count = int32(r.uint32())
	d.Job.Timeout = int32(r.uint32())
	d.Job.Queue = string(r.bytes())
	d.Job.Name, d.Job.Workload, d.Data, d.History = r.bytes(), r.bytes(), r.bytes(), r.bytes()
	if len(d.History) == 0 {
		d.History = nil
	}
	return r.b
}

// deliveryReader reads the parts of an encoded delivery.
type deliveryReader struct{ b []byte }

func (r *deliveryReader) uint64() uint64 {
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *deliveryReader) uint32() uint32 {
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

func (r *deliveryReader) bytes() []byte {
	n := int(r.uint32())
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// mailSink passes the deliveries of a goroutine outside of the event loops to the reactors.
type mailSink struct {
	server *Server
	toWake []bool
}

// Deliver implements sched.Sink.
func (m *mailSink) Deliver(d *sched.Delivery) {
	if loop := loopOf(d.To); m.server.post(loop, d) {
		m.toWake[loop] = true
	}
}

// Wake implements protocol.Sink.
func (m *mailSink) Wake() { m.server.wake(m.toWake) }
