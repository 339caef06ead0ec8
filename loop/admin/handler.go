package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// badRequest is an error that the operator can mend.
type badRequest struct{ error }

// Unwrap returns the error itself.
func (b *badRequest) Unwrap() error { return b.error }

// Handler answers the requests, whatever host they name.
func (i *Interface) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range map[string]func(*http.Request) (any, error){
		"GET /v1/policies":       i.getPolicies,
		"PATCH /v1/policies":     i.patchPolicies,
		"GET /v1/failed":         i.getFailed,
		"POST /v1/failed/retry":  i.postFailed((*Interface).retry),
		"POST /v1/failed/remove": i.postFailed((*Interface).remove),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			v, err := answer(r)
			write(w, v, err)
		})
	}
	return mux
}

func write(w http.ResponseWriter, v any, err error) {
	status := http.StatusOK
	if err != nil {
		status = http.StatusInternalServerError
		switch {
		case errors.As(err, new(*badRequest)), errors.As(err, new(*http.MaxBytesError)):
			status = http.StatusBadRequest
		case errors.Is(err, sched.ErrNotFound):
			status = http.StatusNotFound
		}
		v = struct {
			Error string `json:"error"`
		}{err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the peer has gone
}

// refuse answers a request of a foreign page.
func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why}) // the peer has gone
}

// read decodes a request's body, which has no members but v's.
func read(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return &badRequest{err}
	}
	return nil
}

func (i *Interface) getPolicies(r *http.Request) (any, error) {
	t := i.policies()
	var answer codec.Table
	if answer.Queue = r.URL.Query().Get("queue"); answer.Queue != "" {
		for _, v := range t.Explain(string(protocol.Queue([]byte(answer.Queue)))) {
			answer.Values = append(answer.Values, codec.Value{Key: v.Key, Value: v.Value, Source: v.Source.String(), Pattern: v.Pattern})
		}
		return &answer, nil
	}
	for _, rule := range t.Rules() {
		answer.Rules = append(answer.Rules, codec.Rule{Pattern: rule.Pattern, Source: rule.Source.String(), Values: rule.Values})
	}
	for _, k := range sched.PolicyKeys() {
		answer.Keys = append(answer.Keys, codec.Key{Name: k.Name, Example: k.Example, Meaning: k.Meaning})
	}
	return &answer, nil
}

func (i *Interface) patchPolicies(r *http.Request) (any, error) {
	var c codec.Change
	if err := read(r, &c); err != nil {
		return nil, err
	}
	if err := i.change(&c); err != nil {
		return nil, err
	}
	return &codec.Rule{Pattern: c.Pattern, Source: sched.FromRunTime.String(), Values: i.runTime(c.Pattern)}, nil
}

// runTime returns the values of a run-time rule.
func (i *Interface) runTime(pattern string) map[string]string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.rules[pattern]
}

// Bounds of a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

func (i *Interface) getFailed(r *http.Request) (any, error) {
	q := r.URL.Query()
	queue := q.Get("queue")
	if queue == "" {
		return &codec.FailedQueues{Queues: i.failedQueues()}, nil
	}
	limit := defaultPage
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return nil, &badRequest{errors.New("limit is a number from 1 to " + strconv.Itoa(maxPage))}
		}
		limit = n
	}
	c, err := parseCursor(q.Get("after"))
	if err != nil {
		return nil, err
	}
	page := &codec.FailedPage{Queue: queue, Jobs: []codec.FailedJob{}}
	done := false
	for len(page.Jobs) < limit && !done {
		var histories [][]byte // they are read when the scheduler goes on
		first := len(page.Jobs)
		c, done = i.host.Sched().WalkFailed(protocol.Queue([]byte(queue)), c, min(limit-first, sched.WalkBatch), func(f *sched.FailedJob) {
			page.Jobs = append(page.Jobs, failedJob(f))
			histories = append(histories, bytes.Clone(f.History))
		})
		for k, h := range histories {
			addAttempts(&page.Jobs[first+k], h)
		}
	}
	if !done {
		page.Next = strconv.FormatInt(c.At, 10) + "-" + strconv.FormatUint(c.Seq, 10)
	}
	return page, nil
}

func parseCursor(text string) (c sched.FailedCursor, err error) {
	if text == "" {
		return c, nil
	}
	at, seq, _ := strings.Cut(text, "-")
	c.At, err = strconv.ParseInt(at, 10, 64)
	if err == nil {
		c.Seq, err = strconv.ParseUint(seq, 10, 64)
	}
	if err != nil {
		return c, &badRequest{errors.New("after must be the next of an earlier page")}
	}
	return c, nil
}

func failedJob(f *sched.FailedJob) codec.FailedJob {
	j := codec.FailedJob{ID: f.Ref.Seq, FailedAt: f.FailedAt, Size: len(f.Workload), Attempts: []codec.Attempt{}}
	j.Name, j.NameBytes = codec.Name(string(f.Name))
	return j
}

func addAttempts(j *codec.FailedJob, history []byte) {
	_, all := sched.ParseHistory(history)
	for _, a := range all {
		j.Attempts = append(j.Attempts, codec.Attempt{At: a.At, Outcome: a.Outcome.String(), Worker: a.Worker, Text: strings.ToValidUTF8(a.Text, "�")})
	}
}

// maxLeft bounds Done.Left.
const maxLeft = 100

// add notes what became of a job.
func add(d *codec.Done, id uint64, err error) {
	switch {
	case err == nil:
		d.Done++
	case len(d.Left) < maxLeft:
		d.Left = append(d.Left, codec.Left{ID: id, Error: reasonOf(err)})
	default:
		d.More++
	}
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, sched.ErrNotFound):
		return "the queue has no failed job with this id: it was retried, removed or moved"
	case errors.Is(err, sched.ErrDuplicate):
		return "the queue has another job of its name: remove that, or wait until it is done"
	}
	return err.Error()
}

func (i *Interface) retry(queue []byte, id uint64, sink protocol.Sink) error {
	return i.host.Sched().RetryFailed(i.host.Now(), queue, id, sink)
}

func (i *Interface) remove(queue []byte, id uint64, _ protocol.Sink) error {
	return i.host.Sched().RemoveFailed(queue, id)
}

// postFailed applies verb to the failed jobs that a request names.
func (i *Interface) postFailed(verb func(*Interface, []byte, uint64, protocol.Sink) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var c codec.Choice
		if err := read(r, &c); err != nil {
			return nil, err
		}
		c.Queue += string(c.QueueBytes)
		if c.Queue == "" || c.All == (len(c.Jobs) > 0) {
			return nil, &badRequest{errors.New("name a queue, and its failed jobs by their ids or with all")}
		}
		queue := protocol.Queue([]byte(c.Queue))
		answer, sink := &codec.Done{}, i.host.NewSink()
		apply := func(ids []uint64) {
			for _, id := range ids {
				add(answer, id, verb(i, queue, id, sink))
			}
			sink.Wake()
		}
		apply(c.Jobs)
		if !c.All {
			return answer, i.commit()
		}
		at, done := sched.FailedCursor{}, false
		for left := i.failedOf(string(queue)); !done && left > 0; { // those that fail again meanwhile stand behind these
			var ids []uint64
			at, done = i.host.Sched().WalkFailed(queue, at, min(left, sched.WalkBatch), func(f *sched.FailedJob) {
				ids = append(ids, f.Ref.Seq)
			})
			left -= len(ids)
			apply(ids)
		}
		return answer, i.commit()
	}
}
