package journal

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
)

// recordVersion5 is the first byte of a record of a leased job. A server whose jobs are not leased writes none, and its
// directory stays good for the program before.
const recordVersion5 = 5

// Lease is the lease under which a job is reserved, also across a restart.
type Lease struct {
	Token  LeaseToken
	Worker []byte
	Until  int64 // milliseconds since the Unix epoch
	Length int64 // milliseconds from the last extension to Until
}

// LeaseToken is the proof of a lease. The zero value is no token.
type LeaseToken [16]byte

func (l *Lease) hasLease() bool { return l.Token != LeaseToken{} }

func (l *Lease) appendLease(dst []byte) []byte {
	dst = appendBytes(append(dst, l.Token[:]...), l.Worker)
	dst = binary.AppendVarint(dst, l.Until)
	return binary.AppendVarint(dst, l.Length)
}

func (l *Lease) leaseSize() int {
	return len(l.Token) + uvarintSize(uint64(len(l.Worker))) + len(l.Worker) + varintSize(l.Until) + varintSize(l.Length)
}

// lease reads what appendLease has appended.
func (p *parser) lease(l *Lease) {
	if len(p.rest) < len(l.Token) {
		p.rest, p.bad = nil, true
		return
	}
	p.rest = p.rest[copy(l.Token[:], p.rest):]
	l.Worker, l.Until, l.Length = p.bytes(), p.varint(), p.varint()
	p.bad = p.bad || !l.hasLease() // a record of a job without a lease is of version 2 or 3
}

// lease writes what a record says of a lease.
func (l *jsonLine) lease(x *Lease) {
	if !x.hasLease() {
		return
	}
	l.name("lease")
	l.b = append(append(append(l.b, `{"token":"`...), hex.EncodeToString(x.Token[:])...), '"')
	l.bytes("worker", x.Worker)
	l.name("until")
	l.b = strconv.AppendInt(l.b, x.Until, 10)
	l.name("length")
	l.b = append(strconv.AppendInt(l.b, x.Length, 10), '}')
}

var leaseNames = withBase64([]string{"token", "until", "length"}, "worker")

// lease reads the lease of a line of an export, which may have none.
func lease(line []byte) (x Lease, err error) {
	if len(line) == 0 {
		return x, nil
	}
	var l struct {
		Token         string
		Worker        *string
		WorkerBase64  []byte `json:"worker_base64"`
		Until, Length int64
	}
	names, err := memberNames(line)
	if err == nil {
		err = firstError(checkMembers(names, leaseNames), json.Unmarshal(line, &l))
	}
	if err != nil {
		return x, err
	}
	n, err := hex.Decode(x.Token[:], []byte(l.Token)[:min(len(l.Token), 2*len(x.Token))])
	if err != nil || n != len(x.Token) || len(l.Token) != 2*n || !x.hasLease() {
		return x, errors.New("the token of a lease is not 32 hexadecimal digits")
	}
	x.Until, x.Length = l.Until, l.Length
	x.Worker, err = textOrBase64("worker", l.Worker, l.WorkerBase64)
	return x, err
}
