// Package splice passes the bytes of one connection on to another: those of a follower to the leader, and those within
// TLS to an event loop.
package splice

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Both copies bytes in both directions until both have ended. It passes the end of a direction on. After an error it
// closes both connections.
func Both(a, b net.Conn) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		oneWay(a, b)
	}()
	oneWay(b, a)
	<-ended
	_ = errors.Join(a.Close(), b.Close())
}

// oneWay copies one direction. If it cannot pass the end on, it closes both connections.
func oneWay(to, from net.Conn) {
	err := Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	_ = errors.Join(to.Close(), from.Close()) // the other direction ends, too
}

// buffers has buffers for Copy. A connection has one only between a read and the write that follows.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Copy copies from one connection to another until the end of the first. Unlike io.Copy it keeps neither a pipe of the
// kernel, which takes two descriptors, nor more than a small buffer for a connection that waits.
func Copy(to io.Writer, from net.Conn) error {
	read := readWhenReady
	if _, ok := from.(syscall.Conn); !ok {
		read = readSmall(make([]byte, smallRead))
	}
	for {
		err := read(from, to)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// smallRead is the size of the buffer that an encrypted connection has all the time: most requests fit.
const smallRead = 8 << 10

// readSmall returns a read for encrypted connections, whose bytes are not known to be there before they are read.
func readSmall(small []byte) func(from net.Conn, to io.Writer) error {
	return func(from net.Conn, to io.Writer) error {
		n, err := from.Read(small)
		if n > 0 { // the end may come with the last bytes
			if _, failed := to.Write(small[:n]); failed != nil {
				return failed
			}
		}
		return err
	}
}

// readWhenReady reads once when there is something to read, and writes it. It has a buffer only meanwhile.
func readWhenReady(from net.Conn, to io.Writer) error {
	raw, err := from.(syscall.Conn).SyscallConn()
	if err != nil {
		return err
	}
	var buffer *[32 << 10]byte
	n, failed := 0, error(nil)
	err = raw.Read(func(fd uintptr) (done bool) {
		buffer = buffers.Get().(*[32 << 10]byte)
		for n, failed = unix.Read(int(fd), buffer[:]); errors.Is(failed, unix.EINTR); {
			n, failed = unix.Read(int(fd), buffer[:])
		}
		if errors.Is(failed, unix.EAGAIN) {
			buffers.Put(buffer)
			buffer, n, failed = nil, 0, nil
			return false
		}
		return true
	})
	if buffer != nil {
		defer buffers.Put(buffer)
	}
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case n == 0:
		return io.EOF
	}
	_, err = to.Write(buffer[:n])
	return err
}

// Pair returns the two ends of a connection within the process.
func Pair() (a, b *net.UnixConn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if a, err = unixConn(fds[0]); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[1]))
	}
	if b, err = unixConn(fds[1]); err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	return a, b, nil
}

// unixConn returns the connection of a descriptor. It closes the descriptor.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "pair")
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}
