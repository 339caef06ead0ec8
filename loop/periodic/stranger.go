package periodic

import (
	"bytes"
	"fmt"

	codec "treadle/codec/periodic"
)

// Beginnings of a connection to a Periodic address that are no handshake. Each is for the log, and counts as
// codec.ErrMagic.
var (
	errTLS       = strange("a TLS hello: there is no TLS here; put a proxy that ends TLS in front, or have the client do without")
	errWebSocket = strange("a WebSocket request: the original's --ws is not served; have the client use tcp:// or unix:// without it")
	errHTTP      = strange("an HTTP request: this address speaks Periodic; pages and metrics are at --http")
	errStranger  = strange("no handshake of Periodic: a client with RSA or XOR keys, which are not served, or one of another protocol or port")
)

func strange(what string) error { return fmt.Errorf("%s (%w)", what, codec.ErrMagic) }

// httpMethods are the beginnings of requests. The original's WebSocket client is a GET.
var httpMethods = [][]byte{[]byte("GET "), []byte("POST "), []byte("PUT "), []byte("HEAD "), []byte("OPTIONS "), []byte("DELETE "), []byte("PATCH "), []byte("CONNECT "), []byte("PRI ")}

// stranger says what a connection begins with, from what has come of it.
func stranger(in []byte) error {
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
	return errStranger
}
