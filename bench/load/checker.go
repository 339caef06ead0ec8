package load

import "fmt"

// checker checks that each of the jobs 0 to total-1 arrives exactly once. When fewer are wanted, that many must arrive,
// each once. A checker has one goroutine.
type checker struct {
	seen     []uint64 // one bit a job
	total    int
	wanted   int
	received int
}

func newChecker(total int) *checker {
	return &checker{seen: make([]uint64, (total+63)/64), total: total, wanted: total}
}

// take notes the arrival of job id. It reports an id that was never submitted and one that arrived before.
func (c *checker) take(id uint64) error {
	if id >= uint64(c.total) {
		return fmt.Errorf("job %d arrived, which was never submitted", id)
	}
	word, bit := &c.seen[id/64], uint64(1)<<(id%64)
	if *word&bit != 0 {
		return fmt.Errorf("job %d arrived a second time, after %d of %d jobs", id, c.received, c.total)
	}
	*word |= bit
	c.received++
	return nil
}

// has reports whether a submitted job arrived.
func (c *checker) has(id uint64) bool { return c.seen[id/64]&(1<<(id%64)) != 0 }

// check reports the jobs that did not arrive.
func (c *checker) check() error {
	if c.received == c.wanted {
		return nil
	}
	if c.wanted < c.total {
		return fmt.Errorf("%d jobs arrived, not %d", c.received, c.wanted)
	}
	for id := range c.total {
		if !c.has(uint64(id)) {
			return fmt.Errorf("%d of %d jobs never arrived; the first is job %d", c.total-c.received, c.total, id)
		}
	}
	return nil
}
