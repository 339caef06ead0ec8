package sched

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// SetPolicies gives queues rules beside the rules of the spaces of their jobs. Without such a rule a queue has no
// policy, and nothing of this happens.
//
// Retries, Backoff, KeepFailed and DeadLetter are for jobs whose space has no rule of its own for failures
// (Rules.MaxFailures, Owned, Graph). A failure is a Fail, a time-out, or a worker that leaves. A Delay is no failure:
// the worker has decided. A job with retries left is delayed by its back-off. It keeps its name, its priority, its
// awaits and its sequence number; its locks are free, as after every run. A job without retries left is given up: its
// awaits end with Failed, its name is free, and its state is failed. From then on only KeepFailed, DeadLetter, the
// verbs of operators and the drop of its queue change it. The history of a job has its attempts, each a run and how it
// ended. A submission that replaces the job ends the history.
//
// Rules.RetryRules is for the failures of a space's jobs. The Count of a job is the number of its retries. The back-off
// and the keep-failed of a queue's policy come before those of the space. Jobs of such a space are failed when their
// retries are used up, also in a queue without a policy.
//
// JobTTL ends ready jobs as expired. A job is never handed out later than JobTTL after its due time. A retry sets the
// due time again; a wait for a lock does not. Its awaits end with Failed. Due times count in seconds, so a job expires
// up to a second late, and never early. Tasks, and jobs of Rules.MaxFailures that have failed, have no due time. A job
// that a change of the clock has made old expires like any other.
//
// KeepDone, KeepResults and UniqueFor are for jobs whose space has Rules.keepsEnded. At its Finish a job is kept as
// finished for the largest of its uses. When it is too old or there are too many, it is kept for a lesser use, with
// fewer of its bytes, or removed. The last done job of a name is found by its name: a Submit of this name within
// UniqueFor changes nothing, and its await at once receives the kept result, or an empty one. Operators who remove the
// finished job let its name be submitted again. A job of a broadcast is not kept.
//
// Paused, Concurrency and Rate throttle a queue. The ready jobs of a throttled queue keep their places and their order,
// and its watches stay in line. Its jobs are not stolen. A peer that also serves other queues is handed jobs of the
// other queues. A job that was woken for a named lock stays woken while its queue is throttled: the jobs behind it in
// line stay parked until the queue hands out the job, or until the lock time-out. A job that asks for the free lock
// meanwhile gets it. A queue is matched again when it is resumed, when one of its running jobs ends, or when a Tick
// refills the credit of its rate.
//
// A policy with Key, and with Fair or KeyConcurrency, sorts the ready jobs of its queue into lanes, one lane for each
// key (lanes.go). A job enters its lane each time it becomes ready. In a lane, jobs keep the order of the ready index.
// A lane that has KeyConcurrency running jobs hands out no job. Between lanes, the larger priority comes first. Of
// lanes whose first jobs have one priority:
//
//	without Fair   the lane whose first job has the earliest due time is next
//	with Fair      the lanes take turns. A turn is as many jobs as the weight of the key. A lane that comes back goes
//	               behind the others, or goes on with the turn that KeyConcurrency has cut off
//
// All lanes of a queue are in one shard, so that turns are exact for the whole server.
//
// Withheld and broadcasting jobs count as running jobs of their keys, because they have left their lanes. Tasks have
// no key: they keep the order of their line. Jobs that only LongNames peers can have are in no lane either. A job that
// was woken for a named lock waits in its lane like any other job.
//
// MaxJobs, MaxBytes, MaxPayload and a pause of submits refuse a Submit or a job of MoveJobs with ErrPolicy. Jobs that
// the queue has stay. A job that comes to a dead-letter queue is never refused. UniqueFor refuses no move.

// Policy is what an operator wants of one queue. The zero Policy changes nothing: jobs follow the
// rules of their space alone.
type Policy struct {
	// Limited reports whether Retries counts: a job that fails more than Retries times is given up. Without Limited a
	// job is tried for ever, at once. Neither is for spaces with a rule for failures (Rules.MaxFailures, Owned, Graph).
	Limited bool
	Retries int32
	Backoff Backoff
	// KeepFailed bounds the jobs that were given up and are kept with their history.
	KeepFailed Keep
	// keepsFailed reports whether a rule has KeepFailed.
	keepsFailed bool
	// DeadLetter names the queue that takes a job that was given up; empty: none.
	DeadLetter string

	// JobTTL is how long after its due time a job may start, in milliseconds; 0: for ever. Tasks have no due time.
	JobTTL int64
	// UniqueFor is how long after a job is done a submission of its name is ignored, in milliseconds; 0: not at all.
	UniqueFor int64
	// KeepDone bounds the kept jobs that are done or have expired.
	KeepDone Keep
	// KeepResults bounds how many of the jobs of KeepDone are kept with their results.
	KeepResults Keep

	MaxJobs    int64 // pending jobs; 0: any number
	MaxBytes   int64 // bytes of the names and workloads of all jobs; 0: any number
	MaxPayload int64 // bytes of a workload; 0: any number

	Concurrency int64 // jobs that run at a time; 0: any number

	Key            JobKey
	KeyConcurrency int64          // jobs of one key that run at a time; 0: any number
	Fair           bool           // the keys take turns among jobs of one priority
	Weights        map[string]int // jobs of a key that start in one turn, 1 for a missing key

	Rate   Rate
	Paused Pause
}

// Pause says what a queue does not do for now.
type Pause uint8

// The pauses. They are bits.
const (
	pauseHandOut Pause = 1 << iota // no job is handed out
	pauseSubmits                   // no job is taken in
)

// PolicySource says where a value of a policy comes from.
type PolicySource uint8

// The sources, the weaker first.
const (
	FromFile    PolicySource = iota // the configuration file
	FromRunTime                     // a command to the running server
)

// String returns the source as people read it.
func (s PolicySource) String() string {
	if s == FromRunTime {
		return "run time"
	}
	return "file"
}

// PolicyRule gives the queues that Pattern matches values, by key. In a pattern * stands for any bytes and ?
// for one byte.
type PolicyRule struct {
	Pattern string
	Source  PolicySource
	Values  map[string]string
}

// PolicyValue is one value of a queue's policy, and the rule that it comes from.
type PolicyValue struct {
	Key, Value string
	Pattern    string
	Source     PolicySource
}

// Bounds of rules and their values.
const (
	// maxPolicyRules bounds a table: each queue is matched with every rule once.
	maxPolicyRules = 4096
	// maxPattern is the longest name of a queue that a client can drop.
	maxPattern = maxShortQueue
	// maxPolicyText bounds a text such as the reason of a pause.
	maxPolicyText = 1024
)

// Policies is a table of rules. It never changes.
type Policies struct{ rules []PolicyRule }

// NewPolicies makes a table of rules, at most one for each pattern and source. It returns a PolicyError for a rule
// whose pattern, key or value is invalid.
func NewPolicies(rules []PolicyRule) (*Policies, error) {
	if len(rules) > maxPolicyRules {
		return nil, policyError("", "", "there may be %d rules for queues, not %d", maxPolicyRules, len(rules))
	}
	t := &Policies{slices.Clone(rules)}
	slices.SortStableFunc(t.rules, PolicyRule.compare)
	for i := range t.rules {
		if err := t.rules[i].check(); err != nil {
			return nil, err
		}
		if i > 0 && t.rules[i].compare(t.rules[i-1]) == 0 {
			return nil, policyError(t.rules[i].Pattern, "", "the %s has two rules for it", t.rules[i].Source)
		}
	}
	return t, nil
}

// check returns a PolicyError if the pattern, a key or a value of the rule is invalid.
func (r *PolicyRule) check() error {
	switch {
	case r.Pattern == "":
		return policyError(r.Pattern, "", "a rule needs the name of a queue, or a pattern such as mail.*")
	case len(r.Pattern) > maxPattern:
		return policyError(r.Pattern[:32]+"...", "", "a pattern has at most %d bytes", maxPattern)
	}
	for key, value := range r.Values {
		if err := (&Policy{}).set(key, value); err != nil {
			return policyError(r.Pattern, key, "%w", err)
		}
	}
	p := r.policy()
	if p.DeadLetter != "" && p.DeadLetter == r.Pattern {
		return policyError(r.Pattern, deadLetterKey, "a queue cannot be its own dead-letter queue")
	}
	return nil
}

func (r *PolicyRule) policy() (p Policy) {
	for key, value := range r.Values {
		_ = p.set(key, value) // the caller has checked it, or does so
	}
	return p
}

// compare orders rules, the weaker first. A pattern is weaker than a name, and a pattern with fewer bytes besides its *
// is weaker than a pattern with more. A rule of the file is weaker than a rule of the run time.
func (r PolicyRule) compare(o PolicyRule) int {
	return cmp.Or(
		cmp.Compare(oneIf(r.exact()), oneIf(o.exact())),
		cmp.Compare(r.literal(), o.literal()),
		strings.Compare(r.Pattern, o.Pattern),
		cmp.Compare(r.Source, o.Source),
	)
}

func (r *PolicyRule) exact() bool { return !strings.ContainsAny(r.Pattern, "*?") }

// literal counts the bytes of the pattern besides its *.
func (r *PolicyRule) literal() int { return len(r.Pattern) - strings.Count(r.Pattern, "*") }

// forQueue returns the policy of a queue, nil when no rule matches its name. The values of stronger rules hide the
// values of weaker rules, key by key.
func (p *Policies) forQueue(queue string) *Policy {
	var joined *Policy
	for i := range p.rules {
		if r := &p.rules[i]; matches(r.Pattern, queue) {
			if joined == nil {
				joined = &Policy{KeepFailed: defaultKept}
			}
			for key, value := range r.Values {
				_ = joined.set(key, value) // NewPolicies has checked it
			}
		}
	}
	if joined != nil && joined.DeadLetter == queue { // a pattern may match the dead-letter queue that it names
		joined.DeadLetter = ""
	}
	return joined
}

// Explain returns the values that forQueue joins, in the order of PolicyKeys, each with its rule. The values of
// KeyPausedBy and KeyPausedWhy come from the rule that says what is paused.
func (p *Policies) Explain(queue string) (values []PolicyValue) {
	last := make(map[string]PolicyValue)
	for _, r := range p.rules {
		if !matches(r.Pattern, queue) {
			continue
		}
		_, pauses := r.Values[KeyPaused]
		if pauses {
			delete(last, KeyPausedBy)
			delete(last, KeyPausedWhy)
		}
		for key, value := range r.Values {
			if pauses || key != KeyPausedBy && key != KeyPausedWhy {
				last[key] = PolicyValue{key, value, r.Pattern, r.Source}
			}
		}
	}
	for _, k := range policyKeys {
		if v, ok := last[k.Name]; ok && (k.Name != deadLetterKey || v.Value != queue) {
			values = append(values, v)
		}
	}
	return values
}

// Exceptions returns the values of paused that hold against a rule of the run time: the values of stronger rules for
// queues of its pattern that pause less than the rule does. It compares patterns as if they were names, so it leaves
// out patterns that have only some queues in common with the rule's.
func (p *Policies) Exceptions(pattern string) (all []PolicyValue) {
	var paused Pause
	for i, r := range p.rules {
		text, pauses := r.Values[KeyPaused]
		rulePolicy := r.policy()
		switch {
		case r.Pattern == pattern && r.Source == FromRunTime:
			paused = rulePolicy.Paused
		case !pauses || paused&^rulePolicy.Paused == 0 || !matches(pattern, r.Pattern):
		case i+1 < len(p.rules) && p.rules[i+1].Pattern == r.Pattern && p.rules[i+1].Values[KeyPaused] != "":
		default:
			all = append(all, PolicyValue{KeyPaused, text, r.Pattern, r.Source})
		}
	}
	return all
}

// Rules returns the rules, the weaker first. The caller must not change them.
func (p *Policies) Rules() []PolicyRule { return p.rules }

// matches reports whether a name fits a pattern. Its time grows with the product of both lengths. So a name of more
// than maxPattern bytes matches only the pattern *.
func matches(pattern, name string) bool {
	if len(name) > maxPattern {
		return pattern == "*"
	}
	return matchesGlob(pattern, name)
}

// matchesGlob is matches for a name of any length.
func matchesGlob[T string | []byte](pattern string, name T) bool {
	star, retry := -1, 0 // the last * and where its bytes end
	at, n := 0, 0
	for n < len(name) {
		switch {
		case at < len(pattern) && pattern[at] == '*':
			star, retry = at, n
			at++
		case at < len(pattern) && (pattern[at] == '?' || pattern[at] == name[n]):
			at, n = at+1, n+1
		case star >= 0:
			retry++
			at, n = star+1, retry
		default:
			return false
		}
	}
	return strings.Trim(pattern[at:], "*") == ""
}

// PolicyKey is a key of a rule.
type PolicyKey struct {
	Name    string
	Example string
	Meaning string // one line, for --help and the pages
	set     func(*Policy, string) error
}

// PolicyKeys returns all keys, in the order in which they are shown.
func PolicyKeys() []PolicyKey { return slices.Clone(policyKeys) }

// KeyPaused, KeyPausedBy and KeyPausedWhy are the keys of a rule that pauses a queue. They say what is paused, who has
// paused it, and why.
const (
	KeyPaused    = "paused"
	KeyPausedBy  = "paused-by"
	KeyPausedWhy = "paused-why"
)

const deadLetterKey = "dead-letter"

var policyKeys = []PolicyKey{
	{"retries", "3", "how often a job that failed, timed out or lost its worker is tried again before it is given up; forever is the default", (*Policy).setRetries},
	{"backoff", "1s..1h x2 ~20%", "the delay before each retry: the first, the longest, the factor between two, and by how much chance changes it", (*Policy).setBackoff},
	{"keep-failed", "10000, 30d", "how many jobs that were given up are kept, and for how long; 0 keeps none", (*Policy).setKeepFailed},
	{deadLetterKey, "mail.dead", "the queue that takes jobs that were given up, instead of keeping them as failed; no: none", (*Policy).setDeadLetter},
	{"job-ttl", "10m", "how long after its due time a job may start before it ends as expired; 0: for ever",
		func(p *Policy, v string) error { return setTime(&p.JobTTL, v) }},
	{"unique-for", "10m", "how long after a job is done a submission of its name is accepted and not queued; 0: not at all",
		func(p *Policy, v string) error { return setTime(&p.UniqueFor, v) }},
	{"keep-done", "1000, 7d", "how many finished jobs are kept, and for how long; 0 keeps none",
		func(p *Policy, v string) error { return setKeep(&p.KeepDone, v) }},
	{"keep-results", "1000, 7d", "how many finished jobs are kept with their results, and for how long; 0 keeps none",
		func(p *Policy, v string) error { return setKeep(&p.KeepResults, v) }},
	{"max-jobs", "100000", "new jobs are refused while so many are pending; 0: no limit",
		func(p *Policy, v string) error { return setCount(&p.MaxJobs, v) }},
	{"max-bytes", "1GiB", "new jobs are refused that would make the queue larger; 0: no limit",
		func(p *Policy, v string) error { return setSize(&p.MaxBytes, v) }},
	{"max-payload", "1MiB", "jobs with a larger workload are refused; 0: no limit", func(p *Policy, v string) error { return setSize(&p.MaxPayload, v) }},
	{"concurrency", "10", "how many jobs of the queue run at a time; 0: no limit", func(p *Policy, v string) error { return setCount(&p.Concurrency, v) }},
	{"key", "name before :", "what a job's key is: the part of its name before a text, or json user.id, a field of its workload; no: jobs have no keys", (*Policy).setKey},
	{"key-concurrency", "2", "how many jobs of one key run at a time; 0: no limit", (*Policy).setKeyConcurrency},
	{"fair", "key", "key: the keys take turns, so that none waits behind the jobs of another; no: the first job is next, whatever its key", (*Policy).setFair},
	{"weights", "gold=3 free=1", "how many jobs of a key start in one of its turns, from 1 to 1000, for at most 256 keys; 1 for all other keys", (*Policy).setWeights},
	{"rate", "10/s burst 20", "how many jobs of the queue start in a time, and how many of them at once after a rest", (*Policy).setRate},
	{KeyPaused, "hand-out", "hand-out: no job starts; submits: no job is taken in; both", (*Policy).setPaused},
	{KeyPausedBy, "ada", "who has paused the queue", checkText},
	{KeyPausedWhy, "the database moves", "why", checkText},
}

// CheckPolicySetting returns a PolicyError about the rule of a pattern if no key has the name.
func CheckPolicySetting(pattern, name string) error {
	if _, err := policyKey(name); err != nil {
		return policyError(pattern, name, "%w", err)
	}
	return nil
}

// policyKey returns the key of a name.
func policyKey(name string) (*PolicyKey, error) {
	for i := range policyKeys {
		if policyKeys[i].Name == name {
			return &policyKeys[i], nil
		}
	}
	names := make([]string, len(policyKeys))
	for i := range policyKeys {
		names[i] = policyKeys[i].Name
	}
	return nil, policyError("", "", "there is no such key; the keys are %s", strings.Join(names, ", "))
}

// set sets a value by its key.
func (p *Policy) set(name, value string) error {
	key, err := policyKey(name)
	if err != nil {
		return err
	}
	return key.set(p, value)
}

func checkText(_ *Policy, text string) error {
	if len(text) > maxPolicyText || !utf8.ValidString(text) {
		return policyError("", "", "a text has at most %d bytes of UTF-8", maxPolicyText)
	}
	return nil
}

// setRetries sets the retries: a number, or "forever".
func (p *Policy) setRetries(text string) error {
	if text == "forever" {
		p.Limited, p.Retries = false, 0
		return nil
	}
	n, err := parseCount(text, math.MaxInt16)
	if err != nil {
		return err
	}
	p.Limited, p.Retries = true, int32(n)
	return nil
}

func (p *Policy) setBackoff(text string) (err error) {
	p.Backoff, err = parseBackoff(text)
	return err
}

func (p *Policy) setDeadLetter(name string) error {
	if len(name) > maxPattern || strings.ContainsAny(name, "*?") {
		return policyError("", "", "it is the name of a queue, at most %d bytes without * and ?", maxPattern)
	}
	if p.DeadLetter = name; name == "no" {
		p.DeadLetter = ""
	}
	return nil
}

func (p *Policy) setRate(text string) (err error) {
	p.Rate, err = parseRate(text)
	return err
}

// setPaused sets what is paused: "hand-out", "submits", "both" or "no".
func (p *Policy) setPaused(text string) error {
	switch text {
	case "no":
		p.Paused = 0
	case "hand-out":
		p.Paused = pauseHandOut
	case "submits":
		p.Paused = pauseSubmits
	case "both":
		p.Paused = pauseHandOut | pauseSubmits
	default:
		return policyError("", "", "it is hand-out, submits, both or no")
	}
	return nil
}
