package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/mongotest"
)

// longOutput is the output of a task, of 1 MiB.
var longOutput = strings.Repeat("a line of <b>output</b>, as a command writes it\n", 1<<20/48)

// disbatch starts a server that is a node of a Disbatch site, on a double of MongoDB, and returns the addresses of the
// pages of the site: a queue of each hostile name, and a task of each with these names and outputs.
func disbatch(t *testing.T) (*server, map[string]string) {
	t.Helper()
	fake, err := mongotest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Stop)
	insert := func(collection string, documents ...any) {
		t.Helper()
		reply := fake.Run(bson.D{{Key: "insert", Value: collection}, {Key: "documents", Value: bson.A(documents)}, {Key: "$db", Value: "site"}})
		if ok := reply.Map()["ok"]; fmt.Sprint(ok) != "1" {
			t.Fatal(reply)
		}
	}
	now := primitive.NewDateTimeFromTime(time.Now())
	pages := map[string]string{"disbatch": "/disbatch", "disbatch-tasks": "/disbatch/tasks", "disbatch-wrong": "/disbatch/tasks?filter=%7B"}
	for i, name := range append([]string{"monthly reports"}, hostile...) {
		queue, task := primitive.NewObjectID(), primitive.NewObjectID()
		insert("queues", bson.D{{Key: "_id", Value: queue}, {Key: "name", Value: name}, {Key: "plugin", Value: "Acme::Report"}, {Key: "threads", Value: int32(i)}})
		insert("nodes", bson.D{{Key: "node", Value: name}, {Key: "timestamp", Value: primitive.NewDateTimeFromTime(time.Now().Add(-time.Hour))}})
		insert("tasks", bson.D{
			{Key: "_id", Value: task}, {Key: "queue", Value: queue}, {Key: "status", Value: int32(i%4 - 1)}, {Key: "node", Value: name},
			{Key: "params", Value: bson.D{{Key: "user", Value: name}, {Key: "amount", Value: int64(1234567890123456789)}}},
			{Key: "stdout", Value: longOutput}, {Key: "stderr", Value: strings.Repeat(name, 1000)}, {Key: "ctime", Value: now}, {Key: "mtime", Value: now},
		})
		pages[fmt.Sprint("disbatch-task-", i)] = "/disbatch/task?id=" + task.Hex()
	}
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"mongohost": %q, "database": "site"}`, fake.Address()), 0o600); err != nil {
		t.Fatal(err)
	}
	return serve(t, "--disbatch", file, "--disbatch-node", "here"), pages
}

// TestAccessibleDisbatch: the pages of a Disbatch site have no violation that axe-core finds, and are never wider than
// their windows. They have what is hostile in the site as text alone, and are small.
func TestAccessibleDisbatch(t *testing.T) {
	t.Parallel()
	source := axeSource(t)
	s, pages := disbatch(t)
	b := openTab(t, newBrowser(t), s)
	for _, name := range []string{"disbatch", "disbatch-tasks", "disbatch-wrong", "disbatch-task-0", "disbatch-task-3"} {
		b.accessible(name, pages[name], source)
	}
	b.size(375, 812)
	for name, path := range pages {
		b.load(path)
		if got := value[string](b, hostileParts); got != "1,0,false" {
			t.Errorf("%s has scripts, images, turned text: %s", name, got)
		}
		if wide := b.overflow(); wide > 0 {
			t.Errorf("%s is %d px too wide", name, wide)
		}
		if name == "disbatch-wrong" {
			continue
		}
		if n := len(s.page(path)); n > mostHTML {
			t.Errorf("%s has %d bytes", name, n)
		}
	}
}
