package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"treadle/codec/kts46"
)

// Kts46 is a client of the kts46 scheduler over XML-RPC. Any number of goroutines may use it. A
// scheduler's fault is a *kts46.Fault.
type Kts46 struct {
	http    http.Client
	address string // for messages
	host    string // for the Host header, which the server checks
}

// KtsTask is a task that a worker holds.
type KtsTask struct {
	Worker     string    `json:"worker"`
	Project    string    `json:"project"`
	Job        string    `json:"job"`
	LastUpdate time.Time `json:"last_update"`
}

// KtsJob is the progress of a job. A project without jobs has one entry without a name.
type KtsJob struct {
	Project string `json:"project"`
	Name    string `json:"job,omitempty"`
	Done    int64  `json:"done"`
	Total   int64  `json:"total"`
}

// ktsSetting names a scheduler on the command line.
const ktsSetting = "-H or TREADLE_KTS46"

// maxKtsAnswer bounds a reply: the status of 128k jobs has 90 MiB.
const maxKtsAnswer = 256 << 20

// NewKts46 returns a client of the scheduler at an address as Dial takes it. It connects at the
// first call.
func NewKts46(address string) *Kts46 {
	host := "localhost"
	if network, target, err := splitAddress(address, defaultPorts[ktsSetting]); err == nil {
		address = network + "://" + target
		if network == "tcp" {
			host = target
		}
	}
	return &Kts46{address: address, host: host, http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			c, _, err := connectTo(ctx, address, ktsSetting)
			return c, err
		},
	}}}
}

// Close closes the idle connections.
func (k *Kts46) Close() { k.http.CloseIdleConnections() }

// call makes one call and returns its result.
func (k *Kts46) call(ctx context.Context, method string, params ...any) (any, error) {
	body := bytes.NewReader(kts46.AppendCall(nil, method, params...))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://scheduler/RPC2", body)
	if err != nil {
		return nil, err
	}
	request.Host = k.host
	request.Header.Set("Content-Type", "text/xml")
	answer, err := k.http.Do(request)
	if err != nil {
		return nil, httpError(k.address, ktsSetting, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 200)) // as much as there is
		text = bytes.TrimSpace(text)
		if answer.StatusCode == http.StatusNotFound {
			return nil, &PeerError{k.address, ktsSetting, fmt.Errorf("it is no XML-RPC of the scheduler, it answered %s: %s", answer.Status, text)}
		}
		return nil, fmt.Errorf("the scheduler at %s answered %s: %s", k.address, answer.Status, text)
	}
	v, err := kts46.ReadAnswer(io.LimitReader(answer.Body, maxKtsAnswer))
	var fault *kts46.Fault
	switch {
	case errors.As(err, &fault):
		return nil, stripPythonClass(fault)
	case err != nil:
		return nil, fmt.Errorf("the answer of the scheduler at %s: %w", k.address, err)
	}
	return v, nil
}

// httpError returns the cause of a failed request without the details of net/http.
func httpError(address, setting string, err error) error {
	var dial *DialError
	var malformed *AddressError
	var asked *url.Error
	switch {
	case errors.As(err, &dial):
		return dial
	case errors.As(err, &malformed):
		return malformed
	case errors.As(err, &asked):
		err = asked.Err
	}
	if strings.Contains(err.Error(), "malformed HTTP") { // net/http has no error value for it
		err = errors.New("the peer does not speak HTTP")
	}
	return newPeerError(address, setting, err)
}

// stripPythonClass removes the Python exception class from a fault's text.
func stripPythonClass(f *kts46.Fault) *kts46.Fault {
	text := f.Text
	if class, rest, found := strings.Cut(text, ">:"); found && rest != "" && strings.HasPrefix(class, "<") {
		text = rest
	}
	if quoted := strings.TrimPrefix(text, `"`); quoted != text && strings.HasSuffix(quoted, `"`) {
		text = strings.TrimSuffix(quoted, `"`)
	}
	return &kts46.Fault{Code: f.Code, Text: text}
}

// CreateProject creates an empty project.
func (k *Kts46) CreateProject(ctx context.Context, name string) error {
	_, err := k.call(ctx, "createProject", name)
	return err
}

// AddJob adds a job to a project. The definition is YAML.
func (k *Kts46) AddJob(ctx context.Context, project, job, definition string) error {
	_, err := k.call(ctx, "addJob", project, job, definition)
	return err
}

// RunJob queues a job unless it is queued, running or done.
func (k *Kts46) RunJob(ctx context.Context, project, job string) error {
	_, err := k.call(ctx, "runJob", project, job)
	return err
}

// Tasks lists the tasks that workers hold.
func (k *Kts46) Tasks(ctx context.Context) ([]KtsTask, error) {
	v, err := k.call(ctx, "getCurrentTasks")
	list, _ := v.([]any)
	all := make([]KtsTask, 0, len(list))
	for _, e := range list {
		s, _ := e.(kts46.Struct)
		var t KtsTask
		t.Worker, _ = s.Get("workerId").(string)
		t.Project, _ = s.Get("project").(string)
		t.Job, _ = s.Get("job").(string)
		last, _ := s.Get("lastUpdate").(kts46.DateTime)
		t.LastUpdate, _ = last.Time()
		all = append(all, t)
	}
	return all, err
}

// Restart queues a worker's task again; false: the worker holds another task by now, or none.
func (k *Kts46) Restart(ctx context.Context, worker string, lastUpdate time.Time) (bool, error) {
	v, err := k.call(ctx, "restartTask", worker, kts46.NewDateTime(lastUpdate))
	done, _ := v.(bool)
	return done, err
}

// Status lists the jobs of a project, or of all projects when project is empty.
func (k *Kts46) Status(ctx context.Context, project string) ([]KtsJob, error) {
	method, params := "getServerStatus", []any{}
	if project != "" {
		method, params = "getProjectStatus", []any{project}
	}
	v, err := k.call(ctx, method, params...)
	list, _ := v.([]any)
	all := make([]KtsJob, 0, len(list))
	for _, e := range list {
		s, _ := e.(kts46.Struct)
		var j KtsJob
		j.Project, _ = s.Get("project").(string)
		j.Name, _ = s.Get("name").(string)
		j.Done, _ = s.Get("done").(int64)
		j.Total, _ = s.Get("total").(int64)
		all = append(all, j)
	}
	return all, err
}
