//go:build invariants

package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"treadle/codec/kts46"
)

// ktsPeer is a worker of either version of kts46: what it believes to have.
type ktsPeer struct {
	number   int
	v2       bool
	stamp    ktsStamp   // of its task; zero: it has none
	accepted bool       // with version 2
	stale    []ktsStamp // of former ones
	waiting  *ktsFlight // for the answer to this
}

// ktsStamp is the revision of a task as it stands on the wire: lastUpdate or sig.
type ktsStamp struct {
	text string
	v2   bool
}

// ktsFlight is a call on its way to the server, and the answer that it must get.
type ktsFlight struct {
	v2     bool
	method string
	args   []any
	peer   *ktsPeer // who hears the answer, unless it has given up
	want   string
	change int64 // of the model, that it made
	group  int   // of changes that it is in
}

func (f *ktsFlight) String() string { return fmt.Sprintf("%s%q", f.method, f.args) }

// ktsRefused stands for every fault of version 1.
const ktsRefused = "refused"

// ktsAsk puts a call on its way.
func (s *Simulator) ktsAsk(f *ktsFlight) {
	s.net.ktsFlights = append(s.net.ktsFlights, f)
	s.trace.Say("kts46 %v", f)
}

// ktsPost makes a call, whose answer it passes on in a short form.
func (s *Simulator) ktsPost(v2 bool, method string, args []any, answer func(string)) {
	port, path := "kts46", "/RPC2"
	var body []byte
	if v2 {
		port, path = "kts46-json", "/jsonrpc"
		body, _ = json.Marshal(map[string]any{"method": method, "params": args, "id": 1}) // strings, and lists of them
	} else {
		body = kts46.AppendCall(nil, method, args...)
	}
	r, err := http.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	if err != nil {
		s.trace.Fail("%v", err)
	}
	crash := s.crashes
	s.server.Kts46(port, r, func(status int, body []byte) {
		if s.crashes != crash {
			return
		}
		read := ktsRead1
		if v2 {
			read = ktsRead2
		}
		text, err := read(status, body)
		if err != nil {
			s.trace.Fail("%s%v is answered %d %q: %v", method, args, status, body, err)
		}
		answer(text)
	})
}

// ktsRead1 decodes an answer of version 1.
func ktsRead1(status int, body []byte) (string, error) {
	if status != http.StatusOK {
		return "", errors.New("not 200")
	}
	v, err := kts46.ReadAnswer(bytes.NewReader(body))
	if errors.As(err, new(*kts46.Fault)) {
		return ktsRefused, nil
	}
	if t, ok := v.(kts46.Struct); ok {
		return fmt.Sprintf("%v/%v %v %v", t.Get("project"), t.Get("job"), t.Get("type"), t.Get("lastUpdate")), err
	}
	return fmt.Sprint(v), err
}

// ktsRead2 decodes an answer of version 2.
func ktsRead2(status int, body []byte) (string, error) {
	var a struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal(body, &a); err != nil {
		return "", err
	}
	if (status == http.StatusOK) != (string(a.Error) == "null") {
		return "", errors.New("that status with that body")
	}
	if status != http.StatusOK {
		return string(a.Error), nil
	}
	var t ktsTaskShown
	if json.Unmarshal(a.Result, &t) == nil && t.Job != "" {
		return fmt.Sprintf("%s/%s %s %s", t.Project, t.Job, t.Type, t.Sig), nil
	}
	return string(a.Result), nil
}

// ktsTaskShown is a task as version 2 shows it.
type ktsTaskShown struct {
	Project, Job, Type, Sig string
	StartState              *int64
}

// ktsLook asks the server for all projects, jobs and tasks.
func (s *Simulator) ktsLook() *ktsShown {
	v := &ktsShown{}
	r, err := http.NewRequest(http.MethodGet, "/", http.NoBody)
	if err != nil {
		s.trace.Fail("%v", err)
	}
	var status struct {
		WaitingQueue                    []ktsTaskShown
		WaitingActivation, RunningTasks map[string]ktsTaskShown
	}
	s.server.Kts46("kts46-json", r, func(_ int, body []byte) {
		if err := json.Unmarshal(body, &status); err != nil {
			s.trace.Fail("the status is %q: %v", body, err)
		}
	})
	var text strings.Builder
	for _, t := range status.WaitingQueue {
		fmt.Fprintf(&text, "%s/%s %s waits\n", t.Project, t.Job, t.Type)
	}
	for w := range v.revisions {
		id := fmt.Sprint("w", w)
		t, accepted := status.RunningTasks[id]
		if !accepted {
			t = status.WaitingActivation[id]
		}
		if t.Job == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, t.Sig)
		if err != nil {
			s.trace.Fail("%s has the signature %q: %v", id, t.Sig, err)
		}
		v.revisions[w] = at.UnixMilli()
		start := int64(-1)
		if t.StartState != nil {
			start = *t.StartState
		}
		fmt.Fprintf(&text, "%s %s/%s %s %d, accepted: %v\n", id, t.Project, t.Job, t.Type, start, accepted)
	}
	v.tasks = text.String()
	v.list = s.ktsListed()
	return v
}

// ktsListed reads getServerStatus.
func (s *Simulator) ktsListed() string {
	r, err := http.NewRequest(http.MethodPost, "/", bytes.NewReader(kts46.AppendCall(nil, "getServerStatus")))
	if err != nil {
		s.trace.Fail("%v", err)
	}
	var text strings.Builder
	s.server.Kts46("kts46", r, func(_ int, body []byte) {
		v, err := kts46.ReadAnswer(bytes.NewReader(body))
		all, ok := v.([]any)
		if err != nil || !ok {
			s.trace.Fail("getServerStatus is answered %q: %v", body, err)
		}
		project := ""
		for _, e := range all {
			j, _ := e.(kts46.Struct)
			if p := fmt.Sprint(j.Get("project")); p != project {
				if project != "" {
					text.WriteString("\n")
				}
				project = p
				fmt.Fprintf(&text, "%s:", p)
			}
			if j.Get("name") != nil {
				fmt.Fprintf(&text, " %v %v/%v", j.Get("name"), j.Get("done"), j.Get("total"))
			}
		}
		if project != "" {
			text.WriteString("\n")
		}
	})
	return text.String()
}

// ktsStep lets a user, a worker or a supervisor do one thing.
func (s *Simulator) ktsStep() {
	n := s.rng.IntN(24)
	project, job, v2 := fmt.Sprint("p", s.rng.IntN(2)), fmt.Sprint("j", s.rng.IntN(4)), s.rng.IntN(2) == 1
	switch {
	case len(s.net.ktsFlights) > 12:
	case n == 0:
		s.ktsAsk(&ktsFlight{method: "createProject", args: []any{project}})
	case n < 4:
		batch := 1 + s.rng.IntN(3)
		yaml := fmt.Sprintf("simulationParameters:\n  duration: %d\n  stepDuration: 0.5\n  batchLength: %d\n", s.rng.IntN(4), batch)
		s.ktsAsk(&ktsFlight{method: "addJob", args: []any{project, job, yaml}})
	case n < 8 && v2:
		s.ktsAsk(&ktsFlight{method: "addTask", args: []any{project, job}, v2: true})
	case n < 8:
		s.ktsAsk(&ktsFlight{method: "runJob", args: []any{project, job}})
	case n == 8 && v2:
		s.ktsAsk(&ktsFlight{method: "abortTask", args: []any{project, job}, v2: true})
	case n == 8 && s.rng.IntN(6) == 0:
		s.ktsAsk(&ktsFlight{method: "deleteProject", args: []any{project}})
	case n == 8:
		s.ktsAsk(&ktsFlight{method: "deleteJob", args: []any{project, job}})
	case n == 9 && v2:
		s.ktsAsk(&ktsFlight{method: "getNewJobId", args: []any{project}})
	case n == 9:
		s.ktsQuery(project, job)
	case n == 10:
		s.ktsSupervise(v2)
	case n < 13:
		s.ktsHurry(s.net.ktsPeers[s.rng.IntN(len(s.net.ktsPeers))])
	default:
		s.ktsWork(s.net.ktsPeers[s.rng.IntN(len(s.net.ktsPeers))])
	}
}

// ktsHurry lets a worker do several things within a moment. Between two tasks it may change to the other version.
func (s *Simulator) ktsHurry(w *ktsPeer) {
	for range 3 + s.rng.IntN(6) {
		before := len(s.net.ktsFlights)
		if w.stamp.text == "" && s.rng.IntN(3) == 0 {
			w.v2 = !w.v2
		}
		s.ktsWork(w)
		if n := len(s.net.ktsFlights); n > before {
			s.settle()
			s.ktsNow(s.net.ktsFlights[n-1])
		}
	}
}

// ktsSupervise restarts the task of a worker, by its current revision or an older one.
func (s *Simulator) ktsSupervise(v2 bool) {
	w := s.net.ktsPeers[s.rng.IntN(len(s.net.ktsPeers))]
	stamp := w.stamp
	if _, t, _ := s.ledger.kts.held(w.number); t != nil && s.rng.IntN(2) == 0 {
		stamp = ktsStampOf(t.revision, v2)
	}
	if stamp.text == "" {
		return
	}
	id := fmt.Sprint("w", w.number)
	if stamp.v2 {
		s.ktsAsk(&ktsFlight{method: "restartTasks", args: []any{[]any{map[string]string{"id": id, "sig": stamp.text}}}, v2: true})
		return
	}
	s.ktsAsk(&ktsFlight{method: "restartTask", args: []any{id, kts46.DateTime(stamp.text)}})
}

// ktsStampOf writes a revision in the form of a version.
func ktsStampOf(revision int64, v2 bool) ktsStamp {
	at := time.UnixMilli(revision)
	if v2 {
		return ktsStamp{kts46.Sig(at), true}
	}
	return ktsStamp{string(kts46.NewDateTime(at)), false}
}

// ktsWork lets a worker do one thing: it dies and comes back, reports late or goes on.
func (s *Simulator) ktsWork(w *ktsPeer) {
	id := fmt.Sprint("w", w.number)
	n := s.rng.IntN(24)
	switch {
	case n < 2: // it has died; what comes next may be of the other version
		s.trace.Say("%s dies", id)
		w.drop()
		w.waiting, w.v2 = nil, s.rng.IntN(2) == 0
		return
	case n < 6 && len(w.stale) > 0:
		s.ktsReport(w, w.stale[s.rng.IntN(len(w.stale))], nil)
		return
	case w.waiting != nil:
		return
	case w.stamp.text != "" && (n > 7 || w.v2):
		s.ktsReport(w, w.stamp, w)
		return
	}
	f := &ktsFlight{method: "getJob", args: []any{id}, v2: w.v2, peer: w}
	if w.v2 {
		kinds := []string{"simulation", "basicStatistics", "idleTimes", "throughput"}
		f.method, f.args = "getTask", append(f.args, kinds[:1+s.rng.IntN(4)])
	}
	w.waiting = f
	s.ktsAsk(f)
}

// drop notes that the worker has no task any more.
func (w *ktsPeer) drop() {
	if w.stamp.text != "" {
		w.stale = append(w.stale, w.stamp)
		w.stale = w.stale[max(0, len(w.stale)-8):]
	}
	w.stamp, w.accepted = ktsStamp{}, false
}

// ktsReport sends a report of the task of a stamp; hears, unless nil, waits for the answer.
func (s *Simulator) ktsReport(w *ktsPeer, stamp ktsStamp, hears *ktsPeer) {
	id := fmt.Sprint("w", w.number)
	n := s.rng.IntN(4)
	f := &ktsFlight{v2: stamp.v2, peer: hears}
	if stamp.v2 {
		f.method, f.args = []string{"taskInProgress", "taskFinished", "taskFinished", "taskInProgress"}[n], []any{id, stamp.text}
		if !w.accepted {
			f.method = []string{"acceptTask", "acceptTask", "acceptTask", "rejectTask"}[n]
		}
	} else {
		state := []string{"working", "finished", "finished", "abort"}[n]
		f.method, f.args = "reportStatus", []any{id, state, kts46.DateTime(stamp.text)}
	}
	if hears != nil {
		w.waiting = f
	}
	s.ktsAsk(f)
}

// ktsRead lets a worker read an answer.
func (s *Simulator) ktsRead(f *ktsFlight, answer string) {
	w := f.peer
	if w == nil || w.waiting != f {
		return // nobody, or one that has died
	}
	w.waiting = nil
	parts := strings.Fields(answer)
	switch {
	case f.method == "getJob" || f.method == "getTask":
		w.drop()
		if len(parts) == 3 {
			w.stamp = ktsStamp{parts[2], f.v2}
		}
	case strings.HasPrefix(answer, `{"sig":`):
		w.drop()
		w.stamp, w.accepted = ktsStamp{strings.Trim(answer[len(`{"sig":`):], `"}`), true}, true
	case f.method == "reportStatus" && f.args[1] == "working" && answer != ktsRefused:
		w.drop()
		w.stamp = ktsStamp{answer, false}
	default: // it is done or given back, or not this worker's any more
		w.drop()
	}
}

// ktsIDs finds out which of two last job ids each project has.
func (s *Simulator) ktsIDs(disk, now *Kts46Model) {
	for _, p := range slices.Sorted(maps.Keys(disk.projects)) {
		a, b := disk.projects[p], now.projects[p]
		if a == b {
			continue
		}
		s.ktsPost(false, "getNewJobId", []any{p}, func(answer string) {
			switch answer {
			case fmt.Sprint(a + 1):
				s.ledger.kts.projects[p] = a + 1
			case fmt.Sprint(b + 1):
				s.ledger.kts.projects[p] = b + 1
			default:
				s.trace.Fail("the next job id of %s is %s, the last was %d or %d", p, answer, a, b)
			}
		})
	}
	s.commit()
}
