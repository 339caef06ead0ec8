package dwork

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"treadle/codec/dwork/dworkpb"
	"treadle/sched"
)

// TestLease: the tasks of a worker that was silent for a lease are ready again. Any request renews the lease.
func TestLease(t *testing.T) {
	hub := newTestHub(t, Options{Lease: 10 * time.Second})
	hub.ask(`type: Create task { name: "a" origin: "o" } task { name: "b" origin: "o" }`)
	hub.ask(`type: Steal location: "silent"`)
	hub.ask(`type: Steal location: "alive"`)
	for range 3 {
		hub.pass(9 * time.Second)
		hub.Expire()
		hub.ask(`type: Steal location: "alive"`)
	}
	if got := taskNames(t, hub.ask(`type: Steal location: "heir"`)); got != "NotFound" {
		// When "silent" lost a, "alive" got it.
		t.Errorf("the heir gets %s", got)
	}
	if got := hub.ask(`type: Exit location: "silent"`); got != "type:NotFound" {
		t.Errorf("the silent worker's exit: %s", got)
	}
	if got := hub.ask(`type: Complete task { name: "a" origin: "" } task { name: "b" origin: "" } location: "alive"`); got != "type:OK" {
		t.Errorf("the other completes both: %s", got)
	}
}

// TestWorkersBounded: at maxLocations, new locations are refused.
func TestWorkersBounded(t *testing.T) {
	hub := newTestHub(t, Options{})
	for i := range maxLocations {
		hub.workers[fmt.Sprint(i)] = &worker{peer: &sched.Peer{}}
	}
	for _, request := range []string{`type: Steal location: "w"`, `type: Complete task { name: "a" origin: "" } location: "w"`, `type: Transfer task { name: "a" origin: "" } location: "w"`} {
		if got := hub.ask(request); got != "type:Error" {
			t.Errorf("%s is answered %s", request, got)
		}
	}
}

const (
	createAB  = `type: Create task { name: "a" origin: "o\"1" } task { name: "b" origin: "o" pred { name: "a" } }`
	askStatus = `type: OK`
)

// TestWhileStopping: a stopping hub handles reports and hands out and creates nothing. A setting decides the answer to
// a Steal; Exit answers other requests.
func TestWhileStopping(t *testing.T) {
	for stop, steal := range map[string]string{"exit": "type:Exit", AnswerNotFound: "type:NotFound"} {
		hub := newTestHub(t, Options{Stop: stop})
		f := func(request, want string) {
			t.Helper()
			if got := hub.ask(request); got != want {
				t.Errorf("%s is answered %s, want %s", request, got, want)
			}
		}
		f(`type: Create task { name: "a" origin: "" } task { name: "b" origin: "" pred { name: "a" } } task { name: "c" origin: "" } task { name: "d" origin: "" }`, "type:OK")
		hub.ask(`type: Steal n: 3 location: "w"`)
		hub.Drain()
		for _, request := range []string{askStatus, createAB, `type: Lookup name: "a"`} {
			f(request, "type:Exit")
		}
		f(`type: Steal location: "w"`, steal)
		f(`type: Complete task { name: "a" origin: "" } location: "w"`, "type:OK")
		f(`type: Complete task { name: "a" origin: "" } location: "w"`, `type:NotFound task:{name:"a" origin:""}`)
		f(`type: Transfer task { name: "c" origin: "" } location: "w"`, "type:OK")
		f(`type: Exit location: "w"`, "type:OK")
		f(`type: Exit location: "w"`, "type:NotFound")
		f(`type: Steal location: "w"`, steal)
		var m dworkpb.QueryMsg
		if err := proto.Unmarshal([]byte(hub.reply([]byte("nonsense"))), &m); err != nil || m.GetType() != dworkpb.QueryMsg_Error {
			t.Errorf("nonsense is answered %v, %v", &m, err)
		}
		hub.stopping.Store(false) // as after a restart: d and c were released, b was freed
		if got := taskNames(t, hub.ask(`type: Steal n: 9 location: "v"`)); got != "Transfer d b c" {
			t.Errorf("then ready: %s", got)
		}
	}
}
