package journal

import (
	"testing"

	"go.uber.org/goleak"
)

// No test may leave a goroutine behind: what Close does not end stays for ever.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
