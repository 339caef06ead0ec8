package admin

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write openapi.json anew")

// TestOpenAPI: the description of the API is what the table of requests and the messages say. -rewrite writes it anew.
func TestOpenAPI(t *testing.T) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(describe(t)); err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile("openapi.json", text.Bytes(), 0o644); err != nil { //nolint:gosec // a source file
			t.Fatal(err)
		}
	} else if !bytes.Equal(text.Bytes(), openAPI) {
		t.Error("openapi.json is not what the operations and messages say: go test ./loop/admin -run TestOpenAPI -rewrite, and read the diff")
	}
}

// documentOf returns what tests look at in the description.
func documentOf(t *testing.T) (d struct {
	Paths map[string]map[string]struct {
		Parameters []struct{ Name, In string }
	}
	Components struct{ Schemas map[string]any }
}) {
	t.Helper()
	if err := json.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestOpenAPIRoutes: the description has the routes of the handler, and no others.
func TestOpenAPIRoutes(t *testing.T) {
	routes := (&API{}).routes()
	for path, methods := range documentOf(t).Paths {
		for method := range methods {
			route := strings.ToUpper(method) + " " + path
			if routes[route] == nil {
				t.Errorf("%s is described, and no request", route)
			}
			delete(routes, route)
		}
	}
	for route := range routes {
		t.Errorf("%s is not described: add it to requests in openapi_table_test.go", route)
	}
}

// TestOpenAPIParameters: the description has the parameters that the handlers read, and no others.
func TestOpenAPIParameters(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{idempotencyKey: false}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:\bq|\bquery|Query\(\))\.(?:Get|Has)\("([^"]+)"\)`).FindAllSubmatch(source, -1) {
			read[string(m[1])] = false
		}
	}
	for path, methods := range documentOf(t).Paths {
		for _, operation := range methods {
			for _, p := range operation.Parameters {
				if _, known := read[p.Name]; !known {
					t.Errorf("%s: no handler reads the parameter %s", path, p.Name)
				}
				read[p.Name] = true
			}
		}
	}
	for name, described := range read {
		if !described {
			t.Errorf("no operation is described with the parameter %s", name)
		}
	}
}

// TestOpenAPIMessages: the description has the messages of codec/admin, and no others.
func TestOpenAPIMessages(t *testing.T) {
	messages := messageSource(t)
	schemas := documentOf(t).Components.Schemas
	for name, m := range messages.types {
		if _, described := schemas[name]; !described && m.isMessage && !slices.Contains(messages.embedded, name) {
			t.Errorf("no operation has the message %s", name)
		}
	}
	for name := range schemas {
		if messages.types[name] == nil {
			t.Errorf("%s is described, and no message", name)
		}
	}
}
