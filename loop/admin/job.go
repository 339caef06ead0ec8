package admin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

const (
	// shownBytes is how much of a workload or a result the answer about a job has. The rest is a request of its own.
	shownBytes = 4 << 10
	// readPiece is how much of a workload is held for a peer that reads all of it.
	readPiece = 64 << 10
)

var (
	errNoJob    = errors.New("there is no such job: it is done and not kept, it was removed, or the server has started again since")
	errNoName   = errors.New("the queue has no such job: it is done and not kept (a policy with keep-results keeps results), or it was removed; older kept jobs of a name are found by a filter")
	errSeveral  = errors.New("the queue has jobs of that name by several protocols: name one with protocol, or ask by id")
	errNoResult = errors.New("the job is kept without a result")
	errNotEnded = errors.New("the job has no result yet: it has not ended")
)

// getJob answers with one job.
func (api *API) getJob(r *http.Request) (any, error) {
	ref, err := api.refOf(r)
	if err != nil {
		return nil, err
	}
	var d codec.JobDetails
	var workload, result, history []byte
	queue := ""
	now := api.host.Now()
	if !api.host.Sched().View(now, ref, func(v *sched.JobView) {
		body := api.body(&v.Job)
		d.ListedJob, ref, queue = api.listedJob(v), v.Ref, v.Queue
		d.Until, d.Timeout, d.Count = v.Until, v.Timeout, v.Count
		d.WorkloadSize, d.ResultSize = len(body), len(v.Result)
		workload, result = bytes.Clone(body[:min(len(body), shownBytes)]), bytes.Clone(v.Result[:min(len(v.Result), shownBytes)])
		history = bytes.Clone(v.History)
	}) {
		return nil, &notFound{errNoJob}
	}
	addHistory(&d.ListedJob, history)
	_, d.Attempts = attempts(history)
	d.Workload, d.WorkloadBytes, d.WorkloadCut = textOrBase64(workload, d.WorkloadSize)
	if result != nil {
		d.Result, d.ResultBytes, d.ResultCut = textOrBase64(result, d.ResultSize)
	}
	for _, name := range api.host.Sched().HeldLocks(ref) {
		d.Locks = append(d.Locks, shownName(name))
	}
	d.Why = api.whyOf(now, ref, queue)
	return &d, nil
}

// textOrBase64 returns the beginning of a workload or result of size bytes, as text if it is UTF-8. A character is not
// cut.
func textOrBase64(part []byte, size int) (text *string, inBase64 []byte, cut bool) {
	whole := part
	if cut = len(part) < size; cut {
		for n := 1; n < utf8.UTFMax && n < len(part); n++ {
			if c := part[len(part)-n]; utf8.RuneStart(c) {
				if !utf8.FullRune(part[len(part)-n:]) {
					whole = part[:len(part)-n]
				}
				break
			}
		}
	}
	if utf8.Valid(whole) {
		s := string(whole)
		return &s, nil, cut
	}
	return nil, part, cut
}

// refOf finds the job that a request names by its id, or by queue, name and, where that is not enough, protocol.
func (api *API) refOf(r *http.Request) (ref sched.JobRef, err error) {
	q, err := parameters(r)
	switch {
	case err != nil:
		return ref, err
	case q.Has("id") == (q.Has("queue") || q.Has("name")), q.Has("queue") != q.Has("name"):
		return ref, badf("name a job by its id, or by queue and name")
	case q.Has("id"):
		if ref, err = sched.ParseRef(q.Get("id")); err != nil {
			return ref, &badRequest{err}
		}
		return ref, nil
	}
	return api.refByName(q.Get("queue"), q.Get("name"), q.Get("protocol"))
}

// attempts returns how often a job was tried, and its history.
func attempts(history []byte) (tries uint64, shown []codec.Attempt) {
	tries, all := sched.ParseHistory(history)
	shown = []codec.Attempt{}
	for _, a := range all {
		shown = append(shown, codec.Attempt{At: a.At, Outcome: a.Outcome.String(), Worker: a.Worker, Text: strings.ToValidUTF8(a.Text, "�")})
	}
	return tries, shown
}

// refByName finds the job of a name: one that has not ended before those that are kept, and of these the one that ended
// last. of is the protocol by which it came; empty: any.
func (api *API) refByName(queue, name, of string) (ref sched.JobRef, err error) {
	spaces, err := api.spacesOf(of)
	if err != nil {
		return ref, err
	}
	pending, kept, ended := 0, 0, int64(0)
	for id, space := range api.host.Spaces() {
		if space.ID == 0 || spaces != 0 && spaces>>id&1 == 0 {
			continue
		}
		one, ok := api.host.Sched().Find(space.ID, protocol.Queue([]byte(queue)), []byte(name))
		if !ok {
			continue
		}
		api.host.Sched().View(api.host.Now(), one, func(v *sched.JobView) {
			switch {
			case !v.State.Ended():
				pending++
				ref = one
			case pending == 0 && v.Since >= ended:
				kept++
				ref, ended = one, v.Since
			}
		})
	}
	switch {
	case pending > 1:
		return ref, &conflict{errSeveral}
	case pending+kept == 0:
		return ref, &notFound{errNoName}
	}
	return ref, nil
}

// sendPart returns a handler that answers with the workload or the kept result of a job, as bytes.
func (api *API) sendPart(part string, isResult bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ref, err := api.refOf(r)
		var data *sched.Reader
		if err == nil {
			data, err = api.open(ref, isResult)
		}
		if err != nil {
			api.write(w, nil, err)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Length", strconv.Itoa(data.Size()))
		h.Set("Content-Disposition", `attachment; filename="`+part+`"`)
		h.Set("X-Content-Type-Options", "nosniff")
		api.send(w, data) // net/http closes the connection after fewer bytes than announced, which the peer notices
	}
}

// open returns a reader of the workload or the kept result of a job.
func (api *API) open(ref sched.JobRef, isResult bool) (*sched.Reader, error) {
	skip, missing := 0, errNoResult
	if !api.host.Sched().View(api.host.Now(), ref, func(v *sched.JobView) {
		if !v.State.Ended() {
			missing = errNotEnded
		}
		if !isResult {
			skip = len(v.Workload) - len(api.body(&v.Job))
		}
	}) {
		return nil, &notFound{errNoJob}
	}
	data, ok := api.host.Sched().NewReader(ref, isResult, skip)
	if !ok {
		return nil, &notFound{missing}
	}
	return data, nil
}

// send sends bytes, a piece at a time. It stops when the job has changed meanwhile or the peer does not read.
func (api *API) send(w http.ResponseWriter, data io.Reader) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pieceTime)) // fails only when the connection is closed
	_, transfer := api.outgoing.Begin(context.Background(), w)
	defer transfer.End()
	transfer.Resize(readPiece)
	for piece := make([]byte, readPiece); ; transfer.Moved() {
		n, err := data.Read(piece)
		if err == nil {
			_, err = w.Write(piece[:n])
		}
		if err != nil {
			return
		}
	}
}
