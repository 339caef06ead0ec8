package node

import (
	"testing"

	"treadle/loop/disbatch/sitetest"
)

// site is a database for one test, with nodes.
type site struct{ *sitetest.Site }

func newSite(t *testing.T, lines ...string) *site {
	t.Helper()
	return &site{sitetest.New(t, lines...)}
}

// newFaultySite is newSite on a fake, for faults that a real database does not inject.
func newFaultySite(t *testing.T, lines ...string) *site {
	t.Helper()
	return &site{sitetest.NewFaulty(t, lines...)}
}

var must, d, set, byID = sitetest.Must, sitetest.D, sitetest.Set, sitetest.ByID
