package journal

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind, because nothing ends a goroutine that
// survives Close.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
