package node

import (
	"testing"

	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// site is a database for one test, with nodes.
type site struct{ *sitetest.Site }

func newSite(t *testing.T, lines ...string) *site {
	t.Helper()
	return &site{sitetest.New(t, lines...)}
}

// db returns the site's database with the queries of a node.
func (s *site) db() *database { return &database{s.Store} }

// newFaultySite is newSite on a double, for faults that a real database does not inject.
func newFaultySite(t *testing.T, lines ...string) *site {
	t.Helper()
	return &site{sitetest.NewFaulty(t, lines...)}
}

var must, d, set, byID = sitetest.Must, sitetest.D, store.Set, sitetest.ByID
