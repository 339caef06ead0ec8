package store_test

import (
	"testing"

	"go.uber.org/goleak"

	"treadle/loop/disbatch/sitetest"
)

// TestMain fails if a test leaves a goroutine of the driver behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	newSite, newFaultySite = sitetest.New, sitetest.NewFaulty
	must, d, set, byID     = sitetest.Must, sitetest.D, sitetest.Set, sitetest.ByID
)
