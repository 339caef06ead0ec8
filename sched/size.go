package sched

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes. It is printed as flags are written: 64MiB, 66.8MiB, 70 bytes.
type Size int64

// String never rounds to a whole unit, so that two different sizes do not read the same.
func (s Size) String() string {
	for _, u := range []struct {
		name  string
		shift uint
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		switch {
		case s>>u.shift < 1:
			continue
		case s>>u.shift<<u.shift == s:
			return fmt.Sprintf("%d%s", s>>u.shift, u.name)
		}
		if text := fmt.Sprintf("%.1f", float64(s)/float64(int64(1)<<u.shift)); !strings.HasSuffix(text, ".0") {
			return text + u.name
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
