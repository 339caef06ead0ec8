package periodic

import (
	"bytes"
	"fmt"

	codec "treadle/codec/periodic"
)

// Errors of a connection that does not begin with a Periodic handshake. Each is a codec.ErrMagic.
var (
	errTLS         = notPeriodic("a TLS hello: this address is plain; serve TLS at another, as --periodic tls://host:port, or have the client do without")
	errWebSocket   = notPeriodic("a WebSocket request: the original's --ws is not served; have the client use tcp:// or unix:// without it")
	errHTTP        = notPeriodic("an HTTP request: this address speaks Periodic; pages and metrics are at --http")
	errUnknownPeer = notPeriodic("no handshake of Periodic: a client with RSA or XOR keys, which are not served, or one of another protocol or port")
)

func notPeriodic(what string) error { return fmt.Errorf("%s (%w)", what, codec.ErrMagic) }

// httpMethods are the first bytes of HTTP requests. The original's WebSocket client sends a GET.
var httpMethods = [][]byte{[]byte("GET "), []byte("POST "), []byte("PUT "), []byte("HEAD "), []byte("OPTIONS "), []byte("DELETE "),
	[]byte("PATCH "), []byte("CONNECT "), []byte("PRI ")}

// identify returns the error for the first bytes of a connection.
func identify(in []byte) error {
	const tlsHandshake, tlsMajor = 0x16, 0x03
	if in[0] == tlsHandshake && (len(in) == 1 || in[1] == tlsMajor) {
		return errTLS
	}
	for _, method := range httpMethods {
		if n := min(len(in), len(method)); !bytes.Equal(in[:n], method[:n]) {
			continue
		}
		if bytes.Contains(bytes.ToLower(in), []byte("upgrade: websocket")) {
			return errWebSocket
		}
		return errHTTP
	}
	return errUnknownPeer
}
