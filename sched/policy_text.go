package sched

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// PolicyError reports an invalid rule.
type PolicyError struct {
	Pattern, Key string // pattern and key of the rule, as far as known
	Err          error
}

// Error names the rule and what may stand there.
func (e *PolicyError) Error() string {
	switch {
	case e.Pattern == "" && e.Key == "":
		return e.Err.Error()
	case e.Key == "":
		return fmt.Sprintf("queue %q: %v", e.Pattern, e.Err)
	}
	return fmt.Sprintf("queue %q, %s: %v", e.Pattern, e.Key, e.Err)
}

// Unwrap returns Err.
func (e *PolicyError) Unwrap() error { return e.Err }

func policyError(pattern, key, format string, args ...any) error {
	return &PolicyError{pattern, key, fmt.Errorf(format, args...)}
}

// longestPolicyTime bounds durations: a time beyond it is a slip of the pen.
const longestPolicyTime = 10 * 365 * 24 * time.Hour

// Backoff is a growing delay between retries. The zero Backoff delays nothing.
type Backoff struct {
	First, Longest int64 // milliseconds
	Factor         float64
	Jitter         float64 // the share of a delay by which it is made shorter or longer, up to 1
}

// delay returns the delay in milliseconds before a retry, by the number of the retry from 1 on. chance is any bits;
// they spread equal delays.
func (b *Backoff) delay(retry int, chance uint64) int64 {
	if b.First == 0 {
		return 0
	}
	d := min(float64(b.First)*math.Pow(b.Factor, float64(max(retry-1, 0))), float64(b.Longest))
	d += d * b.Jitter * (2*float64(chance>>11)/(1<<53) - 1)
	return min(max(int64(d), 1), b.Longest)
}

// Keep bounds what is kept by number and age; 0: no bound. A zero Keep keeps nothing.
type Keep struct {
	Jobs int64
	Age  int64 // milliseconds
}

func (p *Policy) setKeepFailed(text string) error {
	p.keepsFailed = true
	return setKeep(&p.KeepFailed, text)
}

// defaultKept is the KeepFailed of a policy whose rules do not set it. It also bounds the kept jobs of a queue that no
// rule matches any more.
var defaultKept = Keep{Jobs: 10000, Age: (30 * 24 * time.Hour).Milliseconds()}

// Rate bounds how many jobs start. The zero Rate bounds nothing.
type Rate struct {
	Jobs  int64 // number of jobs
	Per   int64 // time for that number, in milliseconds
	Burst int64 // number of jobs at once after a pause
}

// parseBackoff parses a back-off such as "1s..1h x2 ~20%": the first delay, the longest one, the factor and the jitter.
// All but the first delay are optional.
func parseBackoff(text string) (b Backoff, err error) {
	const usage = "a back-off reads 1s..1h x2 ~20%: the first delay, the longest, the factor, the jitter"
	b.Factor = 2
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return b, errors.New(usage)
	}
	first, longest, ranged := strings.Cut(fields[0], "..")
	if b.First, err = parseTime(first); err != nil {
		return Backoff{}, err
	}
	if b.Longest = b.First; ranged {
		if strings.HasPrefix(longest, ".") { // .1h would be a time
			return Backoff{}, fmt.Errorf("%s has a dot too many; %s", fields[0], usage)
		}
		if b.Longest, err = parseTime(longest); err != nil {
			return Backoff{}, err
		}
	}
	if b.Longest < b.First {
		return Backoff{}, fmt.Errorf("the longest delay, %s, is shorter than the first, %s", longest, first)
	}
	for i, f := range fields[1:] {
		for _, earlier := range fields[1 : 1+i] {
			if earlier[0] == f[0] {
				return Backoff{}, fmt.Errorf("%s and %s are for the same; %s", earlier, f, usage)
			}
		}
		switch value := f[1:]; {
		case f[0] == 'x':
			b.Factor, err = strconv.ParseFloat(value, 64)
			if err != nil || !(b.Factor >= 1 && b.Factor <= 1000) {
				return Backoff{}, fmt.Errorf("the factor %s is not a number from 1 to 1000", f)
			}
		case f[0] == '~' && strings.HasSuffix(value, "%"):
			share, err := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
			if err != nil || !(share >= 0 && share <= 100) {
				return Backoff{}, fmt.Errorf("the jitter %s is not a share from ~0%% to ~100%%", f)
			}
			b.Jitter = share / 100
		default:
			return Backoff{}, fmt.Errorf("%q is no part of a back-off; %s", f, usage)
		}
	}
	return b, nil
}

// parseKeep parses how many jobs are kept and for how long, such as "10000, 30d". Either part may be missing. 0 jobs
// mean that none are kept.
func parseKeep(text string) (k Keep, err error) {
	const usage = "it reads 10000, 30d"
	var number, age string
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		switch {
		case isNumber(part) && number != "":
			return Keep{}, fmt.Errorf("%s and %s are both numbers of jobs: %s", number, part, usage)
		case isNumber(part):
			if k.Jobs, err = parseCount(part, math.MaxUint32); err != nil {
				return Keep{}, fmt.Errorf("%w: %s", err, usage)
			}
			number = part
		case isTime(part) && age != "":
			return Keep{}, fmt.Errorf("%s and %s are both times: %s", age, part, usage)
		case isTime(part):
			if k.Age, err = parseTime(part); err != nil {
				return Keep{}, err
			}
			age = part
		default:
			return Keep{}, fmt.Errorf("%q is neither a number of jobs nor a time: %s", part, usage)
		}
	}
	if number != "" && k.Jobs == 0 {
		return Keep{}, nil
	}
	return k, nil
}

// parseRate parses a rate such as "10/s burst 20". Without a burst, the burst is the number of jobs.
func parseRate(text string) (r Rate, err error) {
	const usage = "a rate reads 10/s burst 20; the time is s, m, h or one such as 5m"
	number, rest, found := strings.Cut(text, "/")
	number = strings.TrimSpace(number)
	r.Jobs, err = parseCount(number, math.MaxInt32)
	switch {
	case err == nil && r.Jobs == 0:
		return Rate{}, errors.New("a rate of 0 would start nothing: treadle queue pause stops a queue, treadle queue unset QUEUE rate takes a rate away")
	case !found:
		return Rate{}, errors.New(usage)
	case err != nil:
		return Rate{}, fmt.Errorf("%q is not a number of jobs from 1 to %d: %s", number, math.MaxInt32, usage)
	}
	fields := strings.Fields(rest)
	switch len(fields) {
	case 1:
		r.Burst = r.Jobs
	case 3:
		if fields[1] != "burst" {
			return Rate{}, errors.New(usage)
		}
		if r.Burst, err = parseCount(fields[2], math.MaxInt32); err != nil || r.Burst == 0 {
			return Rate{}, fmt.Errorf("the burst %s is not a number from 1 to %d; %s", fields[2], math.MaxInt32, usage)
		}
	default:
		return Rate{}, errors.New(usage)
	}
	unit := fields[0]
	if unit == "s" || unit == "m" || unit == "h" || unit == "d" {
		unit = "1" + unit
	}
	if r.Per, err = parseTime(unit); err != nil {
		return Rate{}, err
	}
	if max(r.Jobs, r.Burst) > math.MaxInt64/4/r.Per {
		return Rate{}, fmt.Errorf("so many jobs in %s cannot be counted: name fewer, or a shorter time", fields[0])
	}
	return r, nil
}

// parseTime reads a time in milliseconds: seconds, what time.ParseDuration reads, or days as 30d.
func parseTime(text string) (ms int64, err error) {
	d, ok := readTime(text)
	switch {
	case !isTime(text):
		return 0, fmt.Errorf("%q is no time: write seconds (90), or units as in 500ms, 90s, 5m, 1h30m or 30d", text)
	case !ok || d < time.Millisecond || d > longestPolicyTime:
		return 0, fmt.Errorf("the time %s is not from 1ms to %dd", text, longestPolicyTime/(24*time.Hour))
	}
	return d.Milliseconds(), nil
}

// readTime reads a time. It returns false for any other text, and for a time that is out of range.
func readTime(text string) (d time.Duration, ok bool) {
	number, unit := text, time.Second
	if days, found := strings.CutSuffix(text, "d"); found {
		number, unit = days, 24*time.Hour
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		d = time.Duration(n) * unit
		return d, n == int64(d/unit)
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

// isTime reports whether a text is written as a time, which may be out of range.
func isTime(text string) bool {
	_, ok := readTime(zeros(text))
	return ok
}

// isNumber reports whether a text is written as a number, which may be out of range.
func isNumber(text string) bool {
	_, err := strconv.ParseInt(zeros(text), 10, 64)
	return err == nil
}

// zeros returns a text with all its digits as 0, so that no number in it is out of range.
func zeros(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return '0'
		}
		return r
	}, text)
}

// setTime sets a time in milliseconds, 0 for none.
func setTime(ms *int64, text string) (err error) {
	if text == "0" {
		*ms = 0
		return nil
	}
	*ms, err = parseTime(text)
	return err
}

func setKeep(k *Keep, text string) (err error) {
	*k, err = parseKeep(text)
	return err
}

func setCount(n *int64, text string) (err error) {
	*n, err = parseCount(text, math.MaxUint32)
	return err
}

func parseCount(text string, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%q is no number from 0 to %d", text, most)
	}
	return n, nil
}
