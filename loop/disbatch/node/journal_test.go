package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/store"
)

// TestJournaledWrites: claims, begins and ends have the write concern j, unless the configuration has another or the
// database has no journal, which the node reports.
func TestJournaledWrites(t *testing.T) {
	f := func(attributes, want string, noJournal bool) {
		t.Helper()
		s := newFaultySite(t, attributes)
		s.Fake.WithoutJournal(noJournal)
		q := s.Queue(d("name", "a", "plugin", config.DemoPlugin, "threads", 1))
		s.Fill(&q, d("commands", "a"))
		tasks := s.Config.Database + ".tasks"
		concern := func(command string) string { return fmt.Sprint(s.Fake.WriteConcern(command, tasks)) }
		created := concern("insert")
		db := s.Store
		task, err := db.Claim(s.Ctx, &q, "me", time.Now())
		must(t, err)
		claimed, run := concern("findAndModify"), primitive.NewObjectID()
		_, err = db.Begin(s.Ctx, &task, run)
		must(t, err)
		begun := concern("update")
		_, err = db.Finish(s.Ctx, &task, run, store.Outcome{Status: 1}, time.Now())
		must(t, err)
		if ended := concern("update"); claimed != want || begun != want || ended != want || created == want && strings.Contains(want, "true") && attributes == "" {
			t.Errorf("%s: created with %s, claimed with %s, begun with %s, ended with %s", attributes, created, claimed, begun, ended)
		}
		if said := (&performer{store: db}).journalWarning(); (said != "") != (noJournal && attributes == "") {
			t.Errorf("%s: the warning is %q", attributes, said)
		}
	}
	f("", `{"j": true}`, false)
	f("", "", true)
	f(`"attributes": {"j": false},`, `{"j": false}`, false)
	f(`"attributes": {"w": "majority"},`, `{"w": "majority","j": true}`, false)
	f(`"attributes": {"w": 1, "j": 0},`, `{"w": {"$numberInt":"1"},"j": false}`, true)
}
