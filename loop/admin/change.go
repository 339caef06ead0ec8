package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// maxChangedIDs bounds the jobs of one request: it is answered when all are changed and in the journal.
const maxChangedIDs = 1000

// The arguments that a verb may need beside the jobs.
const (
	needsPriority = "priority"
	needsTime     = "at or delay"
	needsQueue    = "to"
)

// jobVerbs are the verbs of a change of jobs, each with what it needs beside the jobs, and the states that a filter
// without a state means, if not all.
var jobVerbs = map[string]struct {
	verb   sched.JobVerb
	needs  string
	states []string
}{
	codec.VerbRetry:    {sched.RetryJobs, "", []string{codec.StateFailed}},
	codec.VerbRun:      {sched.RunJobs, "", []string{codec.StateDelayed, codec.StateFailed}},
	codec.VerbRemove:   {sched.RemoveJobs, "", nil},
	codec.VerbPriority: {sched.SetPriority, needsPriority, nil},
	codec.VerbDue:      {sched.SetDue, needsTime, nil},
	codec.VerbMove:     {sched.MoveJobs, needsQueue, nil},
}

// changeFilter returns the filter of a change. The verb can change no job of another state, so a filter without a state
// leaves such jobs out, and they are not counted.
func changeFilter(c *codec.JobsChange) (*codec.Filter, error) {
	f, err := codec.ParseFilter(c.Filter)
	if err != nil {
		return nil, &badRequest{err}
	}
	if len(f.States) == 0 {
		f.States = jobVerbs[c.Verb].states
	}
	return f, nil
}

// postChange changes the jobs of ids or of a name at once, counts those of a filter, or starts an operation on them.
func (api *API) postChange(r *http.Request) (any, error) {
	var c codec.JobsChange
	if err := decodeBody(r, &c); err != nil {
		return nil, err
	}
	change, err := api.jobChange(&c)
	if err != nil {
		return nil, err
	}
	filtered, one := strings.TrimSpace(c.Filter) != "", namesOne(&c)
	switch {
	case countTrue(filtered, one, len(c.IDs) > 0) != 1:
		return nil, badf("name the jobs by ids, one by queue and name, or all of a filter: queue:* means all jobs")
	case filtered && c.DryRun:
		return api.countJobs(r.Context(), &c)
	case filtered:
		return api.operations.start(api, &c, change, api.auditorOf(r, c.By))
	case c.DryRun:
		return nil, badf("dry_run counts the jobs of a filter: jobs that are named one by one need none")
	case one:
		return api.changeNamed(&c, change)
	}
	return api.changeIDs(c.IDs, change)
}

// jobChange returns what a request asks of the scheduler.
func (api *API) jobChange(c *codec.JobsChange) (*sched.JobChange, error) {
	v, ok := jobVerbs[c.Verb]
	if !ok {
		return nil, badf("verb is retry, run, remove, priority, due or move, not %.64q", c.Verb)
	}
	change := &sched.JobChange{Verb: v.verb}
	var given []string
	if c.Priority != nil {
		given, change.Priority = append(given, needsPriority), *c.Priority
	}
	switch {
	case !c.At.IsZero() && c.Delay != nil:
		return nil, badf("jobs have a time in at or a delay, not both")
	case !c.At.IsZero():
		given, change.Due = append(given, needsTime), c.At.UnixMilli()
	case c.Delay != nil:
		given, change.Due = append(given, needsTime), api.host.Now().Wall+time.Duration(*c.Delay).Milliseconds()
	}
	to, err := textOrBytes("to", c.To, c.ToBytes)
	if err != nil {
		return nil, err
	}
	if len(to) > maxName {
		return nil, badf("a queue has at most %d bytes, not %d", maxName, len(to))
	}
	if len(to) > 0 {
		given, change.Queue = append(given, needsQueue), string(protocol.Queue(to))
	}
	switch {
	case strings.Join(given, ", ") == v.needs:
		return change, nil
	case v.needs == "":
		return nil, badf("the verb %s takes no priority, at, delay or to", c.Verb)
	}
	return nil, badf("the verb %s needs %s and takes no more", c.Verb, v.needs)
}

// changeIDs changes jobs by their ids.
func (api *API) changeIDs(ids []string, change *sched.JobChange) (any, error) {
	if len(ids) > maxChangedIDs {
		return nil, badf("a request changes at most %d jobs by their ids, not %d: a filter has no such limit", maxChangedIDs, len(ids))
	}
	refs := make([]sched.JobRef, len(ids))
	for n, id := range ids {
		ref, err := sched.ParseRef(id)
		if err != nil {
			return nil, badf("%.64q: %w", id, err)
		}
		refs[n] = ref
	}
	return api.changeRefs(refs, change)
}

// namesOne reports whether a request means a job by its name.
func namesOne(c *codec.JobsChange) bool {
	return c.Queue != "" || c.QueueBytes != nil || c.Name != "" || c.NameBytes != nil || c.Protocol != ""
}

// changeNamed changes the job of a name. It returns when the journal has the change.
func (api *API) changeNamed(c *codec.JobsChange, change *sched.JobChange) (any, error) {
	queue, err := textOrBytes("queue", c.Queue, c.QueueBytes)
	if err != nil {
		return nil, err
	}
	name, err := textOrBytes("name", c.Name, c.NameBytes)
	if err != nil {
		return nil, err
	}
	if len(queue) == 0 || len(name) == 0 {
		return nil, badf("a job that has no id here has a queue and a name")
	}
	ref, err := api.refByName(string(queue), string(name), c.Protocol)
	if err != nil {
		return nil, err
	}
	return api.changeRefs([]sched.JobRef{ref}, change)
}

// changeRefs changes jobs. It returns when the journal has the changes.
func (api *API) changeRefs(refs []sched.JobRef, change *sched.JobChange) (any, error) {
	answer, sink := &codec.JobsChanged{}, api.host.NewSink()
	answer.Changed = api.host.Sched().ChangeJobs(api.host.Now(), refs, change, sink, func(n int, why error) {
		answer.Left = append(answer.Left, leftJob(refs[n], why))
	})
	sink.Wake()
	return answer, api.commit()
}

// leftJob says why a job stayed as it was.
func leftJob(ref sched.JobRef, why error) codec.LeftJob {
	j := codec.LeftJob{ID: ref.String(), Status: http.StatusConflict, Error: why.Error()}
	switch {
	case errors.Is(why, sched.ErrNoJob):
		j.Status = http.StatusNotFound
	case errors.Is(why, sched.ErrDuplicate):
		j.Error = "the queue has another job of its name: remove that, or wait until it is done"
	}
	return j
}

// countJobs counts the jobs that the filter of a change means, as far as the time goes.
func (api *API) countJobs(ctx context.Context, c *codec.JobsChange) (any, error) {
	f, err := changeFilter(c)
	if err != nil {
		return nil, err
	}
	l, err := api.listingOf(f, "", false)
	if err != nil {
		return nil, err
	}
	select {
	case api.searches <- struct{}{}:
		defer func() { <-api.searches }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	answer, done := &codec.JobsMatched{Of: api.host.Sched().SizeOf(l)}, false
	for until := time.Now().Add(searchTime); !done && ctx.Err() == nil && time.Now().Before(until); {
		done = api.host.Sched().List(api.host.Now(), l, sched.WalkBatch, func(*sched.JobView) bool {
			answer.Matched++
			return true
		})
	}
	answer.Looked, answer.More = l.Looked(), !done
	return answer, ctx.Err()
}

// The filter of a queue that is emptied: all jobs that no worker has.
const emptied = `queue:"%s" state:ready,delayed,locked,failed`

// quoter quotes a value of a filter.
var quoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// postEmpty removes the jobs of a queue that no worker has.
func (api *API) postEmpty(r *http.Request) (any, error) {
	q, err := readQueueChange(r)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(q.Queue, "*?") {
		return nil, badf("name one queue: several are emptied by the verb remove with a filter")
	}
	if _, ok := api.host.Sched().StatsOf(protocol.Queue([]byte(q.Queue))); !ok {
		return nil, &notFound{errNoQueue}
	}
	c := codec.JobsChange{Verb: codec.VerbRemove, Filter: fmt.Sprintf(emptied, quoter.Replace(q.Queue))}
	if q.DryRun {
		return api.countJobs(r.Context(), &c)
	}
	return api.operations.start(api, &c, &sched.JobChange{Verb: sched.RemoveJobs}, api.auditorOf(r, q.By))
}

// readQueueChange returns a change whose Queue has the bytes of the name, also of one that is not UTF-8.
func readQueueChange(r *http.Request) (*codec.QueueChange, error) {
	var q codec.QueueChange
	if err := decodeBody(r, &q); err != nil {
		return nil, err
	}
	queue, err := textOrBytes("queue", q.Queue, q.QueueBytes)
	if err != nil {
		return nil, err
	}
	if q.Queue = string(queue); q.Queue == "" {
		return nil, badf("name a queue")
	}
	return &q, nil
}

// patternOf returns the pattern of the rule for a name or a pattern: rules match the names that queues have inside.
func patternOf(q *codec.QueueChange) string { return string(protocol.Queue([]byte(q.Queue))) }

// setPause changes the pause of the rule of a queue or pattern. It returns when the queues follow it and the journal
// has it, with whether the rule has changed. An empty what ends the pause.
func (api *API) setPause(r *http.Request, q *codec.QueueChange, what string) (changed bool, err error) {
	who := api.auditorOf(r, q.By)
	c := codec.PolicyChange{Pattern: patternOf(q), Values: map[string]*string{sched.KeyPaused: nil, sched.KeyPausedBy: nil, sched.KeyPausedWhy: nil}}
	for key, value := range map[string]string{sched.KeyPaused: what, sched.KeyPausedBy: who.name(), sched.KeyPausedWhy: q.Why} {
		if what != "" && value != "" {
			c.Values[key] = &value
		}
	}
	if changed, err = api.changePolicy(&c); err != nil {
		return false, err
	}
	return changed, api.commit()
}

// maxExceptions bounds the exceptions of an answer: a person reads a few.
const maxExceptions = 10

// ruleOf returns the run-time rule of a pattern, for the request that may have changed it.
func (api *API) ruleOf(pattern string, changed bool) *codec.Rule {
	rule := &codec.Rule{Source: sched.FromRunTime.String(), Values: api.runTime(pattern), Changed: changed}
	rule.Pattern, rule.PatternBytes = codec.Name(protocol.Unescape(pattern))
	all := api.policies().Exceptions(pattern)
	rule.ExceptionsOf = len(all)
	for _, v := range all[:min(len(all), maxExceptions)] {
		rule.Exceptions = append(rule.Exceptions, valueOf(v))
	}
	return rule
}

// valueOf returns a value of a policy as JSON has it.
func valueOf(v sched.PolicyValue) codec.Value {
	one := codec.Value{Key: v.Key, Value: v.Value, Source: v.Source.String()}
	one.Pattern, one.PatternBytes = codec.Name(protocol.Unescape(v.Pattern))
	return one
}

// postPause answers POST /queues/pause: it pauses hand-out, submits or both of a queue or of all queues of a pattern.
func (api *API) postPause(r *http.Request) (any, error) {
	q, err := readQueueChange(r)
	if err != nil {
		return nil, err
	}
	switch q.What {
	case "":
		q.What = "hand-out"
	case "hand-out", "submits", "both":
	default:
		return nil, badf("what is hand-out, submits or both, not %.64q", q.What)
	}
	return api.ruleAfter(r, q, q.What)
}

func (api *API) ruleAfter(r *http.Request, q *codec.QueueChange, what string) (*codec.Rule, error) {
	changed, err := api.setPause(r, q, what)
	if err != nil {
		return nil, err
	}
	return api.ruleOf(patternOf(q), changed), nil
}

// postResume ends a pause. If a weaker rule, such as one of the file, pauses the queue too, postResume sets a rule that
// says "no".
func (api *API) postResume(r *http.Request) (any, error) {
	q, err := readQueueChange(r)
	if err != nil {
		return nil, err
	}
	before := api.runTime(patternOf(q))
	answer, err := api.ruleAfter(r, q, "")
	if err != nil || strings.ContainsAny(q.Queue, "*?") {
		return answer, err
	}
	for _, v := range api.policies().Explain(string(protocol.Queue([]byte(q.Queue)))) {
		if v.Key == sched.KeyPaused && v.Value != "no" {
			if answer, err = api.ruleAfter(r, q, "no"); err == nil {
				answer.Changed = !maps.Equal(before, answer.Values)
			}
			return answer, err
		}
	}
	return answer, nil
}

// postDrain pauses the submits of a queue, which still hands out its jobs, and answers with what it has.
func (api *API) postDrain(r *http.Request) (any, error) {
	q, err := readQueueChange(r)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(q.Queue, "*?") {
		return nil, badf("name one queue: several are paused with submits")
	}
	s, ok := api.host.Sched().StatsOf(protocol.Queue([]byte(q.Queue)))
	if !ok {
		return nil, &notFound{errNoQueue}
	}
	if _, err := api.setPause(r, q, "submits"); err != nil {
		return nil, err
	}
	if now, ok := api.host.Sched().StatsOf(protocol.Queue([]byte(q.Queue))); ok {
		s = now
	}
	return &codec.Queues{Queues: []codec.Queue{api.queueOf(&s, api.host.Now(), api.policies())}, Of: 1}, nil
}
