//go:build invariants

package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"treadle/loop"
	"treadle/sched"
)

// effectivePolicy is the policy that the queue has: what its rules come to.
type effectivePolicy struct {
	retries             int   // less than 0: for ever
	first, most, jitter int64 // milliseconds of the back-off, which doubles, and a share in percent; first 0: at once
	keepNone            bool  // keep no failed jobs
	keepJobs            int   // of these; 0: any number
	keepAge             int64 // milliseconds; 0: for ever
	deadLetter          bool

	maxJobs, maxBytes, maxPayload int // 0: no limit
	noSubmits                     bool

	concurrency      int   // 0: any number
	jobs, per, burst int64 // jobs start in per milliseconds, and burst of them at once; jobs 0: any number
	noHandOut        bool

	oneKey         bool // all jobs have the empty key; else it is the first letter of a job's name
	keyConcurrency int  // 0: any number
	fair           bool
	weights        [2]int // of the keys a and b

	ttl, uniqueFor        int64 // milliseconds; 0: for ever, and not at all
	keepDone, keepResults policyKeep
}

// noPolicy is the policy of a queue that no rule matches.
var noPolicy = effectivePolicy{retries: -1}

// policyValue is a value of a key of a rule, and what it means.
type policyValue struct {
	key, text string
	means     func(*effectivePolicy)
}

// policyValues are the values that the play sets. That of dead-letter is the dead-letter queue.
var policyValues = []policyValue{
	{"retries", "0", func(r *effectivePolicy) { r.retries = 0 }},
	{"retries", "1", func(r *effectivePolicy) { r.retries = 1 }},
	{"retries", "2", func(r *effectivePolicy) { r.retries = 2 }},
	{"retries", "forever", func(r *effectivePolicy) { r.retries = -1 }},
	{"backoff", "1500ms..10s x2", func(r *effectivePolicy) { r.first, r.most, r.jitter = 1500, 10_000, 0 }},
	{"backoff", "4s..10s x2", func(r *effectivePolicy) { r.first, r.most, r.jitter = 4000, 10_000, 0 }},
	{"backoff", "2s..6s x2 ~20%", func(r *effectivePolicy) { r.first, r.most, r.jitter = 2000, 6000, 20 }},
	{"keep-failed", "0", func(r *effectivePolicy) { r.keepNone = true }},
	{"keep-failed", "2", func(r *effectivePolicy) { r.keepNone, r.keepJobs, r.keepAge = false, 2, 0 }},
	{"keep-failed", "10s", func(r *effectivePolicy) { r.keepNone, r.keepJobs, r.keepAge = false, 0, 10_000 }},
	{"keep-failed", "3, 20s", func(r *effectivePolicy) { r.keepNone, r.keepJobs, r.keepAge = false, 3, 20_000 }},
	{"max-jobs", "3", func(r *effectivePolicy) { r.maxJobs = 3 }},
	{"max-jobs", "5", func(r *effectivePolicy) { r.maxJobs = 5 }},
	{"max-bytes", "300", func(r *effectivePolicy) { r.maxBytes = 300 }},
	{"max-payload", "80", func(r *effectivePolicy) { r.maxPayload = 80 }},
	{"concurrency", "1", func(r *effectivePolicy) { r.concurrency = 1 }},
	{"concurrency", "2", func(r *effectivePolicy) { r.concurrency = 2 }},
	{policyKey, "name before :", func(r *effectivePolicy) { r.oneKey = false }},
	{policyKey, "json missing", func(r *effectivePolicy) { r.oneKey = true }},
	{"key-concurrency", "1", func(r *effectivePolicy) { r.keyConcurrency = 1 }},
	{"key-concurrency", "2", func(r *effectivePolicy) { r.keyConcurrency = 2 }},
	{policyFair, "key", func(r *effectivePolicy) { r.fair = true }},
	{policyFair, "no", func(r *effectivePolicy) { r.fair = false }},
	{policyWeights, "a=2", func(r *effectivePolicy) { r.weights = [2]int{2, 1} }},
	{policyWeights, "a=1 b=3", func(r *effectivePolicy) { r.weights = [2]int{1, 3} }},
	{"job-ttl", "3s", func(r *effectivePolicy) { r.ttl = 3000 }},
	{"job-ttl", "20s", func(r *effectivePolicy) { r.ttl = 20_000 }},
	{"unique-for", "5s", func(r *effectivePolicy) { r.uniqueFor = 5000 }},
	{"unique-for", "1m", func(r *effectivePolicy) { r.uniqueFor = 60_000 }},
	{"keep-done", "0", func(r *effectivePolicy) { r.keepDone = policyKeep{} }},
	{"keep-done", "2", func(r *effectivePolicy) { r.keepDone = policyKeep{on: true, jobs: 2} }},
	{"keep-done", "4, 15s", func(r *effectivePolicy) { r.keepDone = policyKeep{true, 4, 15_000} }},
	{"keep-results", "2", func(r *effectivePolicy) { r.keepResults = policyKeep{on: true, jobs: 2} }},
	{"keep-results", "10s", func(r *effectivePolicy) { r.keepResults = policyKeep{on: true, age: 10_000} }},
	{"rate", "1/s burst 2", func(r *effectivePolicy) { r.jobs, r.per, r.burst = 1, 1000, 2 }},
	{"rate", "2/3s", func(r *effectivePolicy) { r.jobs, r.per, r.burst = 2, 3000, 2 }},
	{policyPaused, "hand-out", func(r *effectivePolicy) { r.noHandOut, r.noSubmits = true, false }},
	{policyPaused, pausedSubmits, func(r *effectivePolicy) { r.noHandOut, r.noSubmits = false, true }},
	{policyPaused, "both", func(r *effectivePolicy) { r.noHandOut, r.noSubmits = true, true }},
	{policyPaused, notPaused, func(r *effectivePolicy) { r.noHandOut, r.noSubmits = false, false }},
	{"dead-letter", "(the dead-letter queue)", func(r *effectivePolicy) { r.deadLetter = true }},
}

// policyKey is the key of a rule that says what a job's key is; policyWeights is that of weights, which the server
// refuses where the keys do not take turns.
const policyKey, policyWeights, policyFair = "key", "weights", "fair"

// policyPaused is the key of a rule for a pause, with two of its values.
const policyPaused, pausedSubmits, notPaused = "paused", "submits", "no"

// fairByKey has the keys take turns.
var fairByKey = &policyValues[slices.IndexFunc(policyValues, func(t policyValue) bool { return t.key == policyFair })]

// areValid reports whether the server takes the rules: where one has weights, the keys take turns.
func areValid(rules []*policyRule) bool {
	for _, rule := range rules {
		if rule.values[policyWeights] == nil {
			continue
		}
		var fair effectivePolicy
		for _, o := range rules {
			if t := o.values[policyFair]; t != nil && (o.pattern == rule.pattern || !slices.Contains(policyGlobs[:], rule.pattern)) {
				t.means(&fair)
			}
		}
		if !fair.fair {
			return false
		}
	}
	return true
}

// policyKeys are the keys of policyValues.
var policyKeys = func() (keys []string) {
	for _, t := range policyValues {
		if !slices.Contains(keys, t.key) {
			keys = append(keys, t.key)
		}
	}
	return keys
}()

// drawPolicyValue draws a value for a key.
func drawPolicyValue(rng *rand.Rand, key string) *policyValue {
	first := slices.IndexFunc(policyValues, func(t policyValue) bool { return t.key == key })
	n := 0
	for _, t := range policyValues {
		n += oneIf(t.key == key)
	}
	return &policyValues[first+rng.IntN(n)]
}

// policyRule is a rule of the play: a pattern, where it comes from, and its values by key.
type policyRule struct {
	pattern, source string
	values          map[string]*policyValue
}

// policyGlobs match the queue of the model alone; the second is the stronger.
var policyGlobs = [2]string{"pol*", "*iced.*"}

// newPolicyRules returns the rules of a play, the weaker first: those of the file, which are drawn for the whole play,
// and those of the run time, which are empty.
func newPolicyRules(rng *rand.Rand) (all []*policyRule) {
	for _, glob := range policyGlobs {
		// The rules of the file have it always: without it the server refuses a rule for keys.
		file := &policyRule{glob, "file", map[string]*policyValue{policyKey: drawPolicyValue(rng, policyKey)}}
		for range rng.IntN(3) {
			key := policyKeys[rng.IntN(len(policyKeys))]
			if key != policyPaused && key != "dead-letter" { // a pause would last to the end; dead-letter needs the queue's name
				file.values[key] = drawPolicyValue(rng, key)
			}
			if key == policyWeights {
				file.values[policyFair] = fairByKey
			} else if !areValid([]*policyRule{file}) {
				delete(file.values, policyWeights)
			}
		}
		all = append(all, file, &policyRule{glob, "run time", map[string]*policyValue{}})
	}
	return append(all, &policyRule{"", "run time", map[string]*policyValue{}}) // the rules of the queue's own name
}

// policyFile is the configuration file's part of the rules.
func (m *PolicyModel) policyFile() (rules []loop.PolicyRule) {
	for _, rule := range m.rules {
		if rule.source != "file" {
			continue
		}
		values := make(map[string]string)
		for key, t := range rule.values {
			values[key] = t.text
		}
		rules = append(rules, loop.PolicyRule{Pattern: rule.pattern, Source: sched.FromFile, Values: values})
	}
	return rules
}

// text returns a value as the server has it.
func (m *PolicyModel) text(t *policyValue) string {
	if t.key == "dead-letter" {
		return m.dead
	}
	return t.text
}

// mergedPolicy returns what the rules come to: of each key the value of the strongest rule that has it.
func (m *PolicyModel) mergedPolicy() effectivePolicy {
	r := noPolicy
	for _, key := range policyKeys {
		if t, _ := m.strongest(key); t != nil {
			t.means(&r)
		}
	}
	return r
}

// strongest returns the value that a key has, and its rule; nil: none has it.
func (m *PolicyModel) strongest(key string) (t *policyValue, of *policyRule) {
	for _, rule := range m.rules {
		if rule.values[key] != nil {
			t, of = rule.values[key], rule
		}
	}
	return t, of
}

// String is the values in the order of their keys.
func (s *policyRule) String() string {
	text := []string{s.pattern + " of the " + s.source + ":"}
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		text = append(text, fmt.Sprintf("%s=%q", key, s.values[key].text))
	}
	return strings.Join(text, " ")
}

// delay is the back-off before a retry, at the least and at the most.
func (r *effectivePolicy) delay(retry int) (least, most int64) {
	d := min(r.first<<min(max(retry-1, 0), 20), r.most)
	return d - d*r.jitter/100, min(d+d*r.jitter/100, r.most)
}
