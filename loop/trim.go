package loop

// The runtime looks for memory that is not used any more when the heap grows, or after
// two minutes: a server whose backlog has been worked off would keep it.
const (
	// trimAfter is for how many sweeps, seconds, a backlog must stay gone: one that
	// comes and goes is served faster from memory that is still there.
	trimAfter = 20
	// trimLeast is how many bytes must have gone for a collection to be worth it.
	trimLeast = 16 << 20
)

// trimmer tells when memory is to be given back to the system.
type trimmer struct {
	peak int // most bytes held by jobs since the last time
	low  int // looks since it was last more than half of that
}

// look says whether it is time. held is how many bytes jobs take now.
func (t *trimmer) look(held int) bool {
	if held > t.peak/2 || t.peak-held < trimLeast {
		t.peak, t.low = max(t.peak, held), 0
		return false
	}
	if t.low++; t.low < trimAfter {
		return false
	}
	t.peak, t.low = held, 0
	return true
}
