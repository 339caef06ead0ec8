package play

import "math/rand/v2"

// Table holds values with their weights: how often each is drawn, relative to the others.
type Table[T any] struct {
	rows  []Row[T]
	total int // of the weights
}

// Row is one value of a Table, made by Of.
type Row[T any] struct {
	weight int
	value  T
}

// Of gives a value a weight.
func Of[T any](weight int, value T) Row[T] { return Row[T]{weight, value} }

// NewTable makes a table.
func NewTable[T any](rows ...Row[T]) Table[T] {
	t := Table[T]{rows: rows}
	for _, r := range rows {
		t.total += r.weight
	}
	return t
}

// Draw returns a value of the table. It takes one number of rng.
func (t *Table[T]) Draw(rng *rand.Rand) T {
	n, i := rng.IntN(t.total), 0
	for ; n >= t.rows[i].weight; i++ {
		n -= t.rows[i].weight
	}
	return t.rows[i].value
}
