package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

const (
	// maxCauses bounds the groups of an answer. The jobs of further groups are counted together.
	maxCauses = 100
	// maxCause bounds the text by which jobs are grouped, in bytes: the first line of an error says most.
	maxCause = 160
	// leastCommon is the length from which a part of an error can find the jobs of its group, in bytes.
	leastCommon = 4
)

// causes groups failed jobs by queue and cause.
type causes struct {
	all   map[causeKey]*codec.FailureCause
	other int
}

type causeKey struct{ queue, cause string }

// getCauses answers with the failed jobs by queue and cause, of one queue or of all.
func (api *API) getCauses(r *http.Request) (any, error) {
	q, err := parameters(r)
	if err != nil {
		return nil, err
	}
	groups, answer := causes{all: make(map[causeKey]*codec.FailureCause)}, &codec.FailureCauses{Causes: []codec.FailureCause{}}
	failed := sched.Match{States: sched.StatesOf(sched.JobFailed)}
	only, until := "", time.Now().Add(searchTime)
	if q.Has("queue") {
		only = string(protocol.Queue([]byte(q.Get("queue"))))
	}
	for _, queue := range api.failedQueues(only, &answer.Of) {
		l, err := sched.NewListing(&failed, []byte(queue), false, "")
		if err != nil {
			return nil, err
		}
		for done := false; !done && !answer.More; {
			done = api.groupBatch(&groups, l, queue, &answer.Looked)
			answer.More = !done && (time.Now().After(until) || r.Context().Err() != nil)
		}
	}
	for _, one := range groups.all {
		answer.Causes = append(answer.Causes, *one)
	}
	slices.SortFunc(answer.Causes, func(a, b codec.FailureCause) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Cause, b.Cause))
	})
	answer.Other = groups.other
	return answer, nil
}

// failedQueues returns the queues that have failed jobs, as the scheduler has them, by name, and adds up their failed
// jobs. only is the queue that is asked for; empty: all.
func (api *API) failedQueues(only string, jobs *int) (names []string) {
	api.host.Sched().Status(func(s sched.QueueStatus) {
		if s.Failed > 0 && (only == "" || s.Name == only) {
			names = append(names, s.Name)
			*jobs += s.Failed
		}
	})
	slices.Sort(names)
	return names
}

// groupBatch adds the next failed jobs of the listing of a queue.
func (api *API) groupBatch(groups *causes, l *sched.Listing, queue string, looked *int64) (done bool) {
	type failure struct {
		at      int64
		id      string
		history []byte
	}
	var batch []failure
	done = api.host.Sched().List(api.host.Now(), l, sched.WalkBatch, func(v *sched.JobView) bool {
		batch = append(batch, failure{v.Since, v.Ref.String(), slices.Clone(v.History)})
		return true
	})
	name := protocol.Unescape(queue)
	for _, f := range batch {
		_, all := attempts(f.history)
		groups.add(name, f.at, f.id, all)
	}
	*looked += int64(len(batch))
	return done
}

// add adds a job with its attempts.
func (g *causes) add(queue string, at int64, id string, all []codec.Attempt) {
	var last codec.Attempt
	for _, a := range slices.Backward(all) {
		if a.Outcome != outcomeMoved {
			last = a
			break
		}
	}
	pattern, common := causeOf(last.Text)
	key := causeKey{queue, last.Outcome + "\x00" + pattern}
	one := g.all[key]
	if one == nil {
		if len(g.all) == maxCauses {
			g.other++
			return
		}
		one = &codec.FailureCause{Outcome: last.Outcome, Cause: pattern, Common: common, First: at}
		one.Queue, one.QueueBytes = codec.Name(queue)
		g.all[key] = one
	}
	one.Jobs++
	one.First = min(one.First, at)
	if at >= one.Last {
		one.Last, one.ID, one.Text = at, id, strings.ToValidUTF8(last.Text[:min(len(last.Text), maxErrorText)], "")
	}
}

// causeOf returns the main line of an error with # in the place of each number, so that errors which differ in an id or
// a time are one cause. common is its longest part without numbers; empty: none is long enough.
func causeOf(text string) (pattern, common string) {
	text = errorLine(text)
	text = strings.ToValidUTF8(strings.TrimSpace(text[:min(len(text), maxCause)]), "")
	var b strings.Builder
	from := 0
	part := func(end int) {
		if one := strings.TrimSpace(text[from:end]); len(one) >= leastCommon && len(one) > len(common) {
			common = one
		}
	}
	for at := 0; at < len(text); {
		end := at
		for end < len(text) && isWordByte(text[end]) {
			end++
		}
		if word := text[at:end]; strings.ContainsAny(word, "0123456789") {
			part(at)
			b.WriteString(withoutNumbers(word))
			at, from = end, end
			continue
		}
		if end == at {
			end++
		}
		b.WriteString(text[at:end])
		at = end
	}
	part(len(text))
	return b.String(), common
}

// errorLine returns the line of an error that says most: the first one, but of Python's traces the last.
func errorLine(text string) string {
	text = strings.TrimSpace(text)
	first, _, _ := strings.Cut(text, "\n")
	if strings.HasPrefix(first, "Traceback (most recent call last)") {
		return text[strings.LastIndexByte(text, '\n')+1:]
	}
	return first
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// withoutNumbers returns a word with # for each number in it; one that is hexadecimal as a whole is a number.
func withoutNumbers(word string) string {
	if strings.Trim(word, "0123456789abcdefABCDEF") == "" {
		return "#"
	}
	var b strings.Builder
	for i := range len(word) {
		switch digit := word[i] >= '0' && word[i] <= '9'; {
		case !digit:
			b.WriteByte(word[i])
		case i == 0 || word[i-1] < '0' || word[i-1] > '9':
			b.WriteByte('#')
		}
	}
	return b.String()
}
