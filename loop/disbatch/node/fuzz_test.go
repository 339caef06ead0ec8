package node

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/bson"
	"go.mongodb.org/mongo-driver/bson/primitive"

	"treadle/loop/disbatch/sitetest"
	"treadle/loop/disbatch/store"
)

// FuzzDocument reads bytes as a task and as a document on the pipe. An accepted document can be sent on, and the input
// of a plugin is JSON.
func FuzzDocument(f *testing.F) {
	for _, doc := range sitetest.FuzzDocuments(f) {
		f.Add(doc)
	}
	b, err := bson.Marshal(report{Task: primitive.NewObjectIDFromTimestamp(time.Unix(1_795_239_475, 0)), Error: "why"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, in []byte) {
		raw := bson.Raw(in[:min(len(in), sitetest.FuzzBytes)])
		task := store.DecodeTask(raw)
		for _, into := range []any{new(assignment), new(report)} {
			if readDocument(bytes.NewReader(in), into) != nil {
				continue
			}
			if a, ok := into.(*assignment); ok && a.Task == nil {
				continue // every assignment has one
			}
			b, err := bson.Marshal(into)
			again := reflect.New(reflect.TypeOf(into).Elem()).Interface()
			if err == nil {
				err = readDocument(bytes.NewReader(b), again)
			}
			if err != nil || fmt.Sprint(again) != fmt.Sprint(into) {
				t.Fatalf("%x carries %v, which comes back as %v, %v", in, into, again, err)
			}
		}
		if text, err := extendedJSON(raw); err == nil && !json.Valid(text) {
			t.Fatalf("%x is handed to plugins as %q", in, text)
		}
		checkOutcome(t, demo(&task))
	})
}

// checkOutcome checks that an outcome can be written to the database.
func checkOutcome(t *testing.T, o store.Outcome) {
	t.Helper()
	for _, s := range []any{o.Stdout, o.Stderr} {
		if text, ok := s.(string); !ok || !utf8.ValidString(text) {
			t.Fatalf("the output %q is no text", s)
		}
	}
	if _, err := bson.Marshal(o); err != nil || o.Status < store.StatusSucceeded {
		t.Fatalf("a task ends with status %d, %v", o.Status, err)
	}
}

// FuzzPluginOutput reads arbitrary output of plugins and results of workers. A simple reader by lines finds the same
// status line.
func FuzzPluginOutput(f *testing.F) {
	for _, text := range []string{
		"", "out\n", "out\n{\"status\": 3}\n", "{\"status\":1,\"stdout\":\"o\",\"stderr\":{\"a\":[1]}}", "a\n{\"STATUS\":0.5}\r\n\t ", "{\"status\":null}", "{\"status\":1}x", "\xff\n{}\n", "{\"status\":1,\"stdout\":[\"\xff\"],\"stderr\":\"\xff\"}",
		"{\"status\":99999999999999999999}", "[1]\n\n", "{\"stdout\":\"\\ud800\",\"status\":\"2\"}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, out []byte) {
		checkOutcome(t, parseResult(out))
		rest, status, ok := statusLine(out)
		last, before := strings.TrimRight(string(out), " \t\r\n"), ""
		if i := strings.LastIndex(last, "\n"); i >= 0 {
			last, before = last[i+1:], last[:i+1]
		}
		var members map[string]json.RawMessage
		has := false
		if json.Unmarshal([]byte(last), &members) == nil && strings.HasPrefix(last, "{") {
			for name := range members {
				has = has || strings.EqualFold(name, "status")
			}
		}
		switch {
		case ok != has:
			t.Fatalf("%q has a status line: %v, read as %v", out, has, ok)
		case ok && (string(rest) != before || status < store.StatusSucceeded):
			t.Fatalf("%q is read as %q and status %d", out, rest, status)
		case !ok && string(rest) != string(out):
			t.Fatalf("%q has no status line, and %q is left of it", out, rest)
		}
		checkOutcome(t, store.Outcome{Status: store.StatusSucceeded, Stdout: utf8Text(rest), Stderr: ""})
	})
}
