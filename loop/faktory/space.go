package faktory

import (
	"time"

	codec "treadle/codec/faktory"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Space is the name space of Faktory jobs.
const Space sched.Space = 9

// Rules of jobs that were given up: for how long Faktory keeps them, and how many of a queue.
const (
	deadAge  = 180 * 24 * time.Hour
	deadJobs = 10_000
)

// Spaces returns the name space of Faktory jobs. The name of a job is its jid, with a NUL and chance behind it when
// the queue has a job of that jid. Its workload is the JSON that workers receive, without the last failure. Its Count
// is the number of its retries.
func Spaces() []protocol.Space {
	return []protocol.Space{{
		ID:       Space,
		Protocol: name,
		NoTimes:  true,
		Rules: sched.Rules{
			Durable: true, LeaseNames: true, Traits: traits, Expiry: expiry,
			RetryRules: &sched.RetryRules{
				Retries: codec.DefaultRetry, Backoff: backoff, Text: sched.MaxFailureText,
				Keep: sched.Keep{Jobs: deadJobs, Age: deadAge.Milliseconds()},
			},
		},
	}}
}

// backoff returns the milliseconds before a retry, by Faktory's formula: with c failures before the last one, c^4 + 15
// seconds, and up to 29 more for each failure.
func backoff(retry int32, chance uint64) int64 {
	c := int64(max(retry, 1) - 1)
	if c > maxBackoffCount {
		c = maxBackoffCount
	}
	return (c*c*c*c + 15 + int64(chance>>32%30)*(c+1)) * 1000
}

// maxBackoffCount bounds the count of the formula, so that it does not overflow: the delay is 300 years then.
const maxBackoffCount = 300
