package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// TestServerReleases: a node works on every release of MongoDB that Disbatch sites run.
func TestServerReleases(t *testing.T) {
	sitetest.OnReleases(t, func(t *testing.T, base *sitetest.Site) {
		s := &site{base}
		q := s.Queue(d("name", "a", "plugin", "F", "threads", 2))
		ids := s.Fill(&q, sitetest.Payloads(2)...)
		n, state := s.idle("me", &q)
		if a, err := n.claimNext(state, nil); err != nil || store.DecodeTask(a.Task).ID != ids[0] {
			t.Errorf("claimed %v, %v", a, err)
		}
		must(t, n.tick(s.Ctx))
	})
}

// TestUnusableDatabase: a database that can never be used ends the node and the task runner with an error of one line.
func TestUnusableDatabase(t *testing.T) {
	sitetest.OnUnusable(t, func(ctx context.Context, c *config.File) error {
		node, err := New(Options{Config: c, Name: "me", Executor: []string{"/bin/false"}})
		must(t, err)
		return node.Run(ctx)
	})
	sitetest.OnUnusable(t, func(ctx context.Context, c *config.File) error {
		return RunTask(ctx, c, TaskOptions{Task: primitive.NewObjectID().Hex()}, slog.New(slog.DiscardHandler))
	})

	fake := sitetest.StartFake(t)
	must(t, fake.Require("jobs", map[string]string{config.ComponentNode: "a", config.ComponentRunner: "c"}))
	c, err := config.Parse([]byte(fmt.Sprintf(`{"mongohost": %q, "database": "jobs", "auth": {"disbatchd": "a", "task_runner": "x"}}`, fake.Address())))
	must(t, err)
	node, err := New(Options{Config: c, Name: "me", Executor: []string{"/bin/false"}})
	must(t, err)
	if err := node.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "task_runner of auth") {
		t.Errorf("with a wrong password of the runner: %v", err)
	}
}

// TestExtendedDBPointer: extended refuses a document whose JSON stands for another document, since the driver does not
// escape the name of a DBPointer.
func TestExtendedDBPointer(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		doc, err := bson.Marshal(d("params", d("a", primitive.DBPointer{DB: name})))
		must(t, err)
		if text, err := extendedJSON(doc); string(text) != want || (err == nil) != (want != "") {
			t.Errorf("%q is said as %s, %v", name, text, err)
		}
	}
	f("x", `{"params":{"a":{"$dbPointer":{"$ref":"x","$id":{"$oid":"000000000000000000000000"}}}}}`)
	f(`x","$id":{"$oid":"571fac85ee63413233049fbd"}}},"status":{"a":{"b":"`, "")
}
