package interop

import (
	"path/filepath"
	"testing"
)

// TestKts46Python is a client, four workers and a supervisor over Python's xmlrpc.client.
func TestKts46Python(t *testing.T) {
	address := serve(t, "kts46")
	t.Log(run(t, "apt-get install python3", python, filepath.Join("testdata", "kts46.py"), address))
}
