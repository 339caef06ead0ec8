// Package beanstalk reads the requests of the beanstalkd protocol, of version 1.12, and writes its replies. It knows no
// sockets and allocates nothing.
//
// A request is a line that ends with CRLF. Behind the line of a put come the bytes of the job and another CRLF.
package beanstalk

// Limits of the protocol.
const (
	// MaxLine is the length of the longest request line, with its CRLF. A longer one is answered BadFormat.
	MaxLine = 224
	// maxLongLine is the length from which a line without an end is no request: a client that sends such has lost its
	// place.
	maxLongLine = 4 << 10
	// MaxTube is the length of the longest name of a tube.
	MaxTube = 200
	// DefaultMaxJob is the size of the largest job when nothing else is set.
	DefaultMaxJob = 1<<16 - 1
	// maxSkipped is the size of the largest job that is passed over when it is larger than Decoder.MaxJob. No client
	// can mean to put a larger one: it has lost its place.
	maxSkipped = 1 << 30
)

// Command is the command of a request.
type Command uint8

// The commands. Unknown is every other one. commandsOf depends on the order: commands with the same first byte stand
// together, and one that begins as another stands before it. TestRequests reads each.
const (
	Unknown Command = iota
	Put
	Peek
	PeekReady
	PeekDelayed
	PeekBuried
	ReserveWithTimeout
	ReserveJob
	Reserve
	Delete
	Release
	Bury
	Kick
	KickJob
	Touch
	StatsJob
	StatsTube
	Stats
	Use
	Watch
	Ignore
	ListTubesWatched
	ListTubeUsed
	ListTubes
	Quit
	PauseTube
	Commands // the number of commands
)

// prefixes are how the commands begin, in the order in which the beginning of a line is compared with them.
var prefixes = [Commands]string{
	Put:                "put ",
	Peek:               "peek ",
	PeekReady:          "peek-ready",
	PeekDelayed:        "peek-delayed",
	PeekBuried:         "peek-buried",
	ReserveWithTimeout: "reserve-with-timeout ",
	ReserveJob:         "reserve-job ",
	Reserve:            "reserve",
	Delete:             "delete ",
	Release:            "release ",
	Bury:               "bury ",
	Kick:               "kick ",
	KickJob:            "kick-job ",
	Touch:              "touch ",
	StatsJob:           "stats-job ",
	StatsTube:          "stats-tube ",
	Stats:              "stats",
	Use:                "use ",
	Watch:              "watch ",
	Ignore:             "ignore ",
	ListTubesWatched:   "list-tubes-watched",
	ListTubeUsed:       "list-tube-used",
	ListTubes:          "list-tubes",
	Quit:               "quit",
	PauseTube:          "pause-tube",
}

// Request is one request. Its byte slices are views of what Next was given.
type Request struct {
	Command Command
	// Fault is the reply to a request that is wrong in itself, empty when it is not.
	Fault string
	// Fatal reports whether the connection is of no use any more: the bytes behind the request are not known to be
	// requests.
	Fatal bool
	// Counted reports whether the statistics count the request, which they do with some that have a Fault.
	Counted bool

	ID       uint64
	Priority uint32
	Delay    uint32 // seconds; of a pause-tube, too
	TTR      uint32 // seconds
	Timeout  int32  // seconds; less than 0: none
	Bound    uint32 // of a kick
	Tube     []byte
	Body     []byte

	size uint32 // of the body of a put, without its CRLF
}

// parse reads a line without its CRLF.
func (r *Request) parse(line []byte) {
	*r = Request{}
	for _, b := range line {
		if b == 0 {
			r.Fault = BadFormat
			return
		}
	}
	first, last := commandsOf(line)
	for c := first; c <= last; c++ {
		begin := prefixes[c]
		if len(line) < len(begin) || string(line[:len(begin)]) != begin {
			continue
		}
		r.Command = c
		if r.Counted = r.arguments(line[len(begin):]); !r.Counted {
			r.Fault = BadFormat
		}
		return
	}
	r.Fault = UnknownCommand
}

// commandsOf returns the range of commands that a line may have, by its first byte.
func commandsOf(line []byte) (first, last Command) {
	if len(line) == 0 {
		return 1, 0
	}
	switch line[0] {
	case 'p':
		if len(line) > 1 && line[1] == 'a' {
			return PauseTube, PauseTube
		}
		return Put, PeekBuried
	case 'r':
		return ReserveWithTimeout, Release
	case 'd':
		return Delete, Delete
	case 'b':
		return Bury, Bury
	case 'k':
		return Kick, KickJob
	case 't':
		return Touch, Touch
	case 's':
		return StatsJob, Stats
	case 'u':
		return Use, Use
	case 'w':
		return Watch, Watch
	case 'i':
		return Ignore, Ignore
	case 'l':
		return ListTubesWatched, ListTubes
	case 'q':
		return Quit, Quit
	}
	return 1, 0
}

// arguments reads what is behind the beginning of the command. It returns false when that is malformed.
func (r *Request) arguments(rest []byte) bool {
	switch r.Command {
	case Put:
		return r.put(rest)
	case Peek, ReserveJob, Delete, KickJob, Touch, StatsJob:
		return r.job(rest)
	case Reserve:
		r.Timeout = -1
		return len(rest) == 0
	case ReserveWithTimeout:
		return r.timeout(rest)
	case Release:
		return r.job(rest, &r.Priority, &r.Delay)
	case Bury:
		return r.job(rest, &r.Priority)
	case Kick:
		return r.kick(rest)
	case StatsTube, Use, Watch, Ignore:
		r.Tube = rest
		return ValidTube(rest)
	case PauseTube:
		return r.pauseTube(rest)
	case Quit:
		return true
	}
	return len(rest) == 0
}

// job reads the id of a job and more numbers.
func (r *Request) job(rest []byte, more ...*uint32) bool {
	rest, ok := number(rest, 1<<64-1, &r.ID)
	for _, v := range more {
		if ok {
			rest, ok = number32(rest, v)
		}
	}
	return ok && len(rest) == 0
}

// put reads priority, delay, time to run and size. What else is wrong does not keep the request from being counted.
func (r *Request) put(rest []byte) bool {
	var ok bool
	for _, v := range [...]*uint32{&r.Priority, &r.Delay, &r.TTR, &r.size} {
		if rest, ok = number32(rest, v); !ok {
			return false
		}
	}
	if len(rest) > 0 {
		r.Fault = BadFormat // unless the job is too large
	}
	return true
}

// pauseTube reads a name and a delay. A name that no tube may have is a Fault of a request that is counted.
func (r *Request) pauseTube(rest []byte) bool {
	for len(rest) > 0 && rest[0] == ' ' {
		rest = rest[1:]
	}
	n := 0
	for n < len(rest) && tubeBytes[rest[n]] {
		n++
	}
	r.Tube = rest[:n:n]
	rest, ok := number32(rest[n:], &r.Delay)
	if n == 0 || !ok || len(rest) > 0 {
		return false
	}
	if !ValidTube(r.Tube) {
		r.Fault = BadFormat
	}
	return true
}

// timeout reads a number as C's strtol and a conversion to int do: what follows the number is ignored, without a number
// it is 0, and only its lower 32 bits count.
func (r *Request) timeout(rest []byte) bool {
	negative, v, _, ok := longNumber(rest)
	most := uint64(1<<63 - 1)
	if negative {
		most++
	}
	if !ok || v > most {
		return false
	}
	if negative {
		v = -v
	}
	r.Timeout = int32(v)
	return true
}

// kick reads a number as C's strtoul and a conversion to unsigned int do: it may be negative, what follows it is
// ignored, and only its lower 32 bits count.
func (r *Request) kick(rest []byte) bool {
	negative, v, digits, ok := longNumber(rest)
	if !ok || digits == 0 {
		return false
	}
	if negative {
		v = -v
	}
	r.Bound = uint32(v)
	return true
}

// longNumber reads white space, a sign and digits. ok is false when 64 bits cannot have them.
func longNumber(in []byte) (negative bool, v uint64, digits int, ok bool) {
	for len(in) > 0 && (in[0] == ' ' || '\t' <= in[0] && in[0] <= '\r') {
		in = in[1:]
	}
	if len(in) > 0 && (in[0] == '-' || in[0] == '+') {
		negative, in = in[0] == '-', in[1:]
	}
	for digits < len(in) && isDigit(in[digits]) {
		d := uint64(in[digits] - '0')
		if v > (1<<64-1-d)/10 {
			return negative, 0, digits, false
		}
		v = v*10 + d
		digits++
	}
	return negative, v, digits, true
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// number reads spaces and the digits of a number up to most.
func number(in []byte, most uint64, v *uint64) (rest []byte, ok bool) {
	for len(in) > 0 && in[0] == ' ' {
		in = in[1:]
	}
	n, sum := 0, uint64(0)
	for n < len(in) && isDigit(in[n]) {
		d := uint64(in[n] - '0')
		if sum > (most-d)/10 {
			return nil, false
		}
		sum = sum*10 + d
		n++
	}
	*v = sum
	return in[n:], n > 0
}

func number32(in []byte, v *uint32) (rest []byte, ok bool) {
	var wide uint64
	rest, ok = number(in, 1<<32-1, &wide)
	*v = uint32(wide)
	return rest, ok
}

// tubeBytes are the bytes of the names of tubes.
var tubeBytes = func() (set [256]bool) {
	for _, b := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-+/;.$_()") {
		set[b] = true
	}
	return set
}()

// ValidTube reports whether a tube may have a name: up to MaxTube letters, digits and bytes of -+/;.$_(), the first one
// no hyphen.
func ValidTube[T string | []byte](name T) bool {
	if len(name) == 0 || len(name) > MaxTube || name[0] == '-' {
		return false
	}
	for i := range len(name) {
		if !tubeBytes[name[i]] {
			return false
		}
	}
	return true
}
