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

// ktsNetwork is what lies between the users and workers of kts46 and the server.
type ktsNetwork struct {
	peers []*ktsPeer
	onWay []*ktsCall
	owed  int // number of calls that have arrived and wait for a commit
}

// ktsPeer is a worker of either version of kts46, with the task that it believes to have.
type ktsPeer struct {
	number   int
	v2       bool
	stamp    ktsStamp   // stamp of its task; zero: it has no task
	accepted bool       // by a worker of version 2
	stale    []ktsStamp // stamps of its former tasks
	waiting  *ktsCall   // the call whose answer it waits for
}

// ktsStamp is the revision of a task as it stands on the wire: lastUpdate or sig.
type ktsStamp struct {
	text string
	v2   bool
}

// ktsCall is a call of kts46, and the answer that it must get.
type ktsCall struct {
	v2     bool
	method string
	args   []any
	peer   *ktsPeer // worker that gets the answer, unless it has given up
	want   string
	change int64 // number of the change that the call made in the model
	group  int   // group of changes with that change
}

func (call *ktsCall) String() string { return fmt.Sprintf("%s%q", call.method, call.args) }

// ktsRefused stands for every fault of version 1.
const ktsRefused = "refused"

// ktsAsk puts a call on its way.
func (s *Simulator) ktsAsk(call *ktsCall) {
	s.net.kts.onWay = append(s.net.kts.onWay, call)
	s.trace.Logf("kts46 %v", call)
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
		s.trace.Failf("cannot make a request: %v", err)
	}
	incarnation := s.serverEnds
	s.server.Kts46(port, r, func(status int, body []byte) {
		if s.serverEnds != incarnation {
			return
		}
		read := ktsRead1
		if v2 {
			read = ktsRead2
		}
		text, err := read(status, body)
		if err != nil {
			s.trace.Failf("%s%v: got %d %q, want a result: %v", method, args, status, body, err)
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

// ktsAct is something that a user, a supervisor or a worker of kts46 does.
type ktsAct int

const (
	ktsCreates ktsAct = iota // a project
	ktsDefines               // a job
	ktsRuns
	ktsAborts // or deletes
	ktsAsks   // about what is there
	ktsSupervises
	ktsHurries
	ktsWorks
)

var ktsActs = play.NewTable(
	play.Of(1, ktsCreates), play.Of(3, ktsDefines), play.Of(4, ktsRuns), play.Of(1, ktsAborts), play.Of(1, ktsAsks),
	play.Of(1, ktsSupervises), play.Of(2, ktsHurries), play.Of(11, ktsWorks),
)

// ktsStep lets a user, a worker or a supervisor do one thing.
func (s *Simulator) ktsStep() {
	act := ktsActs.Draw(s.rng)
	project, job, v2 := fmt.Sprint("p", s.rng.IntN(2)), fmt.Sprint("j", s.rng.IntN(4)), s.rng.IntN(2) == 1
	switch {
	case len(s.net.kts.onWay) > 12:
	case act == ktsCreates:
		s.ktsAsk(&ktsCall{method: "createProject", args: []any{project}})
	case act == ktsDefines:
		batch := 1 + s.rng.IntN(3)
		yaml := fmt.Sprintf("simulationParameters:\n  duration: %d\n  stepDuration: 0.5\n  batchLength: %d\n", s.rng.IntN(4), batch)
		s.ktsAsk(&ktsCall{method: "addJob", args: []any{project, job, yaml}})
	case act == ktsRuns && v2:
		s.ktsAsk(&ktsCall{method: "addTask", args: []any{project, job}, v2: true})
	case act == ktsRuns:
		s.ktsAsk(&ktsCall{method: "runJob", args: []any{project, job}})
	case act == ktsAborts && v2:
		s.ktsAsk(&ktsCall{method: "abortTask", args: []any{project, job}, v2: true})
	case act == ktsAborts && s.rng.IntN(6) == 0:
		s.ktsAsk(&ktsCall{method: "deleteProject", args: []any{project}})
	case act == ktsAborts:
		s.ktsAsk(&ktsCall{method: "deleteJob", args: []any{project, job}})
	case act == ktsAsks && v2:
		s.ktsAsk(&ktsCall{method: "getNewJobId", args: []any{project}})
	case act == ktsAsks:
		s.ktsQuery(project, job)
	case act == ktsSupervises:
		s.ktsSupervise(v2)
	case act == ktsHurries:
		s.ktsHurry(s.net.kts.peers[s.rng.IntN(len(s.net.kts.peers))])
	default:
		s.ktsWork(s.net.kts.peers[s.rng.IntN(len(s.net.kts.peers))])
	}
}

// ktsSupervise restarts the task of a worker, by its current revision or an older one.
func (s *Simulator) ktsSupervise(v2 bool) {
	w := s.net.kts.peers[s.rng.IntN(len(s.net.kts.peers))]
	stamp := w.stamp
	if _, t, _ := s.ledger.kts.held(w.number); t != nil && s.rng.IntN(2) == 0 {
		stamp = ktsStampOf(t.revision, v2)
	}
	if stamp.text == "" {
		return
	}
	id := fmt.Sprint("w", w.number)
	if stamp.v2 {
		s.ktsAsk(&ktsCall{method: "restartTasks", args: []any{[]any{map[string]string{"id": id, "sig": stamp.text}}}, v2: true})
		return
	}
	s.ktsAsk(&ktsCall{method: "restartTask", args: []any{id, kts46.DateTime(stamp.text)}})
}

// ktsStampOf writes a revision in the form of a version.
func ktsStampOf(revision int64, v2 bool) ktsStamp {
	at := time.UnixMilli(revision)
	if v2 {
		return ktsStamp{kts46.Sig(at), true}
	}
	return ktsStamp{string(kts46.NewDateTime(at)), false}
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
				s.trace.Failf("the next job id of %s: got %s, want %d or %d", p, answer, a+1, b+1)
			}
		})
	}
	s.commit()
}
