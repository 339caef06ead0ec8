package beanstalk

import "bytes"

var crlf = []byte("\r\n")

// Decoder reads the requests of one connection. It passes over the bytes of jobs that are too large without keeping
// them.
type Decoder struct {
	// MaxJob is the size of the largest job.
	MaxJob int

	skip     int64 // bytes of a job that is too large, with its CRLF, that are still to come
	skipping bool  // skip is of a put that is not answered yet
}

// Skipping reports whether a job that is too large is being passed over.
func (d *Decoder) Skipping() bool { return d.skipping }

// Next reads the request at the front of in and returns its length. ok is false when the request has not ended: n bytes
// are done with then, and Next is to be called with the rest and more. It keeps no view of in; r has views of it.
func (d *Decoder) Next(in []byte, r *Request) (n int, ok bool) {
	if d.skipping {
		return d.skipBody(in, r)
	}
	end := lineEnd(in)
	if end == 0 {
		if len(in) < maxLongLine {
			return 0, false
		}
		*r = Request{Fault: BadFormat, Fatal: true}
		return len(in), true
	}
	if end > MaxLine {
		*r = Request{Fault: BadFormat}
		return end, true
	}
	r.parse(in[:end-len(crlf)])
	if r.Command != Put || !r.Counted {
		return end, true
	}
	if int64(r.size) > int64(d.MaxJob) {
		return d.skipTooBig(in, end, r)
	}
	if r.Fault != "" {
		return end, true
	}
	body := end + int(r.size)
	if n = body + len(crlf); len(in) < n {
		return 0, false
	}
	r.Body = in[end:body:body]
	if in[body] != '\r' || in[body+1] != '\n' {
		r.Fault = ExpectedCRLF
	}
	return n, true
}

// lineEnd returns the length of the line at the front of in, with its CRLF; 0: it has no end within maxLongLine.
func lineEnd(in []byte) int {
	i := bytes.Index(in[:min(len(in), maxLongLine)], crlf)
	if i < 0 {
		return 0
	}
	return i + len(crlf)
}

// skipTooBig begins to pass over the bytes of a job that is too large, behind its line.
func (d *Decoder) skipTooBig(in []byte, end int, r *Request) (n int, ok bool) {
	if r.size > maxSkipped {
		*r = Request{Command: Put, Counted: true, Fault: JobTooBig, Fatal: true}
		return len(in), true
	}
	d.skip, d.skipping = int64(r.size)+int64(len(crlf)), true
	n, ok = d.skipBody(in[end:], r)
	return end + n, ok
}

// skipBody passes over the bytes of a job that is too large.
func (d *Decoder) skipBody(in []byte, r *Request) (n int, ok bool) {
	n = int(min(d.skip, int64(len(in))))
	if d.skip -= int64(n); d.skip > 0 {
		return n, false
	}
	d.skipping = false
	*r = Request{Command: Put, Counted: true, Fault: JobTooBig}
	return n, true
}

// Need returns the length that the unfinished request in must reach before Next can go on, as far as that is known.
func (d *Decoder) Need(in []byte) int {
	if end := lineEnd(in); end > 0 && end <= MaxLine && !d.skipping {
		var r Request
		if r.parse(in[:end-len(crlf)]); r.Command == Put && r.Counted && r.Fault == "" {
			return max(end+int(r.size)+len(crlf), len(in)+1)
		}
	}
	return len(in) + 1
}
