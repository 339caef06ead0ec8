package admin

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// Bounds of a page of jobs.
const (
	defaultJobs = 50
	// searchTime ends a page before its limit: a person waits so long, and is told how far the search has come.
	searchTime = 200 * time.Millisecond
	// maxSearches bounds the searches at a time: each keeps a processor busy.
	maxSearches = 1
	// maxErrorText is how much of an error text a list shows, in bytes.
	maxErrorText = 200
)

// outcomeMoved is the outcome of an entry of a history whose text is a queue, no error.
const outcomeMoved = "moved"

// parameters reads the parameters of a request. A parameter that cannot be read is an error: without it the request
// would be about more than was meant.
func parameters(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badf("the parameters of the address cannot be read: %v", err)
	}
	return q, nil
}

// Bounds of a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

// limitOf reads a limit from 1 to maxPage.
func limitOf(text string, usual int) (int, error) {
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, badf("limit is a number from 1 to %d", maxPage)
	}
	return n, nil
}

// searchTimeOf reads how long a search may take.
func searchTimeOf(text string) (time.Duration, error) {
	if text == "" {
		return searchTime, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil { // seconds, as in a body
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond || d > searchTime {
		return 0, badf("time is from 1ms to %v", searchTime)
	}
	return d, nil
}

// getJobs answers with a page of the jobs that a filter means.
func (api *API) getJobs(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	limit, err := limitOf(q.Get("limit"), defaultJobs)
	if err != nil {
		return nil, err
	}
	within, err := searchTimeOf(q.Get("time"))
	if err != nil {
		return nil, err
	}
	l, err := api.listing(q.Get("filter"), q.Get("after"))
	if err != nil {
		return nil, err
	}
	page := &codec.Jobs{Jobs: []codec.ListedJob{}}
	done, err := api.search(r.Context(), l, time.Now().Add(within), func(j *codec.ListedJob) bool {
		page.Jobs = append(page.Jobs, *j)
		return len(page.Jobs) < limit
	})
	if page.Looked, page.Of = l.Looked(), api.host.Sched().SizeOf(l); !done {
		page.Next = l.Cursor()
	}
	return page, err
}

// listing returns the listing of a filter.
func (api *API) listing(filter, after string) (*sched.Listing, error) {
	f, err := codec.ParseFilter(filter)
	if err != nil {
		return nil, &badRequest{err}
	}
	return api.listingOf(f, after, false)
}

// listingOf is listing for a parsed filter. With every, it looks at the jobs of all queues in the order of their
// records, even if the filter names one queue.
func (api *API) listingOf(f *codec.Filter, after string, every bool) (_ *sched.Listing, err error) {
	m := sched.Match{Queues: f.Queues, Names: f.Names, Workers: f.Workers, Texts: f.Texts, Priority: (*sched.Range)(f.Priority), Age: (*sched.Range)(f.Age)}
	if f.ID != "" {
		ref, err := sched.ParseRef(f.ID)
		if err != nil {
			return nil, badf("id:%.64q: %w", f.ID, err)
		}
		m.Ref = &ref
	}
	for state := range sched.JobStates {
		if slices.Contains(f.States, state.String()) {
			m.States |= 1 << state
		}
	}
	if m.Spaces, err = api.spacesOf(f.Protocol); err != nil {
		return nil, err
	}
	name, one := f.Queue()
	queue := protocol.Queue([]byte(name))
	if m.Queues = slices.Clone(m.Queues); one {
		m.Queues = slices.DeleteFunc(m.Queues, func(q string) bool { return q == name })
	}
	if one && every {
		one, m.Queues = false, append(m.Queues, string(queue))
	}
	l, err := sched.NewListing(&m, queue, !one, after)
	if err != nil {
		return nil, badf("after must be the next of an earlier page of the same filter: %w", err)
	}
	return l, nil
}

// spacesOf returns the spaces of a protocol as bits; of none: 0.
func (api *API) spacesOf(name string) (set uint16, err error) {
	if name == "" {
		return 0, nil
	}
	var known []string
	for id, space := range api.host.Spaces() {
		if space.Protocol == name {
			set |= 1 << id
		}
		if space.Protocol != "" && !slices.Contains(known, space.Protocol) {
			known = append(known, space.Protocol)
		}
	}
	if set == 0 {
		return 0, badf("%.64q is no protocol, the protocols are %s", name, strings.Join(known, ", "))
	}
	return set, nil
}

// search calls add for the next jobs of a listing until add returns false, the time is over or the request has ended.
// It stops between two jobs. done reports whether there are no others. add is called without a lock.
func (api *API) search(ctx context.Context, l *sched.Listing, until time.Time, add func(*codec.ListedJob) (more bool)) (done bool, err error) {
	select {
	case api.searches <- struct{}{}:
		defer func() { <-api.searches }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	for more := true; more && !done && ctx.Err() == nil && (l.Searching() || time.Now().Before(until)); {
		var found codec.ListedJob
		var history []byte
		any := false
		done = api.host.Sched().List(api.host.Now(), l, sched.WalkBatch, func(v *sched.JobView) bool {
			found, history, any = api.listedJob(v), bytes.Clone(v.History), true
			return false
		})
		if any {
			addHistory(&found, history)
			more = add(&found)
		}
	}
	return done, ctx.Err()
}

// listedJob returns a job as a list has it, without its history. It is called under a lock of the scheduler.
func (api *API) listedJob(v *sched.JobView) codec.ListedJob {
	j := codec.ListedJob{
		ID: v.Ref.String(), Protocol: api.host.Spaces()[v.Space].Protocol, State: v.State.String(), Priority: v.Priority,
		Due: v.Due, Size: len(api.body(&v.Job)), Worker: strings.ToValidUTF8(v.Worker, "�"), Since: v.Since,
	}
	j.Queue, j.QueueBytes = codec.Name(protocol.Unescape(v.Queue))
	j.Name, j.NameBytes = codec.Name(string(v.Name))
	return j
}

// body returns the workload of a job without what the protocol keeps for itself in front of it.
func (api *API) body(j *sched.Job) []byte {
	if part := api.host.Spaces()[j.Space].ReplyPart; part != nil {
		return j.Workload[len(part(j.Workload)):]
	}
	return j.Workload
}

// addHistory adds what a list shows of a job's history.
func addHistory(j *codec.ListedJob, history []byte) {
	tries, all := sched.ParseHistory(history)
	j.Tries = tries
	for _, a := range slices.Backward(all) {
		j.Worker = cmp.Or(j.Worker, a.Worker)
	}
	text := sched.LastCause(all)
	j.Error = strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "")
}
