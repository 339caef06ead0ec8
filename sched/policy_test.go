package sched

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestPolicyValues: each key reads what is meant and refuses what is not, with a text that says what may stand there.
func TestPolicyValues(t *testing.T) {
	hour := time.Hour.Milliseconds()
	good := func(key, text string, want Policy) {
		t.Helper()
		var p Policy
		if err := p.set(key, text); err != nil || !reflect.DeepEqual(p, want) {
			t.Errorf("%s = %q: %+v, %v; want %+v", key, text, p, err, want)
		}
	}
	good("retries", "3", Policy{Limited: true, Retries: 3})
	good("retries", "0", Policy{Limited: true})
	good("retries", "forever", Policy{})
	good("backoff", "1s..1h x2 ~20%", Policy{Backoff: Backoff{First: 1000, Longest: hour, Factor: 2, Jitter: 0.2}})
	good("backoff", "500ms", Policy{Backoff: Backoff{First: 500, Longest: 500, Factor: 2}})
	good("backoff", "1s..1d x1.5", Policy{Backoff: Backoff{First: 1000, Longest: 24 * hour, Factor: 1.5}})
	good("keep-failed", "10000, 30d", Policy{KeepFailed: Keep{10000, 720 * hour}, keepsFailed: true})
	good("keep-failed", "1h", Policy{KeepFailed: Keep{0, hour}, keepsFailed: true})
	good("keep-failed", "0", Policy{keepsFailed: true})
	good("dead-letter", "mail.dead", Policy{DeadLetter: "mail.dead"})
	good("dead-letter", "no", Policy{})
	good("max-jobs", "5", Policy{MaxJobs: 5})
	good("max-bytes", "1GiB", Policy{MaxBytes: 1 << 30})
	good("max-payload", "64k", Policy{MaxPayload: 64 << 10})
	good("concurrency", "10", Policy{Concurrency: 10})
	good("rate", "10/s", Policy{Rate: Rate{10, 1000, 10}})
	good("rate", "10/5m burst 20", Policy{Rate: Rate{10, 300_000, 20}})
	good("paused", "both", Policy{Paused: pauseHandOut | pauseSubmits})
	good("paused-why", "because", Policy{})

	bad := func(key, text, say string) {
		t.Helper()
		if err := new(Policy).set(key, text); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s = %q: %v; want %q in it", key, text, err, say)
		}
	}
	bad("retries", "-1", "no number from 0")
	bad("retries", "99999999999999999999", "no number")
	bad("retries", "many", "no number")
	bad("backoff", "", "reads 1s..1h")
	bad("backoff", "-1s", "not from 1ms")
	bad("backoff", "1h..1s", "shorter than the first")
	bad("backoff", "1s..999999h", "not from 1ms")
	bad("backoff", "1s x0.5", "factor")
	bad("backoff", "1s xNaN", "factor")
	bad("backoff", "1s ~200%", "jitter")
	bad("backoff", "1s soon", "no part of a back-off")
	bad("keep-failed", "some", "reads 10000, 30d")
	bad("keep-failed", "-1", "reads 10000, 30d")
	bad("dead-letter", "mail.*", "the name of a queue")
	bad("max-jobs", "x", "no number")
	bad("max-bytes", "5MB", "powers of 1024")
	bad("max-bytes", "99999999999g", "not a size")
	bad("rate", "0/s", "treadle queue pause stops a queue")
	bad("rate", "0", "treadle queue pause stops a queue")
	bad("rate", "-5/s", `"-5" is not a number of jobs from 1 to 2147483647: a rate reads 10/s`)
	bad("rate", "10", "reads 10/s")
	bad("rate", "10/s burst 0", "reads 10/s")
	bad("rate", "2147483647/3650d", "cannot be counted")
	bad("rate", "10/0s", "not from 1ms")
	bad("backoff", "1s...1h", "1s...1h has a dot too many")
	bad("backoff", "1s..1h x2 x3", "x2 and x3 are for the same")
	bad("backoff", "1s ~20% x2 ~30%", "~20% and ~30% are for the same")
	bad("keep-failed", "10, 20", "10 and 20 are both numbers of jobs")
	bad("keep-failed", "0, 20", "0 and 20 are both numbers of jobs")
	bad("keep-done", "0, soon", "neither a number of jobs nor a time")
	bad("keep-done", "30d, 20d", "30d and 20d are both times")
	bad("keep-results", "10,30d,1", "10 and 1 are both numbers of jobs")
	bad("paused", "maybe", "hand-out, submits, both or no")
	bad("paused-why", strings.Repeat("x", maxPolicyText+1), "at most")
	bad("color", "red", "the keys are retries,")
}

// TestPolicyPrecedence: a name beats a pattern, a pattern with more letters beats one with fewer, and of equal patterns
// the run time beats the file, value by value.
func TestPolicyPrecedence(t *testing.T) {
	table, err := NewPolicies([]PolicyRule{
		{"mail.urgent", FromFile, map[string]string{"retries": "9"}},
		{"*", FromRunTime, map[string]string{"retries": "1", "max-jobs": "7", "concurrency": "1"}},
		{"mail.*", FromRunTime, map[string]string{"retries": "3"}},
		{"mail.*", FromFile, map[string]string{"retries": "2", "max-jobs": "5"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range table.Explain("mail.urgent") {
		got = append(got, fmt.Sprint(v.Key, "=", v.Value, " ", v.Pattern, " ", v.Source))
	}
	want := "[retries=9 mail.urgent file max-jobs=5 mail.* file concurrency=1 * run time]"
	if fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	p := table.forQueue("mail.urgent")
	if p.Retries != 9 || p.MaxJobs != 5 || p.Concurrency != 1 || p.KeepFailed != defaultKept {
		t.Errorf("the policy is %+v", p)
	}
	if p := table.forQueue("mail.x"); p.Retries != 3 || p.MaxJobs != 5 {
		t.Errorf("of mail.x the policy is %+v", p)
	}
	for _, bad := range [][]PolicyRule{
		{{"", FromFile, nil}}, {{strings.Repeat("q", maxPattern+1), FromFile, nil}}, make([]PolicyRule, maxPolicyRules+1),
		{{"a", FromFile, nil}, {"a", FromFile, nil}}, {{"a", FromFile, map[string]string{"dead-letter": "a"}}},
		{{"a", FromFile, map[string]string{"retries": "x"}}},
	} {
		if _, err := NewPolicies(bad); err == nil {
			t.Errorf("the rules %.60v are taken", bad)
		}
	}
}

// TestPolicyPausedBy: who has paused a queue, and why, come from the rule that says what is paused.
func TestPolicyPausedBy(t *testing.T) {
	pattern := PolicyRule{"wy.*", FromRunTime, map[string]string{"paused": "both", "paused-by": "ada", "paused-why": "the db moves"}}
	for _, c := range []struct {
		own  map[string]string
		want string
	}{
		{nil, "[paused=both paused-by=ada paused-why=the db moves]"},
		{map[string]string{"retries": "1", "paused-why": "none"}, "[retries=1 paused=both paused-by=ada paused-why=the db moves]"},
		{map[string]string{"paused": "hand-out", "paused-by": "bob"}, "[paused=hand-out paused-by=bob]"},
		{map[string]string{"paused": "no"}, "[paused=no]"},
	} {
		table, err := NewPolicies([]PolicyRule{pattern, {"wy.b", FromRunTime, c.own}})
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, v := range table.Explain("wy.b") {
			got = append(got, v.Key+"="+v.Value)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("with the rule %v of its own the queue has %v, want %s", c.own, got, c.want)
		}
	}
}

// TestPolicyExceptions: a pause of a pattern names the stronger rules that let queues of it go on.
func TestPolicyExceptions(t *testing.T) {
	const key = "paused"
	table, err := NewPolicies([]PolicyRule{
		{"p2.*", FromRunTime, map[string]string{key: "both"}},
		{"p*", FromRunTime, map[string]string{key: "no"}},        // weaker
		{"p2.*", FromFile, map[string]string{key: "no"}},         // weaker
		{"p2.also", FromRunTime, map[string]string{key: "both"}}, // pauses as much
		{"p2.file", FromFile, map[string]string{key: "no"}},
		{"p2.again", FromFile, map[string]string{key: "no"}}, // hidden by the next
		{"p2.again", FromRunTime, map[string]string{key: "both"}},
		{"p2.less", FromRunTime, map[string]string{key: "submits"}},
		{"p2.x*", FromRunTime, map[string]string{key: "no"}},
		{"p2.y", FromRunTime, map[string]string{"retries": "1"}},
		{"p3.x", FromRunTime, map[string]string{key: "no"}}, // another pattern's
	})
	if err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"p2.*": "[{paused no p2.x* run time} {paused no p2.file file} {paused submits p2.less run time}]",
		"p2.y": "[]", "p*": "[]", "none": "[]", "p2.also": "[]",
	} {
		if got := fmt.Sprint(table.Exceptions(pattern)); got != want {
			t.Errorf("of %s: got %s, want %s", pattern, got, want)
		}
	}
}

// TestPolicyRanges: a time, a size, a number or a rate that is out of range is told the range, not that it is none.
func TestPolicyRanges(t *testing.T) {
	const times = "is not from 1ms to 3650d"
	for _, c := range [][3]string{
		{"job-ttl", "999999999h", times}, {"job-ttl", "4000d", times}, {"job-ttl", "-5", times}, {"job-ttl", "-5d", times},
		{"unique-for", "9999999999", times}, {"unique-for", "99999999999999999999", times}, {"unique-for", "99999999999999999999d", times},
		{"backoff", "1s..999999999h", times}, {"keep-failed", "999999999h", times}, {"rate", "1/999999999h", times},
		{"keep-done", "99999999999", "is no number from 0 to 4294967295"}, {"keep-done", "-1", "is no number from 0 to 4294967295"},
		{"rate", "1/s burst 99999999999", "the burst 99999999999 is not a number from 1 to 2147483647"},
		{"rate", "1/s burst 0", "the burst 0 is not a number from 1 to"}, {"rate", "99999999999/s", "is not a number of jobs from 1 to 2147483647"},
		{"max-bytes", "99999999999g", "is not a size from 0 to 9223372036854775807 bytes"},
		{"max-payload", "99999999999999999999", "is not a size from 0 to 9223372036854775807 bytes"},
		{"job-ttl", "soon", "is no time"}, {"job-ttl", "1.5d", "is no time"}, {"max-bytes", "-1", "is not a size"},
		{"keep-failed", "soon", "is neither a number of jobs nor a time"}, {"rate", "1/s bursts 1", "a rate reads"},
	} {
		if err := new(Policy).set(c[0], c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s=%s: %v, want %q", c[0], c[1], err, c[2])
		}
	}
	for text, want := range map[string]string{"@every 999999999h": times, "*/99999999999999999999 * * * *": "has a step that is no number from 1 to 59"} {
		if _, err := ParseSchedule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestPolicyPatterns: * is any bytes, ? is one.
func TestPolicyPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a", "ab", false}, {"*", "", true}, {"*", "x/y", true}, {"a*c", "abbc", true}, {"a*c", "abcd", false},
		{"a?c", "abc", true}, {"a?c", "ac", false}, {"*.mail.*", "eu.mail.x", true}, {"**", "q", true}, {"a*b*c", "aXbYbZc", true}, {"[a]", "a", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.name, got)
		}
	}
	if matches(strings.Repeat("*a", 100)+"b", strings.Repeat("a", 255)) {
		t.Error("a pattern with many * matches what it does not")
	}
}

// TestBackoff: a delay grows by its factor up to the longest, jitter stays within its share, and no try overflows.
func TestBackoff(t *testing.T) {
	b := Backoff{First: 1000, Longest: 60_000, Factor: 2}
	for i, want := range []int64{1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000} {
		if got := b.delay(i+1, 0); got != want {
			t.Errorf("retry %d comes after %d ms, want %d", i+1, got, want)
		}
	}
	if got := b.delay(1<<31-1, 0); got != 60_000 {
		t.Errorf("a late retry comes after %d ms", got)
	}
	b.Jitter = 0.2
	low, high := b.delay(2, 0), b.delay(2, ^uint64(0))
	if low != 1600 || high < 2399 || high > 2400 {
		t.Errorf("with a jitter of 20%% the second retry comes after %d to %d ms", low, high)
	}
	if d := (&Backoff{First: 1, Longest: 1, Factor: 1, Jitter: 1}).delay(1, 0); d != 1 {
		t.Errorf("with a jitter of all of it the delay is %d ms", d)
	}
}
