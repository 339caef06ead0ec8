package disbatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/mongotest"
)

// A site works on every release of the server that Disbatch sites run, with a password too: MongoDB 3.6 knows neither hello nor
// SCRAM-SHA-256 nor the fields of commands that came later.
func TestReleasesOfTheServer(t *testing.T) {
	for _, version := range []mongotest.Version{mongotest.MongoDB36, mongotest.MongoDB42, mongotest.MongoDB44, mongotest.MongoDB70} {
		for _, set := range []string{"", "rs0"} {
			t.Run(version.Name+set, func(t *testing.T) {
				s := newFaultySite(t)
				must(t, s.double.Require("jobs", map[string]string{ComponentNode: "pencil", ComponentWeb: "p"}))
				s.double.Speak(version)
				if set != "" {
					s.double.Set(set)
				}
				text := fmt.Sprintf(`{"mongohost": "mongodb://%s/?%s", "database": "jobs", "auth": {"disbatchd": "pencil", "disbatch_web": "p"}, "attributes": {"replica_set_name": %q}}`,
					s.double.Address(), limits, set)
				c, err := ParseConfig([]byte(text))
				must(t, err)
				store, err := Open(c, ComponentNode)
				must(t, err)
				s.store.Close()
				s.config, s.store = c, store // which the end of the test closes
				must(t, store.client.Ping(s.ctx, nil))
				for _, fault := range store.EnsureIndexes(s.ctx) {
					t.Error(fault)
				}
				q := s.queue(d("name", "a", "plugin", "F", "threads", 2))
				ids := s.fill(&q, payloads(2)...)
				n, state := s.still("me", &q)
				if a, ok := n.next(state, nil); !ok || DecodeTask(a.Task).ID != ids[0] {
					t.Errorf("claimed %v, %v", a, ok)
				}
				must(t, n.tick(s.ctx))
				if _, _, err := (&dci{config: c, store: store}).queues(s.ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A database that can never be used is one line and the end of every program: a release that is too old, a wrong password,
// the runner's too, and the name of another replica set, or of any where there is none.
func TestWhatCannotBeUsedEnds(t *testing.T) {
	f := func(want, attributes, auth string, change func(*mongotest.Server)) {
		t.Helper()
		double := startDouble(t)
		must(t, double.Require("jobs", map[string]string{ComponentNode: "a", ComponentWeb: "b", ComponentRunner: "c"}))
		change(double)
		c, err := ParseConfig([]byte(fmt.Sprintf(`{"mongohost": "mongodb://%s/?%s", "database": "jobs", "attributes": {%s}, "auth": {%s}}`, double.Address(), limits, attributes, auth)))
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		node, err := NewExecutionNode(NodeOptions{Config: c, Name: "me", Runner: []string{"/bin/false"}})
		must(t, err)
		log := slog.New(slog.DiscardHandler)
		for program, err := range map[string]error{
			"node":   node.Run(ctx),
			"runner": RunTask(ctx, c, TaskOptions{Task: primitive.NewObjectID().Hex()}, log),
			"web":    RunWeb(ctx, WebOptions{Config: c, Listen: "127.0.0.1:0", Log: log}),
		} {
			var setting *SettingError
			if !errors.As(err, &setting) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: the %s ends with %v", want, program, err)
			}
		}
	}
	right := `"disbatchd": "a", "disbatch_web": "b", "task_runner": "c"`
	f("MongoDB 3.6", "", right, func(d *mongotest.Server) { d.Speak(mongotest.MongoDB34) })
	f("of auth", "", `"disbatchd": "x", "disbatch_web": "x", "task_runner": "x"`, func(*mongotest.Server) {})
	f("requires authentication", "", "", func(*mongotest.Server) {})
	f(`is "rs1" and not "rs0"`, `"replica_set_name": "rs0"`, right, func(d *mongotest.Server) { d.Set("rs1") })
	f("is no member of a replica set", `"replica_set_name": "rs0"`, right, func(*mongotest.Server) {})

	double := startDouble(t)
	must(t, double.Require("jobs", map[string]string{ComponentNode: "a", ComponentRunner: "c"}))
	c, err := ParseConfig([]byte(fmt.Sprintf(`{"mongohost": %q, "database": "jobs", "auth": {"disbatchd": "a", "task_runner": "x"}}`, double.Address())))
	must(t, err)
	node, err := NewExecutionNode(NodeOptions{Config: c, Name: "me", Runner: []string{"/bin/false"}})
	must(t, err)
	if err := node.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "task_runner of auth") {
		t.Errorf("with a wrong password of the runner: %v", err)
	}
}

// A document whose JSON would be that of another one is refused: the driver writes the name of a pointer as it is.
func TestDocumentsThatJSONWouldChange(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		doc, err := bson.Marshal(d("params", d("a", primitive.DBPointer{DB: name})))
		must(t, err)
		if text, err := extended(doc); string(text) != want || (err == nil) != (want != "") {
			t.Errorf("%q is said as %s, %v", name, text, err)
		}
	}
	f("x", `{"params":{"a":{"$dbPointer":{"$ref":"x","$id":{"$oid":"000000000000000000000000"}}}}}`)
	f(`x","$id":{"$oid":"571fac85ee63413233049fbd"}}},"status":{"a":{"b":"`, "")
}
