package admin

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	codec "treadle/codec/admin"
	"treadle/loop/protocol"
	"treadle/sched"
)

// maxName is the longest name of a queue or job of the API in bytes. Jobs of the API are jobs of Periodic, whose
// messages have one byte for the length of a name.
const maxName = 255

// refusal is an error that says the server takes no such job now.
type refusal struct {
	error
	reason protocol.Reason
}

// Unwrap returns the error itself.
func (r *refusal) Unwrap() error { return r.error }

// postJobs submits a job, or one of each line of a body of JSON lines.
func (api *API) postJobs(w http.ResponseWriter, r *http.Request) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch kind {
	case "application/json":
		answer, err := api.postJob(w, r)
		api.write(w, answer, err)
	case "application/x-ndjson", "application/jsonl":
		answer, err := api.postLines(w, r)
		api.write(w, answer, err)
	default:
		api.write(w, nil, &unsupported{errors.New("send a job with Content-Type: application/json, or one a line with application/x-ndjson")})
	}
}

// unsupported is an error about the kind of a body.
type unsupported struct{ error }

// postJob answers POST /jobs: it submits a job and, if the request asks for the result, waits for its end.
func (api *API) postJob(w http.ResponseWriter, r *http.Request) (any, error) {
	body, done, err := api.readBody(w, r)
	defer done()
	if err != nil {
		return nil, err
	}
	var j codec.Job
	if err := decodeJob(body, &j); err != nil {
		return nil, err
	}
	if key := r.Header.Get(idempotencyKey); key != "" {
		if j.Name != "" || j.NameBytes != nil {
			return nil, badf("the job has a name, by which a repeated call is known: leave out the %s", idempotencyKey)
		}
		j.Name, j.NameBytes = codec.Name(key)
	}
	one := new(sched.Submission)
	if err := api.submission(one, &j); err != nil {
		return nil, err
	}
	answer := codec.Submitted{State: "submitted"}
	answer.Queue, answer.QueueBytes = codec.Name(protocol.Unescape(string(one.Queue)))
	answer.Name, answer.NameBytes = codec.Name(string(one.Name))
	sink := api.host.NewSink()
	if j.Wait > 0 {
		limit := time.Duration(j.Wait)
		j = codec.Job{} // the body is not held while the job waits
		return api.submitAndWait(r.Context(), one, limit, answer, sink, done)
	}
	if err := api.submit(one, sink); err != nil {
		return nil, err
	}
	sink.Wake()
	return &answer, api.commitOf(one.Queue)
}

// idempotencyKey is the header that many HTTP clients send with each attempt of a call. It becomes the name of a job
// without one, which the scheduler keeps unique.
const idempotencyKey = "Idempotency-Key"

// commitOf returns when the journal has the last change in a queue.
func (api *API) commitOf(queue []byte) error {
	group, wait := api.host.CommitGroup(queue)
	if !wait {
		return nil
	}
	api.host.Flush(1)
	return api.host.Await(group)
}

// maxBody bounds the body of one job: its bytes in base64, and the other members.
func (api *API) maxBody() int64 { return int64(api.host.Limits().MaxFrame)/3*4 + maxMembers }

// maxMembers bounds what a body has beside the workload.
const maxMembers = 16 << 10

// decodeJob is decode for a job.
func decodeJob(text []byte, j *codec.Job) error {
	if j.ParsePlain(text) {
		return nil
	}
	return decode(text, j)
}

// decode decodes a JSON text, which has no members but v's. The strings of the text are UTF-8 as they stand: others
// would be changed.
func decode(text []byte, v any) error {
	if !utf8.Valid(text) || hasLoneSurrogate(text) {
		return badf("the text is not UTF-8: a member with _b64 takes any bytes, in base64")
	}
	d := newDecoder(text)
	return requestError(d, d.Decode(v))
}

func newDecoder(text []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d
}

// maxQuoted bounds the bytes of an error about a request: it may quote the request.
const maxQuoted = 300

// requestError returns why a body cannot be taken, or nil: that there is more behind what d has decoded, or the
// decoding error err in words for the sender, with the member and the JSON type that it must have.
func requestError(d *json.Decoder, err error) error {
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return nil
		}
		err = errors.New("there is more than one JSON value")
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	var (
		wrong    *json.UnmarshalTypeError
		syntax   *json.SyntaxError
		encoding base64.CorruptInputError
	)
	switch {
	case errors.As(err, new(*badRequest)):
		return err
	case errors.As(err, &wrong):
		text = cmp.Or(wrong.Field, "the value") + " is a JSON " + wrong.Value + ": it must be " + jsonFor(wrong.Type)
		if wrong.Type == reflect.TypeFor[codec.Job]() {
			text += "; for many jobs send one a line, with Content-Type application/x-ndjson"
		}
	case err == io.EOF:
		text = "there is no JSON value"
	case err == io.ErrUnexpectedEOF:
		text = "the JSON value is not complete"
	case errors.As(err, &syntax):
		text = fmt.Sprintf("the text is no JSON, at byte %d: %s", syntax.Offset, text)
	case errors.As(err, &encoding):
		text = fmt.Sprintf("a member with _b64 is not in base64, at its byte %d", int64(encoding))
	case len(text) > maxQuoted:
		text = strings.ToValidUTF8(strings.Clone(text[:maxQuoted]), "") + "..."
	}
	return &badRequest{errors.New(text)}
}

// jsonFor names the JSON values that a member of a type takes.
func jsonFor(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "a string, of base64"
		}
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a whole number of 64 bits"
}

// surrogates are the escapes of UTF-16's surrogates, in pairs and alone.
var surrogates = regexp.MustCompile(`\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}`)

// hasLoneSurrogate reports whether a JSON text has the escape of a surrogate that is half of no pair.
func hasLoneSurrogate(text []byte) bool {
	if !bytes.Contains(text, []byte(`\ud`)) && !bytes.Contains(text, []byte(`\uD`)) {
		return false
	}
	for rest := text; ; {
		at := surrogates.FindIndex(rest)
		if at == nil {
			return false
		}
		if at[1]-at[0] == len(`\ud800`) {
			return true
		}
		rest = rest[at[1]:]
	}
}

// submission sets s to a job. Its bytes are those of j.
func (api *API) submission(s *sched.Submission, j *codec.Job) error {
	queue, err := textOrBytes("queue", j.Queue, j.QueueBytes)
	if err != nil {
		return err
	}
	if len(queue) == 0 {
		return badf("the job has no queue")
	}
	name, err := textOrBytes("name", j.Name, j.NameBytes)
	if err != nil {
		return err
	}
	if len(name) == 0 {
		name = []byte(rand.Text())
	}
	if len(queue) > maxName || len(name) > maxName {
		return badf("a queue and a name have at most %d bytes; these have %d and %d", maxName, len(queue), len(name))
	}
	*s = sched.Submission{Space: api.o.JobSpace, Queue: protocol.Queue(queue), Name: name, Priority: j.Priority}
	if s.Workload, err = workload(j); err != nil {
		return err
	}
	if maxWorkload := api.host.Limits().MaxFrame - 2*maxName; len(s.Workload) > maxWorkload {
		api.host.CountRefusal(Name, protocol.ReasonSize)
		return &refusal{fmt.Errorf("the workload of %d bytes is larger than --max-frame allows", len(s.Workload)), protocol.ReasonSize}
	}
	switch {
	case !j.At.IsZero() && j.Delay != 0:
		return badf("a job has a time in at or a delay, not both")
	case !j.At.IsZero():
		s.SchedAt = j.At.Add(time.Second - 1).Unix() // never early
	case j.Delay > 0:
		s.SchedAt = (api.host.Now().Wall + time.Duration(j.Delay).Milliseconds() + 999) / 1000 // never early
	}
	s.Timeout = int32(min(math.Ceil(time.Duration(j.Timeout).Seconds()), math.MaxInt32))
	return nil
}

// textOrBytes returns the bytes of a member that may stand in base64 instead.
func textOrBytes(member, text string, inBase64 []byte) ([]byte, error) {
	if text != "" && inBase64 != nil {
		return nil, badf("the job has %s and %s_b64: give one", member, member)
	}
	if inBase64 != nil {
		return inBase64, nil
	}
	return []byte(text), nil
}

// workload returns the bytes of the workload, which a request may give as text, as base64 or as JSON. It returns an
// error for more than one of them.
func workload(j *codec.Job) ([]byte, error) {
	if countTrue(j.Workload != "", j.WorkloadBytes != nil, j.WorkloadJSON != nil) > 1 {
		return nil, badf("the job has more than one of workload, workload_b64 and workload_json: give one")
	}
	if j.WorkloadJSON != nil {
		return j.WorkloadJSON, nil
	}
	return textOrBytes("workload", j.Workload, j.WorkloadBytes)
}

// countTrue returns how many of the conditions hold.
func countTrue(there ...bool) (n int) {
	for _, one := range there {
		if one {
			n++
		}
	}
	return n
}

// badf returns an error that the caller of the API can mend.
func badf(format string, args ...any) error { return &badRequest{fmt.Errorf(format, args...)} }

// submit adds a job. The caller wakes the event loops and waits for the journal.
func (api *API) submit(s *sched.Submission, sink protocol.Sink) error {
	err := api.host.CheckCapacity()
	if err == nil {
		err = api.host.Sched().Submit(api.host.Now(), s, sink)
	}
	if err == nil {
		return nil
	}
	why := protocol.ReasonOf(err)
	api.host.CountRefusal(Name, why)
	if errors.Is(err, sched.ErrPaused) {
		var q codec.Queue
		fillPause(&q, api.policies(), string(s.Queue))
		err = fmt.Errorf("%w%s", err, after(" by ", q.PausedBy)+after(": ", q.PausedWhy))
	}
	return &refusal{fmt.Errorf("the job is not taken: %w", err), why}
}
