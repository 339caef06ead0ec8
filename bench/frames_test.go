package main

import (
	"slices"
	"testing"

	"treadle/bench/load"
	"treadle/bench/peer"
)

// TestFrameEcho times frames over the echo itself.
func TestFrameEcho(t *testing.T) {
	all := peer.All("treadle")
	echo := all[slices.IndexFunc(all, func(p peer.Contender) bool { return p.Name == peer.Frames })]
	r := row{Name: "frames echoed", Section: "alone", Kind: kindFrames, Load: load.Load{Connections: 2, Depth: 8}}
	s, err := measure(t.Context(), r, echo, 3000)
	if err != nil || s.Jobs != 3000 || s.Figures["jobs/s"] == 0 || s.Figures["CPU"] == 0 {
		t.Errorf("got %+v, %v", s, err)
	}
}
