package web

import (
	"testing"

	"go.uber.org/goleak"

	"treadle/loop/disbatch/sitetest"
)

// TestMain fails when a test or the driver leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var newSite, must, d, set, byID = sitetest.New, sitetest.Must, sitetest.D, sitetest.Set, sitetest.ByID
