package web

import (
	"testing"

	"go.uber.org/goleak"

	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestMain fails when a test or the driver leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var newSite, must, d, set, byID = sitetest.New, sitetest.Must, sitetest.D, store.Set, sitetest.ByID
