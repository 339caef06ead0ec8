package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// newView returns a View of a site.
func newView(t *testing.T, s *sitetest.Site) *View {
	t.Helper()
	v := NewView(s.Config, slog.New(slog.DiscardHandler))
	t.Cleanup(v.Close)
	return v
}

// TestViewSite: a View has the queues of both dialects with their counts, and the nodes with those that are silent.
func TestViewSite(t *testing.T) {
	s := newSite(t)
	v := newView(t, s)
	demo := s.Queue(d("name", "demo", "plugin", "A", "threads", 3))
	s.Queue(d("name", "old", "constructor", "B", "maxthreads", "many"))
	s.Fill(&demo, d("a", 1), d("a", 2), d("a", 3))
	_, err := s.Tasks.UpdateOne(s.Ctx, d("params.a", 2), set(d("status", store.StatusFailed)))
	must(t, err)
	_, err = s.Nodes.InsertOne(s.Ctx, d("node", "here", "timestamp", time.Now(), "maxthreads", 4))
	must(t, err)
	_, err = s.Nodes.InsertOne(s.Ctx, d("node", "gone", "timestamp", time.Now().Add(-time.Hour)))
	must(t, err)
	site, err := v.Site(s.Ctx)
	must(t, err)
	if site.Uncounted != "" || len(site.Queues) != 2 || len(site.Nodes) != 2 {
		t.Fatalf("%+v", site)
	}
	if q := site.Queues[0]; q.Queue != "demo" || q.ID != demo.ID.Hex() || q.Limit != 3 || q.PerNode || q.Queued != 2 || q.Completed != 1 {
		t.Errorf("%+v", q)
	}
	if q := site.Queues[1]; q.Queue != "old" || !q.PerNode || q.Problem == "" {
		t.Errorf("%+v", q)
	}
	if gone, here := site.Nodes[0], site.Nodes[1]; gone.Node != "gone" || !gone.Late || gone.Limit != nil || here.Late || here.Limit == nil || *here.Limit != 4 {
		t.Errorf("%+v", site.Nodes)
	}
}

// TestViewTasks: a search by queue, status, node and filter finds each task once on pages of any size, the newest
// first, and refuses what the command interface refuses.
func TestViewTasks(t *testing.T) {
	s := newSite(t)
	v := newView(t, s)
	demo, other := s.Queue(d("name", "demo", "plugin", "A")), s.Queue(d("name", "other", "plugin", "A"))
	ids := s.Fill(&demo, d("a", 0), d("a", 1), d("a", 2), d("a", 3), d("a", 4))
	s.Fill(&other, d("a", 0))
	for i, id := range ids {
		_, err := s.Tasks.UpdateOne(s.Ctx, byID(id), set(d("status", []int{-2, 2, 2, 2, 7}[i], "node", fmt.Sprint("n", i%2))))
		must(t, err)
	}
	find := func(values ...string) (found []string) {
		t.Helper()
		q := url.Values{}
		for i := 0; i < len(values); i += 2 {
			q.Set(values[i], values[i+1])
		}
		for {
			page, err := v.Tasks(s.Ctx, q)
			must(t, err)
			for _, one := range page.Tasks {
				if one.Params != nil || one.Stdout != nil || one.Queue == one.QueueID {
					t.Errorf("%+v", one)
				}
				found = append(found, one.ID)
			}
			if page.Next == "" || len(found) > len(ids) { // each would be found again and again
				return found
			}
			q.Set("after", page.Next)
		}
	}
	hex := func(n ...int) (all []string) {
		for _, i := range n {
			all = append(all, ids[i].Hex())
		}
		return all
	}
	for _, limit := range []string{"1", "2", "3", "100"} {
		if got := find("queue", "demo", "limit", limit); !slices.Equal(got, hex(4, 3, 2, 1, 0)) {
			t.Errorf("limit %s: %q", limit, got)
		}
	}
	for _, f := range []struct{ values, want []string }{
		{[]string{"queue", demo.ID.Hex(), "status", "failed"}, hex(3, 2, 1)}, {[]string{"status", "7"}, hex(4)},
		{[]string{"status", "failed", "node", "n1"}, hex(3, 1)}, {[]string{"filter", `{"params.a": {"$gt": 2}}`, "status", "failed"}, hex(3)},
		{[]string{"queue", primitive.NewObjectID().Hex()}, nil},
	} {
		if got := find(f.values...); !slices.Equal(got, f.want) {
			t.Errorf("%q: %q", f.values, got)
		}
	}
	for _, bad := range []struct {
		name, value string
		status      int
	}{{"queue", "none", 404}, {"status", "x", 400}, {"filter", "{", 400}, {"filter", `{"$where": "1"}`, 400}, {"after", "x", 400}, {"limit", "1000", 400}} {
		_, err := v.Tasks(s.Ctx, url.Values{bad.name: {bad.value}})
		if refused := new(ViewError); !errors.As(err, refused) || refused.HTTPStatus() != bad.status {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestViewTask: a task has the beginnings of its payload and outputs, and all of them as bytes: in the document, in a
// file, in a file that is lost, and those that are not UTF-8.
func TestViewTask(t *testing.T) {
	s := newSite(t)
	v := newView(t, s)
	demo := s.Queue(d("name", "demo", "plugin", "A"))
	long := strings.Repeat("0123456789abcdef", 40_000)
	ids := s.Fill(&demo, d("n", int64(12345678901234)), d())
	file := primitive.NewObjectID()
	must(t, s.Store.WriteFile(s.Ctx, file, ids[0], store.FileStdout, long))
	_, err := s.Tasks.UpdateOne(s.Ctx, byID(ids[0]), set(d("stdout", file, "stderr", "\xff\xfe")))
	must(t, err)
	_, err = s.Tasks.UpdateOne(s.Ctx, byID(ids[1]), set(d("stdout", long, "stderr", primitive.NewObjectID())))
	must(t, err)
	one, err := v.Task(s.Ctx, ids[0].Hex())
	must(t, err)
	if one.Queue != "demo" || one.State != "queued" || one.Params.Text != `{"n":12345678901234}` || one.Params.Cut {
		t.Errorf("%+v, %+v", one, one.Params)
	}
	if o := one.Stdout; o.Size != int64(len(long)) || !o.Cut || o.Text != long[:maxViewed] {
		t.Errorf("a file: %d bytes, %d of them, cut %v", o.Size, len(o.Text), o.Cut)
	}
	if o := one.Stderr; !bytes.Equal(o.Bytes, []byte("\xff\xfe")) || o.Text != "" || o.Cut {
		t.Errorf("%+v", o)
	}
	two, err := v.Task(s.Ctx, ids[1].Hex())
	must(t, err)
	if o := two.Stdout; o.Size != int64(len(long)) || !o.Cut || o.Text != long[:maxViewed] || two.Stderr.Error == "" {
		t.Errorf("a text: %d bytes, %d of them, cut %v; a lost file: %+v", o.Size, len(o.Text), o.Cut, two.Stderr)
	}
	for _, id := range ids {
		if text, err := v.Text(s.Ctx, id.Hex(), store.FileStdout); err != nil || text != long {
			t.Errorf("%v, %d bytes", err, len(text))
		}
	}
	_, err = s.DB.Collection("tasks.files").UpdateOne(s.Ctx, byID(file), set(d("length", maxReplyOutput+1)))
	must(t, err)
	for _, bad := range []struct {
		id, name string
		status   int
	}{{ids[0].Hex(), "ctime", 400}, {"x", "stdout", 400}, {primitive.NewObjectID().Hex(), "stdout", 404}, {ids[1].Hex(), "stderr", 404}, {ids[0].Hex(), "stdout", 413}} {
		_, err := v.Text(s.Ctx, bad.id, bad.name)
		if refused := new(ViewError); !errors.As(err, refused) || refused.HTTPStatus() != bad.status {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestViewAway: without the database a View says so, and it is there again with the database. Of requests beyond its
// turns each says in time that there are too many.
func TestViewAway(t *testing.T) {
	s := newSite(t)
	if s.Fake == nil {
		t.Skip("a real database stays")
	}
	v := newView(t, s)
	refused := func(ctx context.Context) bool {
		_, err := v.Site(ctx)
		why := new(ViewError)
		return errors.As(err, why) && why.HTTPStatus() == http.StatusServiceUnavailable
	}
	s.Fake.Stop()
	if !refused(s.Ctx) {
		t.Error("it answers without a database")
	}
	must(t, s.Fake.Resume())
	for end := time.Now().Add(sitetest.Patience); refused(s.Ctx); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not answer with the database")
		}
	}
	for range maxViews {
		v.turns <- struct{}{}
	}
	soon, cancel := context.WithTimeout(s.Ctx, 10*time.Millisecond)
	defer cancel()
	if !refused(soon) {
		t.Error("it answers without a turn")
	}
}
