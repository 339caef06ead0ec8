//go:build invariants

package sim

import "math/rand/v2"

// table holds values with their weights: how often each is drawn, relative to the others.
type table[T any] struct {
	rows  []row[T]
	total int // of the weights
}

type row[T any] struct {
	weight int
	value  T
}

func newTable[T any](rows ...row[T]) table[T] {
	t := table[T]{rows: rows}
	for _, r := range rows {
		t.total += r.weight
	}
	return t
}

// draw returns a value of the table. It takes one number of rng.
func (t *table[T]) draw(rng *rand.Rand) T {
	n, i := rng.IntN(t.total), 0
	for ; n >= t.rows[i].weight; i++ {
		n -= t.rows[i].weight
	}
	return t.rows[i].value
}
