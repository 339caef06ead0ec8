package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"treadle/codec/periodic"
)

const (
	copyBuffer = 256 << 10
	messageLen = idLen + 1 // message id and command
	// maxLoad is the largest dump that one LOAD carries: its size field is signed.
	maxLoad = math.MaxInt32 - messageLen
)

// Progress receives the bytes transferred so far and their total. It may be nil.
type Progress func(done, total int64)

// Dump writes every Periodic job of the server to w, in the form that Load reads, and returns the
// number of bytes. It writes the bytes as they arrive. A Dump that fails after the first byte or
// whose ctx ends closes the connection.
func (c *Client) Dump(ctx context.Context, w io.Writer, progress Progress) (int64, error) {
	n, err := c.conn.dump(ctx, w, progress)
	return n, c.conn.describe("dump the jobs", err)
}

// dump writes all jobs of the server to w in the form of DUMP, and returns their number of bytes.
func (c *conn) dump(ctx context.Context, w io.Writer, progress Progress) (int64, error) {
	waiting := c.begin(&call{stream: true})
	defer c.forget(waiting)
	if err := c.send(ctx, waiting.id, periodic.Dump, nil); err != nil {
		return 0, err
	}
	r, err := c.await(ctx, waiting)
	if err != nil {
		// The reply may already be arriving, and no call would consume it.
		c.fail(err)
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { c.fail(ctx.Err()) })
	defer stop()
	n, err := c.consume(r.stream, w, progress)
	if err != nil && c.reason() != nil {
		err = c.reason()
	} else if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w in the middle of its reply", ErrClosed)
	}
	r.done <- err
	return n, err
}

// consume copies the body of a DUMP reply to w.
func (c *conn) consume(r *io.LimitedReader, w io.Writer, progress Progress) (int64, error) {
	first := make([]byte, 1)
	if r.N > 0 {
		if _, err := io.ReadFull(r, first); err != nil {
			return 0, err
		}
	}
	// The first byte of a count is 0 in any dump whose size fits the size field.
	switch {
	case r.N == 0 && periodic.Command(first[0]) == periodic.Unknown:
		return 0, ErrRefused
	case c.data && periodic.Command(first[0]) == periodic.Data:
		first = first[:0]
	case first[0] != 0:
		return 0, unexpected(first)
	}
	total := int64(len(first)) + r.N
	if _, err := w.Write(first); err != nil {
		return 0, err
	}
	return total, copyAll(w, r, total, int64(len(first)), progress)
}

// copyAll copies r to w until total bytes are transferred; done says how many already are.
func copyAll(w io.Writer, r io.Reader, total, done int64, progress Progress) error {
	buffer := make([]byte, copyBuffer)
	for {
		if progress != nil {
			progress(done, total)
		}
		if done >= total {
			return nil
		}
		n, err := r.Read(buffer[:min(int64(len(buffer)), total-done)])
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return err
			}
			done += int64(n)
			continue
		}
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the source ended after %d of %d bytes: %w", done, total, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
	}
}

// handOver lets the caller of w consume a reply's bytes from the connection, and returns when they
// are consumed.
func (c *conn) handOver(w *call, size int64) error {
	c.streaming.Store(true)
	defer c.streaming.Store(false)
	header, err := c.in.Peek(c.framing.HeaderLen() + idLen)
	if err != nil {
		return err
	}
	sum := crc32.NewIEEE()
	sum.Write(header[c.framing.HeaderLen():])
	want := sum.Sum32()
	var source io.Reader = c.in
	if c.framing == periodic.CRC {
		want = binary.BigEndian.Uint32(header[8:])
		source = io.TeeReader(c.in, sum)
	}
	if _, err := c.in.Discard(len(header)); err != nil {
		return err
	}
	stream := &io.LimitedReader{R: source, N: size - idLen}
	done := make(chan error, 1)
	w.reply <- reply{stream: stream, done: done}
	select {
	case err = <-done:
	case <-c.ended:
		return c.reason()
	}
	if errors.Is(err, ErrRefused) && stream.N == 0 {
		return nil
	}
	if err == nil && want != sum.Sum32() {
		err = periodic.ErrChecksum
	}
	return err
}

// Load submits the jobs of a dump of size bytes, which it sends as it reads them from r. In the CRC
// framing, whose header holds a checksum of the whole request, r must be an io.ReadSeeker and is
// read twice. A Load that fails midway closes the connection; the server decides which of its jobs
// count.
func (c *Client) Load(ctx context.Context, r io.Reader, size int64, progress Progress) error {
	return c.conn.describe("load the jobs", c.conn.load(ctx, r, size, progress))
}

// load sends size bytes of r, a dump, as one LOAD. In the CRC framing it reads r twice, since the checksum precedes the
// bytes.
func (c *conn) load(ctx context.Context, r io.Reader, size int64, progress Progress) error {
	if size < 8 || size > maxLoad {
		return fmt.Errorf("a dump has 8 to %d bytes, this one %d", int64(maxLoad), size)
	}
	waiting := c.begin(&call{})
	defer c.forget(waiting)
	head := periodic.BeginRequest(nil, c.framing)
	head = periodic.AppendMessage(head, waiting.id, periodic.Load)
	periodic.End(head, 0, c.framing)
	binary.BigEndian.PutUint32(head[4:], uint32(messageLen+size))
	if c.framing == periodic.CRC {
		sum, err := sumAhead(head[c.framing.HeaderLen():], r, size)
		if err != nil {
			return err
		}
		binary.BigEndian.PutUint32(head[8:], sum)
	}
	if err := c.stream(ctx, head, r, size, progress); err != nil {
		select {
		case answer := <-waiting.reply: // the server's refusal is the cause
			return unexpected(answer.body)
		default:
			return err
		}
	}
	answer, err := c.await(ctx, waiting)
	if err == nil && (len(answer.body) == 0 || periodic.Command(answer.body[0]) != periodic.Success) {
		err = unexpected(answer.body)
	}
	return err
}

// sumAhead returns the checksum of message and size bytes of r, and rewinds r.
func sumAhead(message []byte, r io.Reader, size int64) (uint32, error) {
	seeker, ok := r.(io.ReadSeeker)
	if !ok {
		return 0, errors.New("the CRC framing needs a source that can be read twice")
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	sum := crc32.NewIEEE()
	sum.Write(message)
	if err := copyAll(sum, seeker, size, 0, nil); err != nil {
		return 0, err
	}
	_, err = seeker.Seek(start, io.SeekStart)
	return sum.Sum32(), err
}

// stream writes one frame whose body comes from r.
func (c *conn) stream(ctx context.Context, head []byte, r io.Reader, size int64, progress Progress) error {
	if err := c.lock(ctx); err != nil {
		return err
	}
	defer c.unlock()
	return c.writeAll(ctx, func() error {
		if _, err := c.net.Write(head); err != nil {
			return err
		}
		return copyAll(c.net, r, size, 0, progress)
	})
}
