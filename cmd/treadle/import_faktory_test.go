package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"treadle/loop/client"
)

// faktorySays is a client of Faktory's protocol whose replies are compared.
type faktorySays struct {
	*testing.T
	*client.Faktory
}

// dialFaktoryAs connects to a server with a password, or without.
func dialFaktoryAs(t *testing.T, address, password string) faktorySays {
	t.Helper()
	f := worked(client.DialFaktory(patient(t), address, client.FaktorySource, password))(t)
	t.Cleanup(f.Close)
	return faktorySays{t, f}
}

// asks sends commands and checks how each reply begins.
func (f faktorySays) asks(pairs ...string) {
	f.Helper()
	for ; len(pairs) > 1; pairs = pairs[2:] {
		word, text, _ := strings.Cut(pairs[0], " ")
		reply, err := f.Ask(patient(f.T), word, []byte(text))
		if got := string(reply); err != nil || !strings.HasPrefix(got, pairs[1]) {
			f.Fatalf("%s: %.300q, %v; want %s", pairs[0], got, err, pairs[1])
		}
	}
}

// importsFaktory calls treadle import faktory and checks its output and exit code.
func importsFaktory(t *testing.T, want string, code int, args ...string) {
	t.Helper()
	if !slices.Contains(args, "--state") {
		args = append(args, "--state", filepath.Join(t.TempDir(), "state"))
	}
	out, errs, got := treadle(t, "", append([]string{"import", "faktory"}, args...)...)
	if !like(out+errs, want) || got != code {
		t.Errorf("%q: exit code %d\n%s%s\nwant exit code %d\n%s", args, got, out, errs, code, want)
	}
}

// setsOf returns the counts of the scheduled jobs, those that wait for a retry, the dead and the reserved ones.
func (f faktorySays) setsOf() string {
	f.Helper()
	s := worked(f.State(patient(f.T)))(f.T)
	return fmt.Sprint(s.Sets["scheduled"], s.Sets["retries"], s.Sets["dead"], s.Sets["working"])
}

// TestImportFaktory moves the jobs of one server to another by Faktory's protocol: a dry run changes nothing, a worker
// or a paused queue stops the move, and each job keeps its time, its failure and its set.
func TestImportFaktory(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	from, to := startFaktory(t), startFaktory(t, "--faktory-password-file", password)
	old := dialFaktoryAs(t, from, "")
	for i := range 1200 {
		old.asks(fmt.Sprintf(`PUSH {"jid":"ready-%04d","jobtype":"T","args":[%d],"custom":{"z":1,"a":2}}`, i, i), "OK")
	}
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	old.asks(
		`PUSH {"jid":"timed-01","jobtype":"T","args":[],"at":"`+at+`"}`, "OK",
		`PUSH {"jid":"fails-01","jobtype":"T","args":[],"queue":"f"}`, "OK",
		`FETCH f`, `{"retry":25`, `FAIL {"jid":"fails-01","errtype":"E","message":"first"}`, "OK",
		`PUSH {"jid":"dead-001","jobtype":"T","args":[],"queue":"f","retry":-1}`, "OK",
		`FETCH f`, `{"retry":-1`, `FAIL {"jid":"dead-001","errtype":"E","message":"last"}`, "OK",
		`PUSH {"jid":"killed-1","jobtype":"K","args":[],"at":"`+at+`"}`, "OK",
		`MUTATE {"cmd":"kill","target":"scheduled","filter":{"jobtype":"K"}}`, "OK",
	)
	table := "JOBS  WHERE\n1200  queue default\n   0  queue f\n   1  scheduled\n   1  retries\n   2  dead\n   0  working\n"
	known := "treadle: the server at FROM is a Treadle: treadle journal export keeps more of its jobs\n"
	importsFaktory(t, table+known+"treadle: nothing has been changed: call it with --move to move the jobs\n", 0, from)
	importsFaktory(t, `{"moved":0,"queues":{"default":1200,"f":0},"sets":{"dead":2,"retries":1,"scheduled":1,"working":0},"workers":0}`+"\n*", 0, from, "--json")
	importsFaktory(t, "*the password is wrong*", 1, from, "--to", to, "--move")
	move := []string{from, "--to", to, "--to-password-file", password, "--move"}

	old.asks("FETCH default", `{"retry":25`)
	importsFaktory(t, "*workers of the Faktory are connected, or jobs are reserved*", 1, move...)
	old.asks(`ACK {"jid":"ready-0000"}`, "OK", "QUEUE PAUSE default", "OK")
	importsFaktory(t, "*the queue default has jobs and gives none: resume it if it is paused; call the command again\n", 1, move...)
	if got := old.setsOf(); got != "1 1 2 0" {
		t.Fatalf("a move that cannot begin has changed the sets to %s", got)
	}
	old.asks("QUEUE RESUME *", "OK")

	importsFaktory(t, strings.Replace(table, "1200", "1199", 1)+"1203  moved\n"+known, 0, move...)
	if s := worked(old.State(patient(t)))(t); old.setsOf() != "0 0 0 0" || s.Queues["default"]+s.Queues["f"] != 0 {
		t.Errorf("jobs stayed: %+v", s)
	}
	here := dialFaktoryAs(t, to, "secret")
	// A Treadle shows a requeued job without the time of its retry: that is ready here.
	if s := worked(here.State(patient(t)))(t); here.setsOf() != "1 0 2 0" || s.Queues["default"] != 1199 || s.Queues["f"] != 1 {
		t.Errorf("moved: %+v", s)
	}
	here.asks(
		"FETCH default", `{"retry":25,"custom":{"z":1,"a":2},"jid":"ready-0001"`,
		"FETCH f", `{"retry":25,"failure":{"failed_at":"`,
		`MUTATE {"cmd":"requeue","target":"dead","filter":{"regexp":"*\"message\":\"last\"*"}}`, "OK",
		"FETCH f", `{"retry":-1,"failure":{"failed_at":"`,
	)
}

// TestImportFaktoryAgain: a job that this server refuses ends the move and stays at the other server. The jobs of a set
// whose move was broken off are in the queues; --as has them moved into the set.
func TestImportFaktoryAgain(t *testing.T) {
	from, to := startFaktory(t), startFaktory(t)
	old, here := dialFaktoryAs(t, from, ""), dialFaktoryAs(t, to, "")
	const unique = `PUSH {"jid":"%s","jobtype":"T","args":[],"custom":{"unique_for":600}}`
	here.asks(fmt.Sprintf(unique, "unique-1"), "OK")
	old.asks(fmt.Sprintf(unique, "unique-2"), "OK", `PUSH {"jid":"other-01","jobtype":"O","args":[]}`, "OK")
	importsFaktory(t, "*1  moved\n*the job unique-2 is refused: NOTUNIQUE*this server refuses 1 jobs*", 1, from, "--to", to, "--move")
	if got := old.setsOf(); got != "0 0 0 1" {
		t.Errorf("the sets are %s", got)
	}
	old.asks(`FAIL {"jid":"unique-2"}`, "OK", "FLUSH", "OK", `PUSH {"jid":"dead-001","jobtype":"T","args":[]}`, "OK", `PUSH {"jid":"dead-002","jobtype":"T","args":[]}`, "OK")
	importsFaktory(t, "*2  moved\n*", 0, from, "--to", to, "--as", "dead", "--move")
	if got := here.setsOf(); got != "0 0 2 0" {
		t.Errorf("the sets are %s", got)
	}
}

// TestImportFaktoryKilled: the set that was requeued when the command was killed stands in a file, so that the next
// call does not take its jobs for ready ones.
func TestImportFaktoryKilled(t *testing.T) {
	from, to := startFaktory(t), startFaktory(t)
	old, here := dialFaktoryAs(t, from, ""), dialFaktoryAs(t, to, "")
	state := filepath.Join(t.TempDir(), "state")
	move := []string{from, "--to", to, "--state", state, "--move"}
	for text, says := range map[string]string{
		"rubbish\n":             "is no file of an earlier move",
		"elsewhere:7419 dead\n": "is of a move from elsewhere:7419",
	} {
		if err := os.WriteFile(state, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		importsFaktory(t, "*"+says+"*", 1, move...)
	}
	importsFaktory(t, "*are the same server*", 1, from, "--to", from, "--move")
	const unique = `PUSH {"jid":"%s","jobtype":"T","args":[],"retry":-1,"custom":{"unique_for":600}}`
	here.asks(fmt.Sprintf(unique, "unique-1"), "OK")
	old.asks(fmt.Sprintf(unique, "unique-2"), "OK", "FETCH default", `{`, `FAIL {"jid":"unique-2"}`, "OK")
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	importsFaktory(t, "*", 1, move...) // breaks off while the dead are in the queues
	if text, err := os.ReadFile(state); err != nil || string(text) != from+" dead\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
	old.asks(`FAIL {"jid":"unique-2"}`, "OK", "FLUSH", "OK", `PUSH {"jid":"dead-001","jobtype":"T","args":[]}`, "OK")
	importsFaktory(t, "*1  moved\n*the jobs of dead into the queues*", 0, move...)
	if got := here.setsOf(); got != "0 0 1 0" {
		t.Errorf("the sets are %s", got)
	}
	if _, err := os.Stat(state); err == nil {
		t.Error("the file is still there")
	}
}
