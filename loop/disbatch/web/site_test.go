package web

import (
	"testing"

	"go.uber.org/goleak"

	"treadle/loop/disbatch"
	"treadle/loop/disbatch/sitetest"
)

// No test may leave a goroutine behind, nor the driver one.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var newSite, must, d, set, byID = sitetest.New, sitetest.Must, sitetest.D, disbatch.Set, sitetest.ByID
