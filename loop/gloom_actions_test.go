package loop

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
)

// The table role x action of cmd/treadle/docs/gloom.md. A state is how a peer got where it is. An action in a
// state needs fields, which are checked in this order, then it sends replies and leaves a job behind: the
// one that a witness, a new slave of the type "t", is given.

// gloomState is a peer after the events before its request.
type gloomState struct {
	name   string
	before []act
	master bool
	waits  string // the job that the witness gets when the request changes nothing
	closed string // and when it costs the connection
}

// hears is one line of a scene and the replies to it.
func hears(line string, replies ...string) act {
	peer, in, _ := strings.Cut(line, " > ")
	if who, how, ok := strings.Cut(strings.TrimPrefix(line, "-- "), " "); ok && strings.HasPrefix(line, "--") {
		peer, in = who, how
	}
	return act{line: line, peer: peer, in: in, replies: replies}
}

// pushed returns the frame that brings a slave a job.
func pushed(id, body string) string {
	return `{"action":"job","id":` + id + `,"type":"t","body":` + body + `}`
}

var job1, job2 = pushed("1", "0"), pushed("2", "0")

// queues submits a job that no slave takes yet.
func queues(peer, id string) act {
	return hears(peer+` > {"action":"submit","id":`+id+`,"type":"t","body":0}`, peer+` < {"ok":true,"id":`+id+`}`)
}

// works joins a slave and submits job 1, which it is given.
func works(slave, master string) []act {
	return []act{
		hears(slave+` > {"action":"join","type":"t"}`, slave+` < {"ok":true}`),
		hears(master+` > {"action":"submit","id":1,"type":"t","body":0}`, slave+" < "+job1, master+` < {"ok":true,"id":1}`),
	}
}

var gloomStates = []gloomState{
	{name: "fresh master", master: true},
	{name: "master of a queued job", master: true, before: []act{queues("M", "1")}, waits: job1},
	{name: "master of a running job", master: true, before: works("Z", "M")},
	{name: "fresh slave", before: []act{queues("N", "1")}, waits: job1, closed: job1},
	{name: "idle slave", before: []act{queues("N", "1"), hears(`S > {"action":"join","type":"u"}`, `S < {"ok":true}`)}, waits: job1, closed: job1},
	{name: "busy slave", before: append(works("S", "N"), queues("N", "2")), waits: job2, closed: job1},
	{name: "busy slave whose master has left", before: append(works("S", "N"), hears("-- N closes"))},
}

// gloomFields are the members of a request, in JSON; "" for a missing one.
type gloomFields struct{ action, id, typ, priority, body string }

// gloomAction is a row of the table for one or all states of a role.
type gloomAction struct {
	needs []string // kind, reason, field
	says  func(st *gloomState, f *gloomFields) (replies []string, waits string)
}

func gloomError(kind, reason string) string {
	return fmt.Sprintf(`{"error":"%s","reason":%s}`, kind, reason)
}

// refused is the answer of an action that changes nothing.
func refused(kind, reason string) gloomAction {
	return gloomAction{says: func(st *gloomState, f *gloomFields) ([]string, string) {
		return []string{gloomError(kind, strings.ReplaceAll(reason, "ACTION", f.action))}, st.waits
	}}
}

var gloomMasterActions = map[string]gloomAction{
	"": refused("missing_field", `"type"`),
	`"submit"`: {
		needs: []string{"missing_field/id/id", "missing_field/type/type", "invalid_type/priority/priority", "missing_field/body/body"},
		says: func(st *gloomState, f *gloomFields) ([]string, string) {
			ack := `{"ok":true,"id":` + f.id + `}`
			switch {
			case len(st.before) > 0 && f.id == "1":
				return []string{ack, gloomError("id_exists", "1")}, st.waits
			case st.waits != "" && f.priority == "":
				return []string{ack}, st.waits
			}
			return []string{ack}, pushed(f.id, f.body)
		},
	},
	`"join"`:    refused("invalid_action", `"not_a_slave"`),
	`"respond"`: refused("invalid_action", `"not_a_slave"`),
	"other":     refused("unknown_action", "ACTION"),
}

var gloomSlaveActions = map[string]gloomAction{
	"":         refused("missing_field", `"type"`),
	`"submit"`: refused("invalid_action", `"not_a_master"`),
	"other":    refused("unknown_type", "ACTION"),
	`"join"`: {
		needs: []string{"missing_field/job_type/type"},
		says: func(st *gloomState, _ *gloomFields) ([]string, string) {
			if strings.HasPrefix(st.name, "busy") || st.waits == "" {
				return []string{ok}, st.waits
			}
			return []string{ok, st.waits}, ""
		},
	},
	`"respond"`: refused("invalid_state", `"not_processing"`),
}

// gloomBusyRespond is the row of slaves that have a job.
var gloomBusyRespond = gloomAction{
	needs: []string{"missing_field/body/body"},
	says: func(st *gloomState, f *gloomFields) ([]string, string) {
		if st.waits == "" { // its master has left
			return []string{ok}, ""
		}
		return []string{ok, job2, "N < {\"id\":1,\"body\":" + f.body + "}"}, ""
	},
}

// answerTo looks an answer up in the table.
func (st *gloomState) answerTo(f *gloomFields) (replies []string, waits string) {
	rows := gloomSlaveActions
	if st.master {
		rows = gloomMasterActions
	}
	row, known := rows[strings.ReplaceAll(f.action, `\u006a`, "j")]
	if !known {
		row = rows["other"]
	}
	if f.action == `"respond"` && strings.HasPrefix(st.name, "busy") {
		row = gloomBusyRespond
	}
	for _, need := range row.needs {
		p := strings.Split(need, "/")
		value := map[string]string{"id": f.id, "type": f.typ, "body": f.body, "priority": f.priority}[p[2]]
		if (p[2] == "priority") != (value == "") && (p[2] != "priority" || value != "5") {
			return []string{gloomError(p[0], `"`+p[1]+`"`)}, st.waits
		}
	}
	return row.says(st, f)
}

// json writes the members in any order, among others, and each a second time behind its first.
func (f *gloomFields) json(rng *rand.Rand) string {
	var first, again []string
	for key, value := range map[string]string{"action": f.action, "id": f.id, "type": f.typ, "priority": f.priority, "body": f.body} {
		if value != "" {
			first = append(first, `"`+key+`":`+value)
			again = append(again, `"`+key+`":"again"`)
		}
	}
	first = append(first, `"idx":[{"action":"x"}]`, `"Action":"submit"`)
	for _, s := range [][]string{first, again} {
		rng.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	}
	return "{" + strings.Join(append(first, again...), ",") + "}"
}

// scene is a state, a request, its answer, and the witnesses of the state after it.
func (st *gloomState) scene(request string, replies []string, waits string, closes bool) *gloomScene {
	peer := "S"
	if st.master {
		peer = "M"
	}
	ask := act{line: peer + " > " + request, peer: peer, in: request}
	for _, r := range replies {
		if !strings.HasPrefix(r, "N < ") {
			r = peer + " < " + r
		}
		// Peers speak in the order in which they came.
		if strings.HasPrefix(r, "N < ") && st.before[0].peer == "N" {
			ask.replies = append([]string{r}, ask.replies...)
			continue
		}
		ask.replies = append(ask.replies, r)
	}
	acts := append(append([]act(nil), st.before...), ask)
	if closes {
		acts[len(acts)-1].replies = append(ask.replies, peer+" < (closed)")
	} else {
		acts = append(acts, hears(peer+" > {}", peer+` < {"error":"missing_field","reason":"type"}`))
	}
	witness := hears(`Y > {"action":"join","type":"t"}`, `Y < {"ok":true}`)
	if waits != "" {
		witness.replies = append(witness.replies, "Y < "+waits)
	}
	return &gloomScene{title: st.name + ": " + request, acts: append(acts, witness)}
}

// gloomCells returns every state with every action, with every field present and missing.
func gloomCells(each func(*gloomScene)) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range gloomStates {
		st := &gloomStates[i]
		for _, action := range []string{"", `"submit"`, `"join"`, `"\u006aoin"`, `"respond"`, `"grab"`, `"job"`, `"Join"`, `""`, `null`, `7`, `true`, `["submit"]`, `{"a":1}`} {
			for _, id := range []string{"", "1", "2"} {
				for _, typ := range []string{"", `"t"`} {
					for _, priority := range []string{"", "5", "1.5", "1.0", "1e1", `"1"`, "null", "true", "[]"} {
						for _, body := range []string{"", "null", `{"b":1}`} {
							f := &gloomFields{action, id, typ, priority, body}
							replies, waits := st.answerTo(f)
							each(st.scene(f.json(rng), replies, waits, false))
						}
					}
				}
			}
		}
	}
}

// gloomBadFrames close the connection, in every state, with this answer or none.
var gloomBadFrames = []struct{ request, answer string }{
	{"foo", gloomError("invalid_json", `"foo"`)},
	{`{"action":"submit",}`, gloomError("invalid_json", `"{\"action\":\"submit\",}"`)},
	{"{}{}", gloomError("invalid_json", `"{}{}"`)},
	{"RAW 00 00 00 00", gloomError("invalid_json", `""`)},
	{"RAW 00 00 00 01 ff", gloomError("invalid_json", `"\ufffd"`)},
	{"RAW 04 00 00 01", gloomError("size_error", `"length too large"`)},
	{"[]", ""}, {"5", ""}, {`"submit"`, ""}, {"null", ""}, {"false", ""}, {"<nest 10000>", ""},
}

// playCell plays a scene in memory.
func playCell(t *testing.T, s *gloomScene) {
	t.Helper()
	got := playGloom(t, s, 1, whole)
	for i, a := range s.acts {
		if have := got.acts[i].replies; !slices.Equal(have, a.replies) {
			t.Errorf("%s\nafter %s\nwant %s\ngot  %s", s.title, a.line, a.replies, have)
		}
	}
}

// TestEveryGloomAction plays every cell in memory: the answer is the documented one, byte for byte, the
// connection stays, and nothing but the request's effect has happened.
func TestEveryGloomAction(t *testing.T) {
	t.Parallel()
	n := 0
	gloomCells(func(s *gloomScene) {
		if n++; n%7 == 0 || !testing.Short() {
			playCell(t, s)
		}
	})
	if n != 7*14*3*2*9*3 {
		t.Errorf("the table has %d cells", n)
	}
	for i := range gloomStates {
		st := &gloomStates[i]
		for _, bad := range gloomBadFrames {
			var replies []string
			if bad.answer != "" {
				replies = []string{bad.answer}
			}
			playCell(t, st.scene(bad.request, replies, st.closed, true))
		}
	}
}

// TestEveryGloomActionEngine plays a part of the cells through real sockets.
func TestEveryGloomActionEngine(t *testing.T) {
	t.Parallel()
	n := 0
	gloomCells(func(s *gloomScene) {
		if n++; n%211 == 0 {
			playGloomOnSockets(t, s, 1+n%2, cutter(uint64(n)))
		}
	})
}

// TestHalfCloseBehindAGloomAction: a peer that closes its writing side behind a request still reads the
// answer, and then the end. Nothing of it stays.
func TestHalfCloseBehindAGloomAction(t *testing.T) {
	t.Parallel()
	r := startGloom(t, Options{Loops: 2})
	n := 0
	gloomCells(func(s *gloomScene) {
		if n++; n%53 != 0 || !strings.HasPrefix(s.title, "fresh master") {
			return
		}
		ask := s.acts[0]
		w := r.dialGloom(true)
		w.send(gloomBytes(t, ask.in))
		w.Conn.(*net.TCPConn).CloseWrite()
		for _, want := range append(ask.replies, "M < (closed)") {
			if got := w.nextGloom("M", ask.in); got != want {
				t.Errorf("%s\nwant %s\ngot  %s", ask.line, want, got)
			}
		}
		if jobs := r.sched.Stats().Jobs; jobs != 0 {
			t.Errorf("%s: %d jobs stay behind", ask.line, jobs)
		}
	})
}

// TestJoinBesideAJob: a slave that joins another type while its job is on its way from another loop has
// one job at a time all the same.
func TestJoinBesideAJob(t *testing.T) {
	t.Parallel()
	w := newMemServer(t, Options{Loops: 2})
	master, slave := w.openGloom(0, true), w.slave(1, `"f"`)
	master.receive(gloomFrame(`{"action":"submit","id":"1","type":"f","body":1}`)) // its mail is not read yet
	slave.receive(gloomFrame(`{"action":"join","type":"f"}`))
	master.receive(gloomFrame(`{"action":"submit","id":"2","type":"f","body":2}`))
	w.settle()
	slave.hears("after both are submitted", ok, `{"action":"job","id":"1","type":"f","body":1}`)
	slave.say(`{"action":"respond","body":"one"}`)
	slave.hears("after the first response", ok, `{"action":"job","id":"2","type":"f","body":2}`)
	master.hears("by then", `{"ok":true,"id":"1"}`, `{"ok":true,"id":"2"}`, `{"id":"1","body":"one"}`)
}
