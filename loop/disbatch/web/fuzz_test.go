package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/bson"

	"treadle/loop/disbatch/config"
	"treadle/loop/disbatch/mongotest"
	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// FuzzDocument shows bytes from the database as a queue, a node and any document. The result is JSON.
func FuzzDocument(f *testing.F) {
	for _, doc := range sitetest.FuzzDocuments(f) {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		raw := bson.Raw(in[:min(len(in), sitetest.FuzzBytes)])
		q, n := store.DecodeQueue(raw), store.DecodeNode(raw)
		for _, shown := range []any{documentJSON(raw, object{"id": "x"}), queueJSON(&q, store.Counts{}), nodeJSON(&n)} {
			if text, err := encode(shown, true); err != nil || !json.Valid(text) {
				t.Fatalf("%x is shown as %q, %v", in, text, err)
			}
		}
	})
}

// TestAStringWithoutItsEndIsShown: a string with an impossible length is shown as an empty one.
func TestAStringWithoutItsEndIsShown(t *testing.T) {
	// The document's size, 17 bytes: 11 00 00 00
	// A string "status": 02 s t a t u s 00
	// Its length 0, though a string ends with a NUL: 00 00 00 00
	// The end: 00
	in := bson.Raw("\x11\x00\x00\x00\x02status\x00\x00\x00\x00\x00\x00")
	if shown := documentJSON(in, nil); string(shown) != `{"status":""}` {
		t.Errorf("it is shown as %s", shown)
	}
}

// fuzzSteps is the largest number of requests in a script.
const fuzzSteps = 12

// FuzzCommandInterface sends requests to the command interface of a site. A line is a request as in the golden file:
// method, path, type of the body, and body. A line that begins with = and a collection's name inserts a document, in
// extended JSON. Every reply has the form of its content type and no status of 500 or more. The pages still work at the
// end.
func FuzzCommandInterface(f *testing.F) {
	golden, err := os.ReadFile("testdata/dci.golden")
	if err != nil {
		f.Fatal(err)
	}
	first := "= queues {\"_id\":{\"$oid\":\"571f8951b75bf335634ec271\"},\"name\":\"demo\",\"plugin\":\"Disbatch::Plugin::Demo\"}\n= nodes {\"node\":\"vm\",\"maxthreads\":7}\n" +
		"= tasks {\"queue\":{\"$oid\":\"571f8951b75bf335634ec271\"},\"status\":1,\"node\":\"vm\",\"params\":{\"commands\":\"a\"},\"stdout\":{\"$oid\":\"571f8951b75bf335634ec272\"},\"ctime\":1795239872}\n"
	for line := range strings.Lines(string(golden)) {
		if request, ok := strings.CutPrefix(line, "--- "); ok {
			f.Add([]byte(first + strings.ReplaceAll(request, "{demo}", "571f8951b75bf335634ec271")))
		}
	}
	f.Add([]byte(first + "GET /search?filter=%7B%22status%22%3A%7B%22%24gt%22%3A0%7D%7D&output=1&limit=1&skip=0 -\nPOST /page/queues/demo application/x-www-form-urlencoded threads=3&sort=lifo\nPOST /page/nodes/vm application/x-www-form-urlencoded maxthreads="))
	f.Add([]byte("= queues {\"name\":{\"$numberDouble\":\"NaN\"},\"constructor\":[1],\"maxthreads\":{\"$date\":{\"$numberLong\":\"-1\"}}}\n= nodes {\"node\":1}\n= config {\"active\":1,\"plugins\":{\"$regex\":\"(\",\"$options\":\"i\"}}\nGET /plugins -"))
	f.Add([]byte(first + "POST /tasks/search application/json {\"filter\":{\"$or\":[{\"_id\":{\"$oid\":\"x\"}},{\"params.commands\":{\"$regex\":\"^a\"}}]},\"options\":{\"sort\":{\"_id\":-1},\"projection\":{\"params\":1},\"limit\":3},\"count\":0,\"terse\":false,\"pretty\":1}"))
	fake, err := mongotest.Start()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(fake.Stop)
	c, err := config.Parse([]byte(fmt.Sprintf("{\"mongohost\": %q, %s}", fake.Address(), demoPlugins)))
	if err != nil {
		f.Fatal(err)
	}
	site, err := store.Open(c.Connection(config.ComponentWeb))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(site.Close)
	db := sitetest.Connect(f, c)
	f.Fuzz(func(t *testing.T, script []byte) {
		must(t, db.Drop(t.Context()))
		site.EnsureIndexes(t.Context())
		c := &commandInterface{config: c, store: site, guard: guardOf(t), log: slog.New(slog.DiscardHandler)}
		handler := c.handler()
		for i, line := range strings.SplitN(string(script[:min(len(script), sitetest.FuzzBytes)]), "\n", fuzzSteps+1) {
			words := append(strings.SplitN(line, " ", 4), "", "", "", "")
			if i == fuzzSteps {
				break
			}
			if words[0] == "=" {
				if doc, ok := document(words[1], strings.Join(words[2:], " ")); ok {
					_, _ = db.Collection(words[1]).InsertOne(t.Context(), doc) // its id or name may exist
				}
				continue
			}
			r, err := http.NewRequestWithContext(t.Context(), words[0], words[1], strings.NewReader(words[3]))
			if err != nil || r.URL.Path == "" || r.URL.Path[0] != '/' {
				continue // no client sends it
			}
			r.Host = "web.example"
			r.Header.Set("Content-Type", words[2])
			checkAnswer(t, handler, r, line)
		}
		for _, path := range []string{"/", "/search?status=1", "/nodes", "/queues", "/plugins"} {
			r := httptest.NewRequest(http.MethodGet, "http://web.example"+path, http.NoBody)
			if status := checkAnswer(t, handler, r, path); status != http.StatusOK {
				t.Fatalf("%q: after all, %s is answered %d", script, path, status)
			}
		}
	})
}

// document returns the document of a text for a collection. It returns false if one of the two is invalid.
func document(collection, text string) (doc bson.D, ok bool) {
	ok = bson.UnmarshalExtJSON([]byte(text), false, &doc) == nil && collection != "" && !strings.ContainsAny(collection, "$\x00")
	return doc, ok
}

// checkAnswer sends a request and returns the status of the answer.
func checkAnswer(t *testing.T, handler http.Handler, r *http.Request, line string) int {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	kind, body := w.Header().Get("Content-Type"), w.Body.Bytes()
	switch {
	case w.Code >= http.StatusInternalServerError:
		t.Fatalf("%q is answered %d %q", line, w.Code, body)
	case kind == jsonKind && !json.Valid(body):
		t.Fatalf("%q is answered with no JSON: %q", line, body)
	case strings.HasPrefix(kind, "text/html") && w.Code < 300 && !bytes.HasSuffix(bytes.TrimSpace(body), []byte("</html>")):
		t.Fatalf("%q is answered with no page: %q", line, body)
	case !utf8.Valid(body):
		t.Fatalf("%q is answered %q", line, body)
	}
	return w.Code
}

// TestDCIOnReleasesOfTheServer: the command interface works on every MongoDB release that Disbatch sites run.
func TestDCIOnReleasesOfTheServer(t *testing.T) {
	sitetest.OnReleases(t, func(t *testing.T, s *sitetest.Site) {
		if _, _, err := (&commandInterface{config: s.Config, store: s.Store}).queues(s.Ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestDCIEndsAtWhatCannotBeUsed: a database that can never be used ends the command interface with one line.
func TestDCIEndsAtWhatCannotBeUsed(t *testing.T) {
	sitetest.OnUnusable(t, func(ctx context.Context, c *config.File) error {
		return Run(ctx, Options{Config: c, Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	})
}
