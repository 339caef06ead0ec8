package loop

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	codec "treadle/codec/admin"
	"treadle/codec/periodic"
)

// queues reads all pages of queues and returns their names.
func (a api) queues(query string, limit int) (names []string) {
	a.t.Helper()
	for after, pages := "", 0; pages < 100; pages++ {
		var page codec.Queues
		path := fmt.Sprintf("/queues?limit=%d&after=%s%s", limit, after, query)
		if code := a.do(http.MethodGet, path, "", nil, &page); code != http.StatusOK || len(page.Queues) > limit {
			a.t.Fatalf("%s: %d, %d queues", path, code, len(page.Queues))
		}
		for _, q := range page.Queues {
			names = append(names, q.Queue+string(q.QueueBytes))
		}
		if after = page.Next; after == "" {
			return names
		}
	}
	a.t.Fatal("the pages have no end")
	return nil
}

// TestAPIQueueOrders: the queues come in the order that is asked for, each once on pages of any size, those that match
// alone.
func TestAPIQueueOrders(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	for _, job := range []string{
		`{"queue":"b"}`, `{"queue":"b"}`, `{"queue":"b","at":100}`, `{"queue":"a","at":50}`, `{"queue":"Mail.out","delay":"1h"}`, `{"queue":"mail.in","delay":"1h"}`,
		`{"queue":"mail.in","delay":"1h"}`, `{"queue_b64":"/w=="}`,
	} {
		a.submit(job)
	}
	w := r.greet(periodic.Worker)
	w.send(request(1, periodic.CanDo, str8("a")))
	w.ask(2, periodic.Ping, nil, byte(periodic.Pong))
	for query, want := range map[string][]string{
		"":                           {"Mail.out", "a", "b", "mail.in", "\xff"},
		"&sort=name":                 {"Mail.out", "a", "b", "mail.in", "\xff"},
		"&sort=ready":                {"b", "a", "\xff", "Mail.out", "mail.in"},
		"&sort=delayed":              {"mail.in", "Mail.out", "a", "b", "\xff"},
		"&sort=oldest":               {"a", "b", "\xff", "Mail.out", "mail.in"},
		"&sort=workers":              {"a", "Mail.out", "b", "mail.in", "\xff"},
		"&sort=running":              {"Mail.out", "a", "b", "mail.in", "\xff"},
		"&contains=MAIL":             {"Mail.out", "mail.in"},
		"&contains=MAIL&prefix=m":    {"mail.in"},
		"&sort=delayed&contains=l.O": {"Mail.out"},
		"&contains=nowhere":          nil,
	} {
		for _, limit := range []int{1, 2, 3, 5, 1000} {
			if got := a.queues(query, limit); !slices.Equal(got, want) {
				t.Errorf("%s, limit %d: %q, want %q", query, limit, got, want)
			}
		}
	}
	var page codec.Queues
	if a.do(http.MethodGet, "/queues?limit=2&sort=ready", "", nil, &page); page.Of != 5 {
		t.Errorf("a page is of %d queues", page.Of)
	}
	if q := a.queue("b"); !q.Counted || q.SubmittedTotal != 3 || q.Oldest < 1e6 || !slices.Equal(q.Protocols, []string{"periodic"}) {
		t.Errorf("%+v", q)
	}
	for _, query := range []string{"sort=size", "after=%", "after=-", "limit=0"} {
		if code := a.do(http.MethodGet, "/queues?"+query, "", nil, nil); code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, code)
		}
	}
}

// TestAPIOverviewMore: an overview has the connections of each protocol, and what needs attention.
func TestAPIOverviewMore(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	a.submit(`{"queue":"left","at":50}`)
	w, c := r.greet(periodic.Worker), r.greet(periodic.Client)
	w.send(request(1, periodic.CanDo, str8("f")))
	w.ask(2, periodic.Ping, nil, byte(periodic.Pong))
	c.ask(1, periodic.Ping, nil, byte(periodic.Pong))
	var o codec.Overview
	a.do(http.MethodGet, "/overview?limit=1", "", nil, &o)
	for _, p := range o.Connections {
		if p.Protocol == "periodic" && (p.Clients != 1 || p.Workers != 1 || p.Others != 0) {
			t.Errorf("%+v", p)
		}
	}
	if len(o.Connections) < 2 || len(o.Attention) != 1 || o.Attention[0].Kind != "no-worker" || o.Attention[0].Queue != "left" || len(o.Queues) != 1 || o.RestQueues != 1 || o.Rest.Workers != 1 {
		t.Errorf("%+v", o)
	}
}

// TestAPIHistory: a second after the start there is a history of all jobs and of the busiest queues, and rates.
func TestAPIHistory(t *testing.T) {
	r := startServer(t, Options{HTTP: "127.0.0.1:0"})
	a := api{t, r}
	a.submit(`{"queue":"f"}`)
	history := func(query string) (h codec.History, code int) {
		code = a.do(http.MethodGet, "/history"+query, "", nil, &h)
		return h, code
	}
	for h := (codec.History{}); len(h.Slots) < 2; { // the first reading of a queue has no jobs: they may have come at any time
		if t.Context().Err() != nil {
			t.Fatal("no history is kept")
		}
		h, _ = history("?queue=f")
	}
	a.submit(`{"queue":"f"}`)
	for q := a.queue("f"); q.Rates == nil || q.Rates.Submitted == 0; q = a.queue("f") {
		if t.Context().Err() != nil {
			t.Fatal("there are no rates")
		}
	}
	for _, query := range []string{"?queue=f", "", "?queue=f&span=5m&step=5s", "?span=1h", "?queue=f&span=24h"} {
		h, code := history(query)
		submitted := uint32(0)
		for _, s := range h.Slots {
			submitted += s.Submitted
		}
		if last := h.Slots[len(h.Slots)-1]; code != http.StatusOK || submitted != 1 || last.Ready != 2 || h.End <= 0 {
			t.Errorf("%s: %d %+v", query, code, h)
		}
	}
	for query, want := range map[string]int{"?span=2h": 400, "?span=1h&step=5s": 400, "?step=1s": 400, "?queue=nobody": 404} {
		if code := a.do(http.MethodGet, "/history"+query, "", nil, nil); code != want {
			t.Errorf("%s: %d, want %d", query, code, want)
		}
	}
	var page codec.Queues
	if a.do(http.MethodGet, "/queues?sort=submitted", "", nil, &page); len(page.Queues) != 1 || !strings.HasPrefix(page.Queues[0].Queue, "f") {
		t.Errorf("%+v", page)
	}
}
