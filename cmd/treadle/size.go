package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// byteSize is a number of bytes, written as 1048576, 1024k, 1m or 1MiB.
type byteSize int

// units are powers of 1024; the decimal MB is refused rather than guessed at.
var units = []struct {
	suffix string
	shift  uint
}{
	{"kib", 10}, {"mib", 20}, {"gib", 30}, {"k", 10}, {"m", 20}, {"g", 30}, {"b", 0},
}

// UnmarshalText reads a size as a user writes it.
func (s *byteSize) UnmarshalText(text []byte) error {
	digits := strings.ToLower(strings.TrimSpace(string(text)))
	shift := uint(0)
	for _, u := range units {
		if front, found := strings.CutSuffix(digits, u.suffix); found {
			digits, shift = strings.TrimSpace(front), u.shift
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n > math.MaxInt>>shift {
		return fmt.Errorf("%q is not a size: write bytes (67108864), or k, m, g (powers of 1024) as in 64m or 64MiB", text)
	}
	*s = byteSize(n << shift)
	return nil
}
