package web

import (
	"context"
	"net"
	"net/http"
	"syscall"
)

// connKey is the key of the connection in a request's context.
type connKey struct{}

// withConn returns the context of a connection's requests with the connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnOf returns the connection of a request, as the listener of its server has accepted it, or nil.
func ConnOf(r *http.Request) net.Conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return c
}

// PeerUser returns the user id of the process that has connected to a Unix socket, as UserOf does. ok is false for a
// request that came another way.
func PeerUser(r *http.Request) (uid uint32, ok bool) { return UserOf(ConnOf(r)) }

// UserOf returns the user id of the process at the other end of a Unix socket. The kernel knows it, or the connection
// itself if another node has forwarded it. ok is false for another connection.
func UserOf(c net.Conn) (uid uint32, ok bool) {
	if wrapped, is := c.(interface{ NetConn() net.Conn }); is {
		c = wrapped.NetConn()
	}
	if forwarded, is := c.(interface{ ForwardedUser() (uint32, bool) }); is {
		return forwarded.ForwardedUser()
	}
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return 0, false
	}
	raw, err := unix.SyscallConn()
	if err != nil {
		return 0, false
	}
	var peer *syscall.Ucred
	if err := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || peer == nil {
		return 0, false
	}
	return peer.Uid, true
}
