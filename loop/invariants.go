//go:build invariants

package loop

func init() { scribble = true }
