package loop

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	codec "treadle/codec/admin"
	"treadle/loop/disbatch/mongotest"
)

// fakeSite is a Disbatch site with one task.
type fakeSite struct{}

// badSite is an error of fakeSite.
type badSite struct{}

func (badSite) Error() string { return "status must be an integer" }

func (badSite) HTTPStatus() int { return http.StatusBadRequest }

func (fakeSite) Site(context.Context) (*codec.DisbatchSite, error) {
	return &codec.DisbatchSite{Queues: []codec.DisbatchQueue{{Queue: "reports"}}}, nil
}

func (fakeSite) Tasks(_ context.Context, q url.Values) (*codec.DisbatchTasks, error) {
	if q.Get("status") == "none" {
		return nil, badSite{}
	}
	return &codec.DisbatchTasks{Tasks: []codec.DisbatchTask{{ID: q.Get("node"), Queue: "reports"}}}, nil
}

func (fakeSite) Task(_ context.Context, id string) (*codec.DisbatchTask, error) {
	return &codec.DisbatchTask{ID: id, Stdout: &codec.DisbatchText{Size: 10, Text: "<b>out</b>"}}, nil
}

func (fakeSite) Text(_ context.Context, id, name string) (string, error) {
	return strings.Repeat(id+name, 100_000), nil
}

// TestAPIDisbatch: the API and the pages of a server have its Disbatch site. Another server says that it has none.
func TestAPIDisbatch(t *testing.T) {
	var o Options
	o.HTTP, o.Admin.Disbatch = "127.0.0.1:0", fakeSite{}
	r := startServer(t, o)
	a, b := api{t, r}, newBrowser(t, r)
	var tasks codec.DisbatchTasks
	if code := a.do(http.MethodGet, "/disbatch/tasks?node=n1", "", nil, &tasks); code != http.StatusOK || len(tasks.Tasks) != 1 || tasks.Tasks[0].ID != "n1" {
		t.Errorf("%d, %+v", code, tasks)
	}
	if code := a.do(http.MethodGet, "/disbatch/tasks?status=none", "", nil, nil); code != http.StatusBadRequest {
		t.Errorf("a wrong status: %d", code)
	}
	for path, want := range map[string]string{"/": `href="/disbatch"`, "/disbatch": "reports", "/disbatch/tasks?node=n1": `id=n1"`, "/disbatch/task?id=t1": "&lt;b&gt;out"} {
		if text, _ := b.load(path, http.StatusOK); !strings.Contains(text, want) {
			t.Errorf("%s has no %q", path, want)
		}
	}
	if text, _ := b.load("/disbatch/text?name=stdout&id=t1", http.StatusOK); text != strings.Repeat("t1stdout", 100_000) {
		t.Errorf("the download has %d bytes", len(text))
	}
	alone := startServer(t, Options{HTTP: "127.0.0.1:0"})
	if text, _ := newBrowser(t, alone).load("/disbatch", http.StatusNotFound); !strings.Contains(text, "no node of a Disbatch site") {
		t.Errorf("%.3000s", text)
	}
}

// TestAPIDisbatchNode: a server with --disbatch shows its site, where it is a node itself.
func TestAPIDisbatchNode(t *testing.T) {
	fake, err := mongotest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Stop)
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, fmt.Appendf(nil, `{"mongohost": %q, "database": "site"}`, fake.Address()), 0o600); err != nil {
		t.Fatal(err)
	}
	var o Options
	o.HTTP, o.Disbatch.Config, o.Disbatch.Node = "127.0.0.1:0", file, "here"
	r := startServer(t, o)
	r.until("the node is there", func() bool {
		var site codec.DisbatchSite
		code := api{t, r}.do(http.MethodGet, "/disbatch", "", nil, &site)
		return code == http.StatusOK && site.Database == "site" && len(site.Nodes) == 1 && site.Nodes[0].Node == "here"
	})
}
