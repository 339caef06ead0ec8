package client_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine of a client or a server behind. gnet starts a pool
// of its own.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }
