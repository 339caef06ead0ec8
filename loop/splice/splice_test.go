package splice_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"treadle/loop/certs/certtest"
	"treadle/loop/splice"
)

// TestBoth: all bytes before the end of an encrypted connection arrive, also when the end comes with them, and the
// bytes of the other direction afterwards.
func TestBoth(t *testing.T) {
	authority := certtest.New(t, "ours")
	own := authority.Issue(t.TempDir(), "server", time.Now().Add(time.Hour))
	server, err := own.Client("") // the pair is all that matters
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := authority.Client(nil)
	client.MaxVersion = tls.VersionTLS12 // a read of it returns the last bytes and the end at once
	for _, size := range []int{1, 4096, 4097, 16 << 10, 1 << 20} {
		near, far, err := splice.Pair()
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			secured := tls.Server(c, server)
			if secured.Handshake() == nil && size <= 16<<10 { // more may not be sent before it is read
				<-ended // the end of the client's bytes is there before they are read
			}
			splice.Both(secured, near)
		}()
		sent := bytes.Repeat([]byte("x"), size)
		c, err := tls.Dial("tcp", l.Addr().String(), client)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = c.Write(sent) // what is missing is missing on the other side
			_ = c.CloseWrite()
			close(ended)
		}()
		if got, err := io.ReadAll(far); err != nil || len(got) != size {
			t.Errorf("%d bytes of %d arrive: %v", len(got), size, err)
		}
		if _, err := far.Write(sent); err != nil {
			t.Error(err)
		}
		if err := far.Close(); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(c); err != nil || len(got) != size {
			t.Errorf("%d bytes of %d come back: %v", len(got), size, err)
		}
		_ = c.Close()
	}
}
