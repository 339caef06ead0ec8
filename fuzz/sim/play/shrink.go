package play

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Player plays the steps of a seed; keep, unless nil, reports for each step whether it is played. The same arguments
// give the same result, to the last byte.
type Player func(seed uint64, steps int, keep []bool) Result

// Result is what a play came to.
type Result struct {
	Trace, Summary string
	FailedAt       int   // step
	Failure        error // nil: all promises were kept
}

// Explain makes a failed play as short as it goes, and says how to play it again; command is the
// beginning of that command line.
func Explain(play Player, command string, seed uint64, steps int, failed *Result, keep []bool) string {
	steps = min(failed.FailedAt+1, steps)
	short := make([]bool, steps)
	for i := range short {
		short[i] = keep == nil || keep[i]
	}
	shortest, again := shrink(play, seed, short)
	if again == nil {
		return fmt.Sprintf("%v\nit does not happen again: something is not simulated", failed.Failure)
	}
	r := play(seed, steps, shortest)
	return fmt.Sprintf("%v\nreplay with: %s SEED=%d STEPS=%d\nshorter:     %s SEED=%d STEPS=%d KEEP=%s\n%v\n%s",
		failed.Failure, command, seed, steps, command, seed, steps, ranges(shortest), r.Failure, r.Trace[max(0, len(r.Trace)-6000):])
}

// ParseSteps reads which steps to keep, as Explain writes them: 0-7,12. No text keeps all, which is nil.
func ParseSteps(text string, steps int) ([]bool, error) {
	if text == "" {
		return nil, nil
	}
	keep := make([]bool, steps)
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		a, err := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || a < 0 || a > b || b >= steps {
			return nil, fmt.Errorf("%q is no range of steps below %d", part, steps)
		}
		for i := a; i <= b; i++ {
			keep[i] = true
		}
	}
	return keep, nil
}

// shrinkFor limits the time spent on making a failure shorter.
const shrinkFor = 20 * time.Second

// shrink leaves out steps as long as the play still fails in the same way, larger parts first.
func shrink(play Player, seed uint64, keep []bool) (shortest []bool, failure error) {
	failure = play(seed, len(keep), keep).Failure
	if failure == nil {
		return keep, nil
	}
	began := time.Now()
	for size := len(keep) / 2; size >= 1; size /= 2 {
		for from := 0; from < len(keep) && time.Since(began) < shrinkFor; from += size {
			part := keep[from:min(from+size, len(keep))]
			if !slices.Contains(part, true) {
				continue
			}
			try := slices.Clone(keep)
			clear(try[from : from+len(part)])
			if err := play(seed, len(keep), try).Failure; err != nil && kindOf(err) == kindOf(failure) {
				keep, failure = try, err
			}
		}
	}
	return keep, failure
}

// kindOf is a failure without its numbers, by which shrink tells the same failure from another one.
func kindOf(failure error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '-' {
			return -1
		}
		return r
	}, failure.Error())
}

// ranges writes what ParseSteps reads.
func ranges(keep []bool) string {
	var parts []string
	for i := 0; i < len(keep); i++ {
		if !keep[i] {
			continue
		}
		from := i
		for i+1 < len(keep) && keep[i+1] {
			i++
		}
		if from == i {
			parts = append(parts, fmt.Sprint(i))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", from, i))
		}
	}
	return strings.Join(parts, ",")
}
