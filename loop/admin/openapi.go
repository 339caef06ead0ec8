package admin

import (
	_ "embed"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// openAPI describes the requests of Handler. TestOpenAPI writes it, from its table of operations and from the messages
// of codec/admin with their comments: go test ./loop/admin -run TestOpenAPI -rewrite.
//
//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the description of the API: an OpenAPI 3.1 document, as JSON. The caller must not change it.
func OpenAPI() []byte { return openAPI }

func (api *API) getOpenAPI(*http.Request) (any, error) { return json.RawMessage(openAPI), nil }

// described returns the names of the parameters that an address may have, by the pattern of the request.
var described = sync.OnceValue(func() map[string][]string {
	var document struct {
		Paths map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal(openAPI, &document); err != nil {
		panic(err) // it is part of the program
	}
	names := make(map[string][]string)
	for path, methods := range document.Paths {
		for method, operation := range methods {
			pattern := strings.ToUpper(method) + " " + path
			for _, p := range operation.Parameters {
				if p.In == "query" {
					names[pattern] = append(names[pattern], p.Name)
				}
			}
		}
	}
	return names
})

// onlyDescribed refuses a request with a parameter that the description of the pattern has not: without the parameter,
// which may be mistyped, the request would be about more than was meant.
func (api *API) onlyDescribed(pattern string, serve http.HandlerFunc) http.HandlerFunc {
	names := described()[pattern]
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "" {
			serve(w, r)
			return
		}
		q, err := parameters(r)
		for _, name := range slices.Sorted(maps.Keys(q)) {
			if err != nil || slices.Contains(names, name) {
				continue
			}
			if len(names) == 0 {
				err = badf("%s takes no parameter in the address, and has %.50q", pattern, name)
			} else {
				err = badf("%s has no parameter %.50q, but %s", pattern, name, strings.Join(names, ", "))
			}
		}
		if err != nil {
			api.write(w, nil, err)
			return
		}
		serve(w, r)
	}
}
