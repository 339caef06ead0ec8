package client

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"treadle/codec/admin"
)

// Admin is a client of the HTTP API. It may be used by several goroutines.
type Admin struct {
	By      string // who asks, as the audit has it beside what the server knows; set before the first call
	http    http.Client
	address string // for messages
}

// Messages of the API.
type (
	// PolicyRule is a rule for queues.
	PolicyRule = admin.Rule
	// PolicyValue is a value of a queue's policy.
	PolicyValue = admin.Value
	// QueueState is a queue, the number of its jobs in each state, and what has happened to them.
	QueueState = admin.Queue
	// Overview is the state of a server and its queues.
	Overview = admin.Overview
	// CronEntry is work that is submitted at times.
	CronEntry = admin.CronEntry
	// CronStatus is a CronEntry and what it has done.
	CronStatus = admin.CronStatus
	// Connection is an open connection of the server.
	Connection = admin.Connection
	// Setting is a setting of the server.
	Setting = admin.Setting
	// SubmittedJob is the answer to a submission.
	SubmittedJob = admin.Submitted
	// ListedJob is a job in any state.
	ListedJob = admin.ListedJob
	// JobPage is a page of the jobs that a filter means.
	JobPage = admin.Jobs
	// JobDetails is a job with what is known of it.
	JobDetails = admin.JobDetails
	// JobAttempt is a run of a job, or another event of its history.
	JobAttempt = admin.Attempt
	// SettingChange is something that a reload has changed.
	SettingChange = admin.SettingChange
)

// agent is the User-Agent of a client.
const agent = "treadle"

// adminSetting names an HTTP API on the command line.
const adminSetting = "-H or TREADLE_ADMIN"

// maxAdminAnswer bounds an answer: a page of a thousand failed jobs has at most about 5 MiB.
const maxAdminAnswer = 64 << 20

// NewAdmin returns a client of the API at an address of the form that Dial takes, or at http://host:port or
// https://host:port. Nothing is connected before the first call.
func NewAdmin(address string) *Admin {
	if rest, ok := strings.CutPrefix(address, "http://"); ok {
		address = "tcp://" + strings.TrimSuffix(rest, "/")
	}
	if rest, ok := strings.CutPrefix(address, "https://"); ok {
		address = "tls://" + strings.TrimSuffix(rest, "/")
	}
	if network, target, err := splitAddress(address, defaultPorts[adminSetting]); err == nil {
		address = network + "://" + target
	}
	return &Admin{address: address, http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			c, _, err := connectTo(ctx, address, adminSetting)
			return c, err
		},
	}}}
}

// Close ends the connections that no call uses.
func (a *Admin) Close() { a.http.CloseIdleConnections() }

// call makes one request and decodes its answer. question may be nil.
func (a *Admin) call(ctx context.Context, method, path string, question, answer any) error {
	reply, err := a.open(ctx, method, path, question)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, maxAdminAnswer))
	if err != nil {
		return httpError(a.address, adminSetting, err)
	}
	if err := stdjson.Unmarshal(text, answer); err != nil {
		return &PeerError{a.address, adminSetting, err}
	}
	return nil
}

// open makes one request and returns its answer, whose body the caller closes. question may be nil.
func (a *Admin) open(ctx context.Context, method, path string, question any) (*http.Response, error) {
	body, err := stdjson.Marshal(question)
	if err != nil {
		return nil, err
	}
	if question == nil {
		body = nil
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", agent)
	reply, err := a.http.Do(request)
	switch {
	case err != nil:
		return nil, httpError(a.address, adminSetting, err)
	case reply.StatusCode == http.StatusOK:
		return reply, nil
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, maxAdminAnswer))
	if err != nil {
		return nil, httpError(a.address, adminSetting, err)
	}
	var wrong admin.Error
	if stdjson.Unmarshal(text, &wrong) != nil || wrong.Error == "" {
		return nil, &PeerError{a.address, adminSetting, fmt.Errorf("it is no HTTP API of this program, it answered %s", reply.Status)}
	}
	return nil, &AnswerError{reply.StatusCode, wrong.Reason, wrong.Error}
}

// Policies returns all rules and the keys that rules may have.
func (a *Admin) Policies(ctx context.Context) (t admin.Table, err error) {
	err = a.call(ctx, http.MethodGet, "/api/v1/policies", nil, &t)
	return t, err
}

// Policy returns the policy of a queue.
func (a *Admin) Policy(ctx context.Context, queue string) (t admin.Table, err error) {
	err = a.call(ctx, http.MethodGet, "/api/v1/policies?queue="+url.QueryEscape(queue), nil, &t)
	return t, err
}

// SetPolicy changes the run-time rule of a pattern and returns it; a value of nil takes its key out.
func (a *Admin) SetPolicy(ctx context.Context, pattern string, values map[string]*string) (r admin.Rule, err error) {
	err = a.call(ctx, http.MethodPatch, "/api/v1/policies", &admin.PolicyChange{Pattern: pattern, Values: values, RequestedBy: a.cause("")}, &r)
	return r, err
}

// cause is why a change is asked for, and by whom.
func (a *Admin) cause(why string) admin.RequestedBy { return admin.RequestedBy{By: a.By, Why: why} }

// Queues returns a page of the queues with names that begin with prefix, by name. after is the Next of the page before,
// or empty.
func (a *Admin) Queues(ctx context.Context, prefix, after string, limit int) (p admin.Queues, err error) {
	query := url.Values{"prefix": {prefix}, "after": {after}, "limit": {strconv.Itoa(limit)}}
	err = a.call(ctx, http.MethodGet, "/api/v1/queues?"+query.Encode(), nil, &p)
	return p, err
}

// Connections returns a page of the server's connections, by id. after is the Next of the page before, or empty.
// protocol leaves out those of others, unless it is empty, so a page may be short.
func (a *Admin) Connections(ctx context.Context, protocol, after string, limit int) (p admin.Connections, err error) {
	query := url.Values{"protocol": {protocol}, "after": {after}, "limit": {strconv.Itoa(limit)}}
	err = a.call(ctx, http.MethodGet, "/api/v1/connections?"+query.Encode(), nil, &p)
	return p, err
}

// QuietConnection asks the worker of a connection to take no more jobs, and with end to end its process, too.
func (a *Admin) QuietConnection(ctx context.Context, id string, end bool) error {
	return a.call(ctx, http.MethodPost, "/api/v1/connections/quiet", &admin.Quiet{ID: id, End: end, RequestedBy: a.cause("")}, new(struct{}))
}

// CloseConnection closes a connection of the server.
func (a *Admin) CloseConnection(ctx context.Context, id string) error {
	return a.call(ctx, http.MethodPost, "/api/v1/connections/close", &admin.Close{ID: id, RequestedBy: a.cause("")}, new(struct{}))
}

// Queue returns one queue. The name may have any bytes.
func (a *Admin) Queue(ctx context.Context, name string) (QueueState, error) {
	return a.oneQueue(ctx, http.MethodGet, "/api/v1/queues?queue="+url.QueryEscape(name), nil)
}

func (a *Admin) oneQueue(ctx context.Context, method, path string, ask any) (QueueState, error) {
	var p admin.Queues
	if err := a.call(ctx, method, path, ask, &p); err != nil {
		return QueueState{}, err
	}
	if len(p.Queues) != 1 {
		return QueueState{}, &PeerError{a.address, adminSetting, fmt.Errorf("it answered with %d queues instead of one", len(p.Queues))}
	}
	return p.Queues[0], nil
}

// Overview returns the state of the server and its busiest queues, at most limit.
func (a *Admin) Overview(ctx context.Context, limit int) (o Overview, err error) {
	err = a.call(ctx, http.MethodGet, "/api/v1/overview?limit="+strconv.Itoa(limit), nil, &o)
	return o, err
}

// Cron returns the cron entries by name, each with its next time.
func (a *Admin) Cron(ctx context.Context) ([]CronStatus, error) {
	var all admin.CronEntries
	err := a.call(ctx, http.MethodGet, "/api/v1/cron", nil, &all)
	return all.Entries, err
}

// CronEntry returns one entry with n times to come.
func (a *Admin) CronEntry(ctx context.Context, name string, n int) (s CronStatus, err error) {
	query := url.Values{"entry": {name}, "next": {strconv.Itoa(n)}}
	return a.oneCron(ctx, http.MethodGet, "/api/v1/cron?"+query.Encode(), nil)
}

// AddCron adds an entry and returns it. An entry of its name is replaced or, without replace, refuses it.
func (a *Admin) AddCron(ctx context.Context, e CronEntry, replace bool) (s CronStatus, err error) {
	return a.oneCron(ctx, http.MethodPost, "/api/v1/cron", &admin.CronAdd{CronEntry: e, Replace: replace, RequestedBy: a.cause("")})
}

func (a *Admin) oneCron(ctx context.Context, method, path string, ask any) (s CronStatus, err error) {
	var all admin.CronEntries
	if err := a.call(ctx, method, path, ask, &all); err != nil {
		return s, err
	}
	if len(all.Entries) != 1 {
		return s, &PeerError{a.address, adminSetting, fmt.Errorf("it answered with %d cron entries instead of one", len(all.Entries))}
	}
	return all.Entries[0], nil
}

// RemoveCron removes an entry.
func (a *Admin) RemoveCron(ctx context.Context, name string) error {
	return a.call(ctx, http.MethodPost, "/api/v1/cron/remove", &admin.CronChange{Entry: name, RequestedBy: a.cause("")}, new(struct{}))
}

// RunCron submits the job of an entry now.
func (a *Admin) RunCron(ctx context.Context, name string) (r admin.CronRun, err error) {
	err = a.call(ctx, http.MethodPost, "/api/v1/cron/run", &admin.CronChange{Entry: name, RequestedBy: a.cause("")}, &r)
	return r, err
}

// PauseCron leaves out the times of an entry.
func (a *Admin) PauseCron(ctx context.Context, name, why string) error {
	return a.call(ctx, http.MethodPost, "/api/v1/cron/pause", &admin.CronChange{Entry: name, RequestedBy: a.cause(why)}, new(struct{}))
}

// ResumeCron ends a pause.
func (a *Admin) ResumeCron(ctx context.Context, name string) error {
	return a.call(ctx, http.MethodPost, "/api/v1/cron/resume", &admin.CronChange{Entry: name, RequestedBy: a.cause("")}, new(struct{}))
}

// Settings returns the settings of the server.
func (a *Admin) Settings(ctx context.Context) ([]Setting, error) {
	var all admin.Settings
	err := a.call(ctx, http.MethodGet, "/api/v1/settings", nil, &all)
	return all.Settings, err
}

// Reload asks the server to read its configuration again, and returns what has changed.
func (a *Admin) Reload(ctx context.Context) ([]SettingChange, error) {
	var all admin.SettingChanges
	err := a.call(ctx, http.MethodPost, "/api/v1/reload", a.cause(""), &all)
	return all.Changes, err
}

// Jobs returns a page of the jobs that a filter means. after is the Next of the page before, or empty.
func (a *Admin) Jobs(ctx context.Context, filter, after string, limit int) (p JobPage, err error) {
	query := url.Values{"filter": {filter}, "after": {after}, "limit": {strconv.Itoa(limit)}}
	err = a.call(ctx, http.MethodGet, "/api/v1/jobs?"+query.Encode(), nil, &p)
	return p, err
}

// JobByID returns the job of an id.
func (a *Admin) JobByID(ctx context.Context, id string) (JobDetails, error) {
	return a.oneJob(ctx, url.Values{"id": {id}})
}

// JobByName returns the job of a name. protocol may be empty. The names may have any bytes.
func (a *Admin) JobByName(ctx context.Context, queue, name, protocol string) (JobDetails, error) {
	return a.oneJob(ctx, url.Values{"queue": {queue}, "name": {name}, "protocol": {protocol}})
}

func (a *Admin) oneJob(ctx context.Context, query url.Values) (d JobDetails, err error) {
	err = a.call(ctx, http.MethodGet, "/api/v1/job?"+query.Encode(), nil, &d)
	return d, err
}

// JobWorkload writes the workload of the job of an id. After an error a part of it may be written.
func (a *Admin) JobWorkload(ctx context.Context, id string, to io.Writer) error {
	return a.copyTo(ctx, to, "/api/v1/job/workload?"+url.Values{"id": {id}}.Encode())
}

// JobResult writes the kept result of the job of an id, as JobWorkload does.
func (a *Admin) JobResult(ctx context.Context, id string, to io.Writer) error {
	return a.copyTo(ctx, to, "/api/v1/job/result?"+url.Values{"id": {id}}.Encode())
}

// Backup writes a backup of all data of the server, as of the call: an archive for treadle restore. progress, which may
// be nil, is called with the bytes that are written. After an error a part of it may be written.
func (a *Admin) Backup(ctx context.Context, to io.Writer, progress Progress) error {
	reply, err := a.open(ctx, http.MethodGet, "/api/v1/backup", nil)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	buffer := make([]byte, backupPiece)
	for done := int64(0); ; {
		n, err := reply.Body.Read(buffer)
		if _, err := to.Write(buffer[:n]); err != nil {
			return err
		}
		if done += int64(n); progress != nil {
			progress(done, reply.ContentLength)
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("the server has ended the backup after %d of %d bytes: %w", done, reply.ContentLength, err)
		}
	}
}

// backupPiece is how many bytes of a backup are written at a time.
const backupPiece = 256 << 10

// copyTo writes an answer of any size.
func (a *Admin) copyTo(ctx context.Context, to io.Writer, path string) error {
	reply, err := a.open(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if _, err := io.Copy(to, reply.Body); err != nil {
		return httpError(a.address, adminSetting, err)
	}
	return nil
}

// Submitted returns what the API answers to a submission of the job.
func (j *Job) Submitted() (s SubmittedJob) {
	s.Queue, s.QueueBytes = admin.Name(j.Func)
	s.Name, s.NameBytes = admin.Name(j.Name)
	s.State = "submitted"
	return s
}
