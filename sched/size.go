package sched

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. It is printed for people, as 64MiB, 66.8MiB or 70 bytes.
type Size int64

// printedUnits are the units of a printed size, the largest first.
var printedUnits = []struct {
	name  string
	bytes Size
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String uses the largest unit that fits. It rounds to one decimal. A whole size has no decimal, so 64.0MiB stands for
// nearly 64MiB.
func (s Size) String() string {
	for _, u := range printedUnits {
		switch {
		case s < u.bytes-u.bytes/20480: // in the next unit it would not round up to 1024.0
			continue
		case s%u.bytes == 0:
			return fmt.Sprintf("%d%s", s/u.bytes, u.name)
		}
		return fmt.Sprintf("%.1f%s", float64(s)/float64(u.bytes), u.name)
	}
	return s.Exact()
}

// Exact uses the largest unit in which the size is a whole number, for texts that state a bound.
func (s Size) Exact() string {
	for _, u := range printedUnits {
		if s >= u.bytes && s%u.bytes == 0 {
			return fmt.Sprintf("%d%s", s/u.bytes, u.name)
		}
	}
	if s == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", int64(s))
}

// sizeUnits are powers of 1024; the decimal MB is refused rather than guessed at.
var sizeUnits = []struct {
	suffix string
	shift  uint
}{
	{"kib", 10}, {"mib", 20}, {"gib", 30}, {"k", 10}, {"m", 20}, {"g", 30}, {"b", 0},
}

// ParseSize reads a size in bytes as a user writes it: 1048576, 1024k, 1m or 1MiB.
func ParseSize(text string) (int64, error) {
	digits, shift := strings.ToLower(strings.TrimSpace(text)), uint(0)
	for _, u := range sizeUnits {
		if front, found := strings.CutSuffix(digits, u.suffix); found {
			digits, shift = strings.TrimSpace(front), u.shift
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > math.MaxInt64>>shift:
		return 0, fmt.Errorf("%q is not a size from 0 to %d bytes", text, math.MaxInt64)
	case err != nil:
		return 0, fmt.Errorf("%q is not a size: write bytes (67108864), or k, m, g (powers of 1024) as in 64m or 64MiB", text)
	}
	return int64(n << shift), nil
}

func setSize(size *int64, text string) (err error) {
	*size, err = ParseSize(text)
	return err
}
