package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The settings that name servers of beanstalkd's protocol on the command line.
const (
	beanstalkSetting  = "--to"
	beanstalkdSetting = "FROM"
)

// ErrNotBeanstalk reports a peer whose bytes are no replies of beanstalkd's protocol.
var ErrNotBeanstalk = errors.New("the peer does not speak beanstalkd's protocol")

// beanstalkTimeout bounds a request whose context has no deadline.
const beanstalkTimeout = 30 * time.Second

// longestBeanstalkLine is above the longest line of a reply: USING and the name of a tube.
const longestBeanstalkLine = 1 << 10

// Beanstalk is a connection to a server of beanstalkd's protocol, Treadle or beanstalkd. It is for one goroutine.
type Beanstalk struct {
	address, setting string

	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

// BeanstalkReply is a reply: the words of its line, and the data behind it.
type BeanstalkReply struct {
	Words []string
	Data  []byte
}

// Is reports whether the reply begins with a word.
func (r *BeanstalkReply) Is(word string) bool { return r.Words[0] == word }

// Value returns the value of a key in data that stats and its like have answered, empty when there is none.
func (r *BeanstalkReply) Value(key string) string {
	for line := range strings.Lines(string(r.Data)) {
		if k, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok && k == key {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// Number returns the value of a key as a number, 0 when it is none.
func (r *BeanstalkReply) Number(key string) uint64 {
	n, _ := strconv.ParseUint(r.Value(key), 10, 64) // 0
	return n
}

// List returns the items of data that list-tubes and its like have answered.
func (r *BeanstalkReply) List() (items []string) {
	for line := range strings.Lines(string(r.Data)) {
		if item, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "- "); ok {
			items = append(items, strings.Trim(item, `"`))
		}
	}
	return items
}

// DialBeanstalk connects to Treadle's port of beanstalkd's protocol, DialBeanstalkd to a beanstalkd. See Dial for
// addresses.
func DialBeanstalk(ctx context.Context, address string) (*Beanstalk, error) {
	return dialBeanstalk(ctx, address, beanstalkSetting)
}

// DialBeanstalkd is described at DialBeanstalk.
func DialBeanstalkd(ctx context.Context, address string) (*Beanstalk, error) {
	return dialBeanstalk(ctx, address, beanstalkdSetting)
}

// dialBeanstalk connects, and asks a first request: a server of another protocol would be silent, or answer in its own
// words.
func dialBeanstalk(ctx context.Context, address, setting string) (*Beanstalk, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, name, err := connectTo(ctx, address, setting)
	if err != nil {
		return nil, err
	}
	b := &Beanstalk{address: name, setting: setting, conn: conn, in: bufio.NewReaderSize(conn, longestBeanstalkLine)}
	if _, err := b.Ask(ctx, nil, "list-tube-used"); err != nil { // another protocol's port would be silent, or say something else
		conn.Close()
		return nil, newPeerError(name, setting, err)
	}
	return b, nil
}

// Close ends the connection.
func (b *Beanstalk) Close() { b.conn.Close() }

// Address returns the server's address as network://address.
func (b *Beanstalk) Address() string { return b.address }

// Ask sends a request, with the body of a job unless it is nil, and returns the reply. Error words of the protocol are
// replies. After an error the connection is of no use.
func (b *Beanstalk) Ask(ctx context.Context, body []byte, format string, args ...any) (BeanstalkReply, error) {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		deadline = time.Now().Add(beanstalkTimeout)
	}
	if err := b.conn.SetDeadline(deadline); err != nil {
		return BeanstalkReply{}, err
	}
	defer context.AfterFunc(ctx, func() { _ = b.conn.SetDeadline(time.Unix(1, 0)) })() // the error shows in what is read
	b.out = append(fmt.Appendf(b.out[:0], format, args...), "\r\n"...)
	if body != nil {
		b.out = append(append(b.out, body...), "\r\n"...)
	}
	_, err := b.conn.Write(b.out)
	var r BeanstalkReply
	if err == nil {
		r, err = b.reply()
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return r, err
}

// reply reads a reply and the data behind it. Memory grows with what comes, not with what is announced.
func (b *Beanstalk) reply() (r BeanstalkReply, err error) {
	line, err := b.in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return r, ErrNotBeanstalk
	case err != nil:
		return r, simplify(err)
	}
	r.Words = strings.Fields(string(line))
	if len(r.Words) == 0 || !bytes.HasSuffix(line, []byte("\r\n")) || strings.ToUpper(r.Words[0]) != r.Words[0] {
		return r, ErrNotBeanstalk
	}
	if !slices.Contains([]string{"OK", "FOUND", "RESERVED"}, r.Words[0]) {
		return r, nil
	}
	size, err := strconv.ParseUint(r.Words[len(r.Words)-1], 10, 31)
	if err != nil {
		return r, ErrNotBeanstalk
	}
	var data bytes.Buffer // it grows with what comes, not with what is announced
	if _, err = io.CopyN(&data, b.in, int64(size)+2); err != nil {
		return r, simplify(err)
	}
	r.Data = data.Bytes()[:size]
	return r, nil
}
