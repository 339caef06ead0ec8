package client_test

import (
	"testing"

	"go.uber.org/goleak"
)

// No test may leave a goroutine behind: neither a client's nor that of the server it talks to;
// gnet starts a pool of its own.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }
