package loop

// The Go runtime gives unused memory back when the heap grows, or within two minutes. Without a
// trimmer, a server whose backlog is gone would keep much of its memory.
const (
	// trimAfter is for how many seconds, of one sweep each, a backlog must stay gone. A backlog
	// that comes and goes is served faster from memory that is kept.
	trimAfter = 20
	// trimLeast is how many bytes must have gone for a collection to pay.
	trimLeast = 16 << 20
)

// trimmer decides when to give memory back to the system.
type trimmer struct {
	peak int // the most bytes that jobs held since memory was given back
	low  int // calls of shouldTrim since jobs held more than half of peak
}

// shouldTrim reports whether memory is to be given back now. held is how many bytes jobs hold now.
func (t *trimmer) shouldTrim(held int) bool {
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
