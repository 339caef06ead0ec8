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
	"time"

	"treadle/codec/kts46"
	"treadle/fuzz/sim/play"
)

// kts46Network is what lies between the users and workers of kts46 and the server.
type kts46Network struct {
	peers []*kts46Peer
	onWay []*kts46Call
	owed  int // number of calls that have arrived and wait for a commit
}

// kts46Peer is a worker of either version of kts46, with the task that it believes to have.
type kts46Peer struct {
	number   int
	v2       bool
	stamp    kts46Stamp   // stamp of its task; zero: it has no task
	accepted bool         // by a worker of version 2
	stale    []kts46Stamp // stamps of its former tasks
	waiting  *kts46Call   // the call whose answer it waits for
}

// kts46Stamp is the revision of a task as it stands on the wire: lastUpdate or sig.
type kts46Stamp struct {
	text string
	v2   bool
}

// kts46Call is a call of kts46, and the answer that it must get.
type kts46Call struct {
	v2     bool
	method string
	args   []any
	peer   *kts46Peer // worker that gets the answer, unless it has given up
	want   string
	change int64 // number of the change that the call made in the model
	group  int   // group of changes with that change
}

func (call *kts46Call) String() string { return fmt.Sprintf("%s%q", call.method, call.args) }

// kts46Refused stands for every fault of version 1.
const kts46Refused = "refused"

// kts46Ask puts a call on its way.
func (s *Simulator) kts46Ask(call *kts46Call) {
	s.net.kts.onWay = append(s.net.kts.onWay, call)
	s.trace.Logf("kts46 %v", call)
}

// kts46Post makes a call, whose answer it passes on in a short form.
func (s *Simulator) kts46Post(v2 bool, method string, args []any, answer func(string)) {
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
		s.trace.Failf("cannot make a request: %v", err)
	}
	incarnation := s.serverEnds
	s.server.Kts46(port, r, func(status int, body []byte) {
		if s.serverEnds != incarnation {
			return
		}
		read := kts46Read1
		if v2 {
			read = kts46Read2
		}
		text, err := read(status, body)
		if err != nil {
			s.trace.Failf("%s%v: got %d %q, want a result: %v", method, args, status, body, err)
		}
		answer(text)
	})
}

// kts46Read1 decodes an answer of version 1.
func kts46Read1(status int, body []byte) (string, error) {
	if status != http.StatusOK {
		return "", errors.New("not 200")
	}
	v, err := kts46.ReadAnswer(bytes.NewReader(body))
	if errors.As(err, new(*kts46.Fault)) {
		return kts46Refused, nil
	}
	if t, ok := v.(kts46.Struct); ok {
		return fmt.Sprintf("%v/%v %v %v", t.Get("project"), t.Get("job"), t.Get("type"), t.Get("lastUpdate")), err
	}
	return fmt.Sprint(v), err
}

// kts46Read2 decodes an answer of version 2.
func kts46Read2(status int, body []byte) (string, error) {
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
	var t kts46TaskShown
	if json.Unmarshal(a.Result, &t) == nil && t.Job != "" {
		return fmt.Sprintf("%s/%s %s %s", t.Project, t.Job, t.Type, t.Sig), nil
	}
	return string(a.Result), nil
}

// kts46Act is something that a user, a supervisor or a worker of kts46 does.
type kts46Act int

const (
	kts46Creates kts46Act = iota // a project
	kts46Defines                 // a job
	kts46Runs
	kts46Aborts // or deletes
	kts46Asks   // about what is there
	kts46Supervises
	kts46Hurries
	kts46Works
)

var kts46Acts = play.NewTable(
	play.Of(1, kts46Creates), play.Of(3, kts46Defines), play.Of(4, kts46Runs), play.Of(1, kts46Aborts), play.Of(1, kts46Asks),
	play.Of(1, kts46Supervises), play.Of(2, kts46Hurries), play.Of(11, kts46Works),
)

// kts46Step lets a user, a worker or a supervisor do one thing.
func (s *Simulator) kts46Step() {
	act := kts46Acts.Draw(s.rng)
	project, job, v2 := fmt.Sprint("p", s.rng.IntN(2)), fmt.Sprint("j", s.rng.IntN(4)), s.rng.IntN(2) == 1
	switch {
	case len(s.net.kts.onWay) > 12:
	case act == kts46Creates:
		s.kts46Ask(&kts46Call{method: "createProject", args: []any{project}})
	case act == kts46Defines:
		batch := 1 + s.rng.IntN(3)
		yaml := fmt.Sprintf("simulationParameters:\n  duration: %d\n  stepDuration: 0.5\n  batchLength: %d\n", s.rng.IntN(4), batch)
		s.kts46Ask(&kts46Call{method: "addJob", args: []any{project, job, yaml}})
	case act == kts46Runs && v2:
		s.kts46Ask(&kts46Call{method: "addTask", args: []any{project, job}, v2: true})
	case act == kts46Runs:
		s.kts46Ask(&kts46Call{method: "runJob", args: []any{project, job}})
	case act == kts46Aborts && v2:
		s.kts46Ask(&kts46Call{method: "abortTask", args: []any{project, job}, v2: true})
	case act == kts46Aborts && s.rng.IntN(6) == 0:
		s.kts46Ask(&kts46Call{method: "deleteProject", args: []any{project}})
	case act == kts46Aborts:
		s.kts46Ask(&kts46Call{method: "deleteJob", args: []any{project, job}})
	case act == kts46Asks && v2:
		s.kts46Ask(&kts46Call{method: "getNewJobId", args: []any{project}})
	case act == kts46Asks:
		s.kts46Query(project, job)
	case act == kts46Supervises:
		s.kts46Supervise(v2)
	case act == kts46Hurries:
		s.kts46Hurry(s.net.kts.peers[s.rng.IntN(len(s.net.kts.peers))])
	default:
		s.kts46Work(s.net.kts.peers[s.rng.IntN(len(s.net.kts.peers))])
	}
}

// kts46Supervise restarts the task of a worker, by its current revision or an older one.
func (s *Simulator) kts46Supervise(v2 bool) {
	w := s.net.kts.peers[s.rng.IntN(len(s.net.kts.peers))]
	stamp := w.stamp
	if _, t, _ := s.ledger.kts.held(w.number); t != nil && s.rng.IntN(2) == 0 {
		stamp = kts46StampOf(t.revision, v2)
	}
	if stamp.text == "" {
		return
	}
	id := fmt.Sprint("w", w.number)
	if stamp.v2 {
		s.kts46Ask(&kts46Call{method: "restartTasks", args: []any{[]any{map[string]string{"id": id, "sig": stamp.text}}}, v2: true})
		return
	}
	s.kts46Ask(&kts46Call{method: "restartTask", args: []any{id, kts46.DateTime(stamp.text)}})
}

// kts46StampOf writes a revision in the form of a version.
func kts46StampOf(revision int64, v2 bool) kts46Stamp {
	at := time.UnixMilli(revision)
	if v2 {
		return kts46Stamp{kts46.Sig(at), true}
	}
	return kts46Stamp{string(kts46.NewDateTime(at)), false}
}

// kts46IDs finds out which of two last job ids each project has.
func (s *Simulator) kts46IDs(disk, now *Kts46Model) {
	for _, p := range slices.Sorted(maps.Keys(disk.projects)) {
		a, b := disk.projects[p], now.projects[p]
		if a == b {
			continue
		}
		s.kts46Post(false, "getNewJobId", []any{p}, func(answer string) {
			switch answer {
			case fmt.Sprint(a + 1):
				s.ledger.kts.projects[p] = a + 1
			case fmt.Sprint(b + 1):
				s.ledger.kts.projects[p] = b + 1
			default:
				s.trace.Failf("the next job id of %s: got %s, want %d or %d", p, answer, a+1, b+1)
			}
		})
	}
	s.commit()
}
