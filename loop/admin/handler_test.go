package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestFromLoopback: the pages of the API answer requests of this machine alone.
func TestFromLoopback(t *testing.T) {
	for from, want := range map[string]bool{
		"127.0.0.1:4000": true, "127.9.9.9:4000": true, "[::1]:4000": true, "[::ffff:127.0.0.1]:4000": true,
		"10.0.0.1:4000": false, "[fe80::1]:4000": false, "[::ffff:10.0.0.1]:4000": false, "@": false, "": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/queues", nil)
		if r.RemoteAddr = from; fromLoopback(r) != want {
			t.Errorf("%q: %v", from, !want)
		}
	}
}
