package journal

import (
	"fmt"
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
