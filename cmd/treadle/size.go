package main

import "treadle/loop"

// byteSize is a number of bytes, written as 1048576, 1024k, 1m or 1MiB.
type byteSize int

// UnmarshalText reads a size as a user writes it.
func (s *byteSize) UnmarshalText(text []byte) error {
	n, err := loop.ParseSize(string(text))
	*s = byteSize(n)
	return err
}
