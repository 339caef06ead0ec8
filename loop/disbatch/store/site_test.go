package store_test

import (
	"testing"

	"go.uber.org/goleak"

	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestMain fails if a test leaves a goroutine of the driver behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	newSite, newFaultySite = sitetest.New, sitetest.NewFaulty
	must, d, set           = sitetest.Must, sitetest.D, store.Set
)
