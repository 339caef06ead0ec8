package admin

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// keptJobs is one kind of jobs that are kept after their end.
type keptJobs struct {
	walk    func(*sched.Scheduler, []byte, sched.KeptCursor, int, func(*sched.KeptJob)) (sched.KeptCursor, bool)
	count   func(sched.QueueStatus) int
	kind    string
	missing string // why there may be no job of an id
}

var (
	failedJobs = keptJobs{
		(*sched.Scheduler).WalkFailed, func(s sched.QueueStatus) int { return s.Failed }, "failed",
		"the queue has no failed job with this id: it was retried, removed or moved",
	}
	doneJobs = keptJobs{
		(*sched.Scheduler).WalkDone, func(s sched.QueueStatus) int { return s.Done }, "finished",
		"the queue keeps no finished job with this id: it was removed, or is kept no more",
	}
)

// inQueue counts the jobs of the kind in a queue.
func (k *keptJobs) inQueue(s *sched.Scheduler, queue string) int {
	q, _ := s.StatusOf([]byte(queue))
	return k.count(q)
}

// queues lists the queues that have jobs of the kind, by name.
func queues[Q any](i *Interface, k *keptJobs, make func(queue string, queueBytes []byte, jobs int) Q) []Q {
	var found []sched.QueueStatus
	i.host.Sched().Status(func(s sched.QueueStatus) {
		if k.count(s) > 0 {
			found = append(found, s)
		}
	})
	slices.SortFunc(found, func(a, b sched.QueueStatus) int { return cmp.Compare(a.Name, b.Name) })
	all := []Q{}
	for _, s := range found {
		name, _ := protocol.Function(s.Name) // only functions have kept jobs
		text, bytes := codec.Name(string(name))
		all = append(all, make(text, bytes, k.count(s)))
	}
	return all
}

// getFailed answers GET /failed with the queues that keep failed jobs, or with a page of the failed jobs of one queue.
func (i *Interface) getFailed(r *http.Request) (any, error) {
	if r.URL.Query().Get("queue") == "" {
		return &codec.FailedQueues{Queues: queues(i, &failedJobs, func(queue string, queueBytes []byte, jobs int) codec.FailedQueue {
			return codec.FailedQueue{Queue: queue, QueueBytes: queueBytes, Failed: jobs}
		})}, nil
	}
	return page(i, r, &failedJobs, func(f *sched.KeptJob) codec.FailedJob {
		j := codec.FailedJob{ID: f.Ref.Seq, FailedAt: f.At, Size: len(f.Workload)}
		j.Name, j.NameBytes = codec.Name(string(f.Name))
		return j
	}, func(j *codec.FailedJob, _ uint64, all []codec.Attempt) { j.Attempts = all })
}

// getDone answers GET /done with the queues that keep finished jobs, or with a page of the finished jobs of one queue.
func (i *Interface) getDone(r *http.Request) (any, error) {
	if r.URL.Query().Get("queue") == "" {
		return &codec.DoneQueues{Queues: queues(i, &doneJobs, func(queue string, queueBytes []byte, jobs int) codec.DoneQueue {
			return codec.DoneQueue{Queue: queue, QueueBytes: queueBytes, Done: jobs}
		})}, nil
	}
	return page(i, r, &doneJobs, func(f *sched.KeptJob) codec.DoneJob {
		j := codec.DoneJob{ID: f.Ref.Seq, DoneAt: f.At, Size: len(f.Workload)}
		if j.Name, j.NameBytes = codec.Name(string(f.Name)); f.Result != nil {
			size := len(f.Result)
			j.Result = &size
		}
		return j
	}, func(j *codec.DoneJob, tries uint64, all []codec.Attempt) {
		if j.Attempts, j.Tries = all, tries; len(all) > 0 {
			last := all[len(all)-1]
			j.Outcome, j.Worker = last.Outcome, last.Worker
		}
	})
}

// result is the answer to GET /api/v1/done/result: bytes, not JSON.
type result []byte

// getResult answers GET /done/result with the bytes of a kept result.
func (i *Interface) getResult(r *http.Request) (any, error) {
	q := r.URL.Query()
	id, err := strconv.ParseUint(q.Get("id"), 10, 64)
	if err != nil || q.Get("queue") == "" {
		return nil, &badRequest{errors.New("name a queue and the id of one of its finished jobs")}
	}
	var data result
	found := i.host.Sched().ViewDone(protocol.Queue([]byte(q.Get("queue"))), id, func(k *sched.KeptJob) { data = bytes.Clone(k.Result) })
	switch {
	case !found:
		return nil, &notFound{errors.New(doneJobs.missing)}
	case data == nil:
		return nil, &notFound{errNoResult}
	}
	return data, nil
}

// Bounds of a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

// page makes a page of the kept jobs of a queue. show is called under a lock of the scheduler; the histories are read when
// the scheduler continues.
func page[Job any](i *Interface, r *http.Request, k *keptJobs, show func(*sched.KeptJob) Job, add func(*Job, uint64, []codec.Attempt)) (any, error) {
	q := r.URL.Query()
	limit, err := limitOf(q.Get("limit"), defaultPage)
	if err != nil {
		return nil, err
	}
	c, err := parseCursor(q.Get("after"))
	if err != nil {
		return nil, err
	}
	p := &codec.Page[Job]{Queue: q.Get("queue"), Jobs: []Job{}}
	done := false
	for len(p.Jobs) < limit && !done {
		var histories [][]byte
		first := len(p.Jobs)
		c, done = k.walk(i.host.Sched(), protocol.Queue([]byte(p.Queue)), c, min(limit-first, sched.WalkBatch), func(f *sched.KeptJob) {
			p.Jobs = append(p.Jobs, show(f))
			histories = append(histories, bytes.Clone(f.History))
		})
		for n, h := range histories {
			tries, all := attempts(h)
			add(&p.Jobs[first+n], tries, all)
		}
	}
	if !done {
		p.Next = strconv.FormatInt(c.At, 10) + "-" + strconv.FormatUint(c.Seq, 10)
	}
	return p, nil
}

// parseCursor parses the cursor of a page, TIME-ID, as the answer of the page before has it. An empty text is the
// start.
func parseCursor(text string) (c sched.KeptCursor, err error) {
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

func attempts(history []byte) (tries uint64, shown []codec.Attempt) {
	tries, all := sched.ParseHistory(history)
	shown = []codec.Attempt{}
	for _, a := range all {
		shown = append(shown, codec.Attempt{At: a.At, Outcome: a.Outcome.String(), Worker: a.Worker, Text: strings.ToValidUTF8(a.Text, "�")})
	}
	return tries, shown
}

// maxLeft bounds Done.Left.
const maxLeft = 100

// add notes what became of a job.
func (k *keptJobs) add(d *codec.Done, id uint64, err error) {
	switch {
	case err == nil:
		d.Done++
	case len(d.Left) < maxLeft:
		d.Left = append(d.Left, codec.Left{ID: id, Error: k.reasonOf(err)})
	default:
		d.More++
	}
}

func (k *keptJobs) reasonOf(err error) string {
	switch {
	case errors.Is(err, sched.ErrNotFound):
		return k.missing
	case errors.Is(err, sched.ErrDuplicate):
		return "the queue has another job of its name: remove that, or wait until it is done"
	}
	return err.Error()
}

func (i *Interface) retry(queue []byte, id uint64, sink protocol.Sink) error {
	return i.host.Sched().RetryFailed(i.host.Now(), queue, id, sink)
}

func (i *Interface) removeFailed(queue []byte, id uint64, _ protocol.Sink) error {
	return i.host.Sched().RemoveFailed(queue, id)
}

func (i *Interface) removeDone(queue []byte, id uint64, _ protocol.Sink) error {
	return i.host.Sched().RemoveDone(queue, id)
}

// postKept applies verb to the kept jobs that a request names.
func (i *Interface) postKept(k *keptJobs, verb func(*Interface, []byte, uint64, protocol.Sink) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var c codec.Choice
		if err := read(r, &c); err != nil {
			return nil, err
		}
		c.Queue += string(c.QueueBytes)
		if c.Queue == "" || c.All == (len(c.Jobs) > 0) {
			return nil, &badRequest{errors.New("name a queue, and its " + k.kind + " jobs by their ids or with all")}
		}
		queue := protocol.Queue([]byte(c.Queue))
		answer, sink := &codec.Done{}, i.host.NewSink()
		apply := func(ids []uint64) {
			for _, id := range ids {
				k.add(answer, id, verb(i, queue, id, sink))
			}
			sink.Wake()
		}
		apply(c.Jobs)
		if !c.All {
			return answer, i.commit()
		}
		at, done := sched.KeptCursor{}, false
		for left := k.inQueue(i.host.Sched(), string(queue)); !done && left > 0; { // those that end meanwhile stand behind these
			var ids []uint64
			at, done = k.walk(i.host.Sched(), queue, at, min(left, sched.WalkBatch), func(f *sched.KeptJob) {
				ids = append(ids, f.Ref.Seq)
			})
			left -= len(ids)
			apply(ids)
		}
		return answer, i.commit()
	}
}
