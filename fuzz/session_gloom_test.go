//go:build invariants

package fuzz

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"treadle/codec/gloom"
	"treadle/loop"
)

// gloomPeers are the peers of a Gloom script: a line begins with one of these letters. M and N are masters, S and Z
// slaves; what follows is sent as one frame, or behind = as bytes in hex. A line of - and a letter ends a connection;
// one of . lets a second pass.
const gloomPeers = "MNSZ"

var gloomPorts = []string{"gloom-masters", "gloom-masters", "gloom-slaves", "gloom-slaves"}

func gloomScript(text []byte) (script []step) {
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		peer, rest := strings.IndexByte(gloomPeers, line[0]), line[1:]
		departing := -1
		if line[0] == '-' && len(rest) == 1 {
			departing = strings.IndexByte(gloomPeers, rest[0])
		}
		switch {
		case line[0] == '.':
			script = append(script, step{peer: 0, do: wait(time.Second)})
		case departing >= 0:
			script = append(script, step{peer: departing, do: hangUp})
		case peer < 0:
		case len(rest) > 0 && rest[0] == '=':
			if b, err := hex.DecodeString(string(rest[1:])); err == nil {
				script = append(script, step{peer: peer, do: raw(b)})
			}
		default:
			script = append(script, step{peer: peer, do: raw(gloomFrame(rest))})
		}
	}
	return script
}

// gloomScenes makes a script of each captured scene: every join and respond is the slave's, the rest the master's.
func gloomScenes(f *testing.F) (scripts []string) {
	f.Helper()
	text, err := os.ReadFile("testdata/gloom.txt")
	if err != nil {
		f.Fatal(err)
	}
	var script strings.Builder
	for line := range strings.Lines(string(text) + "# end\n") {
		kind, payload, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		peer := "M"
		switch strings.TrimSuffix(kind, "~") {
		case "#":
			if script.Len() > 0 {
				scripts = append(scripts, script.String())
			}
			script.Reset()
			continue
		case "ok", "submitted", "job", "response", "error":
			continue
		case "join", "respond":
			peer = "S"
		}
		if strings.HasPrefix(payload, "hex:") {
			continue
		}
		script.WriteString(peer + payload + "\n")
	}
	return scripts
}

// gloomReplies takes the frames that a connection was sent apart.
func gloomReplies(t *testing.T, l connRecord) (all []gloom.Reply) {
	t.Helper()
	for rest := l.sent; len(rest) > 0; {
		payload, n, err := gloom.Next(rest, 1<<30)
		if err != nil || n == 0 {
			t.Fatalf("%q is no frame", rest)
		}
		var r gloom.Reply
		if err := gloom.ParseReply(payload, &r); err != nil {
			t.Fatalf("%q: %v", payload, err)
		}
		all, rest = append(all, r), rest[n:]
	}
	return all
}

// checkMaster: a job that was handed in ends once at most, and no other does.
func checkMaster(t *testing.T, l connRecord) {
	t.Helper()
	open := map[string]int{}
	for _, r := range gloomReplies(t, l) {
		id, more := r.ID, 1
		switch name := strings.Trim(string(r.Error), `"`); {
		case name == gloom.IDExists || name == gloom.JobFailed:
			id, more = r.Reason, -1
		case r.Error != nil:
			continue
		case r.Body != nil:
			more = -1
		}
		key := gloomKey(id)
		if open[key] += more; open[key] < 0 {
			t.Fatalf("a master was sent %q: the job %s was not its own any more", l.sent, id)
		}
	}
}

// checkSlave: between two jobs, and before the first, there is an acknowledgement, of a join or a response.
func checkSlave(t *testing.T, l connRecord) {
	t.Helper()
	busy := true // before the first join, too
	for _, r := range gloomReplies(t, l) {
		switch {
		case r.Action != nil && busy:
			t.Fatalf("a slave was sent %q: a job too many", l.sent)
		case r.Action != nil:
			busy = true
		case r.Error == nil:
			busy = false
		}
	}
}

// FuzzGloomSession: masters and slaves that send anything, come and go. Besides what every session target checks, a
// master hears of each job's end once at most, and a slave is sent no two jobs without an acknowledgement between them.
func FuzzGloomSession(f *testing.F) {
	for _, scene := range gloomScenes(f) {
		f.Add([]byte(scene))
	}
	const join, submit, respond = `S{"action":"join","type":"t"}` + "\n", `M{"action":"submit","id":1,"type":"t","body":[]}` + "\n", `S{"action":"respond","body":2}` + "\n"
	f.Add([]byte(join + submit + respond))
	f.Add([]byte(submit + strings.Replace(submit, "1", "2", 1) + join + join))
	f.Add([]byte(submit + join + "-S\n" + join + "-S\n" + join + "-S\n" + join + "-S\n" + submit))
	f.Add([]byte(submit + join + "-M\n" + `N{"action":"submit","id":1,"type":"t","body":3}` + "\n" + respond + ".\n"))
	f.Add([]byte(join + submit + strings.Replace(join, `"t"`, `7`, 1) + respond + `N{"action":"submit","id":"1","type":7,"priority":-1,"body":3}` + "\n"))
	f.Add([]byte("S=0000001c7b22616374696f6e22\n" + "S=3a226a6f696e222c2274797065223a2274227d\n" + "M=ffffffff\n" + "Z=00000000\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		script := gloomScript(text[:min(len(text), sessionBytes)])
		records := samePieceByPiece(t, loop.Options{Gloom: loop.GloomOptions{MaxFrame: 1 << 10}, MaxFrame: 1 << 10}, gloomPorts, make([][]byte, len(gloomPorts)), script, 1+len(text)%7, true)
		for peer, all := range records {
			for _, l := range all {
				if gloomPorts[peer] == "gloom-masters" {
					checkMaster(t, l)
				} else {
					checkSlave(t, l)
				}
			}
		}
	})
}
