package admin

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	codec "treadle/codec/admin"
	"treadle/codec/jsontext"
	"treadle/loop/protocol"
	"treadle/sched"
)

// report is what became of one leased job.
type report interface {
	token() string
	// carryOut hands the report to the scheduler.
	carryOut(c *reportCall) error
}

// reportCall is a report on its way to the scheduler.
type reportCall struct {
	api    *API
	now    sched.Time
	token  sched.Token
	sink   protocol.Sink
	answer codec.Reported
}

// postReports returns the handler of the reports of a kind.
func postReports[R any, P interface {
	*R
	report
}](api *API) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		all, single, err := reportsOf[R](r)
		if err != nil {
			return nil, err
		}
		c := reportCall{api: api, sink: api.host.NewSink()}
		for n := range all {
			one := P(&all[n])
			if c.token, err = sched.ParseToken(one.token()); err == nil {
				c.now = api.host.Now()
				err = one.carryOut(&c)
			}
			switch {
			case err == nil:
				c.answer.Reported++
			case single:
				return nil, err
			default:
				_, reason := leaseError(err)
				c.answer.Left = append(c.answer.Left, codec.LeftReport{Token: one.token(), Error: err.Error(), Reason: reason})
			}
		}
		c.sink.Wake()
		return &c.answer, api.commit()
	}
}

// reportsOf reads the reports of a request. single reports whether there is one, which is not in an array.
func reportsOf[R any](r *http.Request) (all []R, single bool, err error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, false, err
	}
	if single = !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("[")); single {
		all = make([]R, 1)
		return all, true, decode(text, &all[0])
	}
	if all = plainReports[R](text); all != nil {
		return all, false, nil
	}
	d := newDecoder(text)
	_, err = d.Token()
	for err == nil && d.More() {
		if len(all) == sched.MaxRequestJobs {
			return nil, false, badf("a request reports on at most %d leases", sched.MaxRequestJobs)
		}
		var one R
		if err = d.Decode(&one); err == nil {
			all = append(all, one)
		}
	}
	if err == nil {
		_, err = d.Token()
	}
	return all, false, requestError(d, err)
}

// plainReports decodes an array of reports of the usual form in a fraction of encoding/json's time. It returns nil for
// any other text: encoding/json says what that is.
func plainReports[R any](text []byte) []R {
	var a jsontext.Array
	if _, has := any(new(R)).(plainReport); !has || !a.Open(text) {
		return nil
	}
	all := make([]R, 0, min(bytes.Count(text, []byte("{")), sched.MaxRequestJobs))
	for a.Next() {
		var one R
		if len(all) == sched.MaxRequestJobs || !any(&one).(plainReport).parsePlain(a.Value) {
			return nil
		}
		all = append(all, one)
	}
	if !a.Valid() {
		return nil
	}
	return all
}

// plainReport is a kind of reports that many requests have many of.
type plainReport interface{ parsePlain(text []byte) bool }

// leaseErrors are the errors of tokens, each with its HTTP status and reason.
var leaseErrors = []struct {
	err    error
	status int
	reason string
}{
	{sched.ErrNoLease, http.StatusNotFound, codec.NoLease},
	{sched.ErrLeaseExpired, http.StatusGone, codec.LeaseExpired},
	{sched.ErrLeaseDone, http.StatusConflict, codec.LeaseDone},
	{sched.ErrLeaseRemoved, http.StatusGone, codec.LeaseRemoved},
}

// leaseError returns the status and the reason of the error of a token; 0 for another error.
func leaseError(err error) (status int, reason string) {
	for _, e := range leaseErrors {
		if errors.Is(err, e.err) {
			return e.status, e.reason
		}
	}
	return 0, ""
}

// The kinds of reports.
type (
	doneReport     codec.DoneReport
	failReport     codec.FailReport
	releaseReport  codec.ReleaseReport
	extendReport   codec.ExtendReport
	progressReport codec.ProgressReport
)

func (r *doneReport) token() string     { return r.Token.Token }
func (r *failReport) token() string     { return r.Token.Token }
func (r *releaseReport) token() string  { return r.Token.Token }
func (r *extendReport) token() string   { return r.Token.Token }
func (r *progressReport) token() string { return r.Token.Token }

func (r *doneReport) parsePlain(text []byte) bool { return (*codec.DoneReport)(r).ParsePlain(text) }

// carryOut finishes the leased job of the token, and stores its result.
func (r *doneReport) carryOut(c *reportCall) error {
	result, err := textOrBytes("result", r.Result, r.ResultBytes)
	if err != nil {
		return err
	}
	var space sched.Space
	err = c.api.host.Sched().ViewLeased(c.token, func(j *sched.Job, _ string, _ int64) { space = j.Space })
	if err != nil {
		return err
	}
	if convert := c.api.host.Spaces()[space].FromResult; convert != nil {
		result = convert(nil, result)
	}
	return c.api.host.Sched().FinishLeased(c.now, c.token, result, c.sink)
}

func (r *failReport) carryOut(c *reportCall) error {
	delay := int64(-1)
	if r.Delay != nil {
		delay = time.Duration(*r.Delay).Milliseconds()
	}
	return c.api.host.Sched().FailLeased(c.now, c.token, []byte(r.Error), delay, c.sink)
}

func (r *releaseReport) carryOut(c *reportCall) error {
	return c.api.host.Sched().ReleaseLeased(c.now, c.token, c.sink)
}

func (r *extendReport) carryOut(c *reportCall) error {
	length, err := leaseLength(r.Lease)
	if err != nil {
		return err
	}
	c.answer.Until, err = c.api.host.Sched().ExtendLease(c.now, c.token, length)
	return err
}

func (r *progressReport) carryOut(c *reportCall) error {
	data, err := textOrBytes("data", r.Data, r.DataBytes)
	if err != nil {
		return err
	}
	wait, err := c.api.host.Sched().PublishLeased(c.token, data, c.sink)
	c.answer.Wait = c.answer.Wait || wait
	return err
}
